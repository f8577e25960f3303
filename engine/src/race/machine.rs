//! The rules of one race as a pure state machine.

use std::time::Duration;

/// An attempt's place in the order of launches, from 0. A transparent replacement is a launch
/// of its own.
pub type AttemptId = u32;

/// What a race may do. Fixed for the whole call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Attempts in all, sequential or concurrent; at least 1.
    pub max_attempts: u32,
    /// Attempts in flight at once; at least 1.
    pub max_concurrent: u32,
    /// Hedges in all, whichever way they end; one that never left and was not replaced does not count.
    pub max_hedges: u32,
    /// Whether an attempt may start while another is in flight.
    pub hedging: bool,
    /// Whether an attempt may start after a failure with no other in flight.
    pub retries: bool,
    /// Whether a retry starts at once instead of after a backoff: hedging on failure.
    pub eager: bool,
    /// Transparent replacements of attempts that never left the client.
    pub max_unsent: u32,
    /// The call's deadline, from its start.
    pub deadline: Option<Duration>,
}

impl Rules {
    /// One attempt, whatever happens: what a method that is not repeatable gets, apart from
    /// transparent replacements.
    pub fn single(deadline: Option<Duration>) -> Self {
        Self {
            max_attempts: 1,
            max_concurrent: 1,
            max_hedges: 0,
            hedging: false,
            retries: false,
            eager: false,
            max_unsent: MAX_UNSENT,
            deadline,
        }
    }
}

/// The default cap on transparent replacements. gRFC A6 leaves never-sent attempts unlimited
/// and grpc-java caps them at 1,000; each of ours goes to another endpoint, so a call that
/// meets this many dead ones has met a dead service.
pub const MAX_UNSENT: u32 = 16;

/// Why an attempt was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The first; it always goes out.
    Original,
    /// Started while another was in flight.
    Hedge,
    /// Started after a failure, with no other in flight.
    Retry,
}

/// An attempt to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Its id.
    pub id: AttemptId,
    /// Attempts before it that count: the value of `grpc-previous-rpc-attempts`.
    pub previous: u32,
    /// Why it starts.
    pub kind: Kind,
    /// The attempt that never left the client, which this one replaces.
    pub replaces: Option<AttemptId>,
}

impl Launch {
    /// What every race launches first.
    pub const ORIGINAL: Self = Self {
        id: 0,
        previous: 0,
        kind: Kind::Original,
        replaces: None,
    };
}

/// What made a hedge due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The newest attempt outran the threshold.
    Threshold,
    /// An attempt failed while another was in flight.
    Failure,
}

/// A question to the host: may this further attempt start?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// A hedge: all seven gates, then the holds.
    Hedge(Trigger),
    /// A retry: the budget. `backoff` counts the waits so far, from 0; `None` where a server's
    /// pushback fixed the wait, so that no backoff is drawn.
    Retry {
        /// Exponent of the backoff.
        backoff: Option<u32>,
    },
}

/// What a server said about further attempts (`grpc-retry-pushback-ms`, gRFC A6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pushback {
    /// Nothing.
    #[default]
    None,
    /// The next attempt starts after exactly this time.
    After(Duration),
    /// No further attempt.
    Stop,
}

/// How an attempt is known not to have been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unsent {
    /// It never left the client: replaced freely, up to the cap.
    NeverSent,
    /// The server refused its stream: replaced once.
    Refused,
}

/// A finished attempt's judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// OK, or a status that another attempt would only repeat: it ends the race.
    Answer,
    /// A result that another attempt could better.
    Failure(Pushback),
    /// It was never processed.
    Unsent(Unsent),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The call starts.
    Start,
    /// The requested launch is on its way. A hedge is due `hedge_after` from now; `None` is
    /// never.
    Launched {
        /// The threshold.
        hedge_after: Option<Duration>,
    },
    /// The requested launch found no endpoint.
    Unplaced,
    /// The question was answered yes; a retry waits for `wait` (unless pushback fixed it).
    Granted {
        /// The drawn backoff.
        wait: Duration,
    },
    /// The question was answered no.
    Held,
    /// An attempt ended.
    Finished {
        /// Which: the launch as it was requested.
        launch: Launch,
        /// How.
        verdict: Verdict,
    },
    /// A hedge is due at the instant, as has turned out since the newest launch.
    HedgeDue {
        /// When.
        at: Duration,
    },
    /// Whoever says when a hedge is due has failed.
    Broken,
    /// Time passed: the instant of the last [`Step::Wait`] may be reached.
    Tick,
    /// The caller went away.
    CallerGone,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Launch, then report [`Event::Launched`] or [`Event::Unplaced`].
    Launch(Launch),
    /// Ask, then report [`Event::Granted`] or [`Event::Held`].
    Ask(Ask),
    /// Wait for an attempt to finish or, where given, for the instant, then report it.
    Wait {
        /// When to report [`Event::Tick`].
        until: Option<Duration>,
    },
    /// The race is over. Attempts still in flight are discarded.
    End(End),
}

/// How a race ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// This attempt's result is the call's.
    Answer(AttemptId),
    /// No attempt is left and none may start: this failure, the last, is the call's result.
    Failed(AttemptId),
    /// The original found no endpoint.
    Unplaced,
    /// The deadline passed.
    Deadline,
    /// The caller went away.
    CallerGone,
    /// What the call depends on has failed.
    Broken,
}

/// What the machine has under way besides the attempts in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Nothing.
    Nothing,
    /// A hedge is due at the instant.
    Hedge { at: Duration, trigger: Trigger },
    /// A granted retry starts at the instant.
    Retry { at: Duration },
    /// A question is out.
    Asking(Ask),
    /// A launch is out.
    Launching(Launch),
}

/// The race of one call.
///
/// Times are since the start of the call. See the [module](super) for its use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Race {
    rules: Rules,
    in_flight: u32,
    /// Launches so far; the next id.
    launches: u32,
    /// Attempts that count against `max_attempts`.
    charged: u32,
    /// Hedges that count against `max_hedges`.
    hedges: u32,
    /// Transparent replacements so far.
    unsent: u32,
    /// Whether the one replacement for a refused stream is used.
    refused: bool,
    next: Next,
    /// Attempts to replace as soon as the host has given the answer that it owes.
    replace: Vec<Launch>,
    /// A server asked for no further attempts. Sticky.
    stopped: bool,
    /// A server asked for no further attempt before this instant. Until the next one starts.
    not_before: Option<Duration>,
    /// Backoffs since the start, or since a pushback: a pushback restarts them (gRFC A6).
    backoffs: u32,
    last_failure: Option<AttemptId>,
    ended: bool,
}

impl Race {
    /// A race that has not started.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            in_flight: 0,
            launches: 0,
            charged: 0,
            hedges: 0,
            unsent: 0,
            refused: false,
            next: Next::Nothing,
            replace: Vec::new(),
            stopped: false,
            not_before: None,
            backoffs: 0,
            last_failure: None,
            ended: false,
        }
    }

    /// Attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Attempts that count against `max_attempts`.
    pub fn charged(&self) -> u32 {
        self.charged
    }

    /// Whether an attempt that was not processed is replaced. Where it is not it has failed like
    /// anything else, and counts as that.
    pub fn would_replace(&self, now: Duration, how: Unsent) -> bool {
        let may = match how {
            Unsent::NeverSent => self.unsent < self.rules.max_unsent,
            Unsent::Refused => !self.refused,
        };
        may && !self.expired(now)
    }

    /// Takes in what happened at `now` and says what to do.
    ///
    /// While the host owes an answer ([`Step::Ask`], [`Step::Launch`]) attempts may finish and
    /// time may pass; the step is then to wait or to end.
    ///
    /// After [`Step::End`] every further event is answered by `Wait { until: None }`.
    pub fn on(&mut self, now: Duration, event: Event) -> Step {
        if self.ended {
            return Step::Wait { until: None };
        }
        match event {
            Event::CallerGone => self.end(End::CallerGone),
            Event::Start => match self.expired(now) {
                // Nothing is sent for a deadline that has passed already.
                true => self.end(End::Deadline),
                false => self.launch(Kind::Original),
            },
            Event::Launched { hedge_after } => self.on_launched(now, hedge_after),
            Event::Unplaced => self.on_unplaced(now),
            Event::Granted { wait } => self.on_granted(now, wait),
            Event::Held => self.on_held(now),
            Event::Finished { launch, verdict } => self.on_finished(now, launch, verdict),
            Event::HedgeDue { at } => self.on_hedge_due(now, at),
            Event::Broken => self.end(End::Broken),
            Event::Tick => self.settle(now),
        }
    }

    /// Whether a hedge could start if it were due: what is launched next, or was just launched,
    /// needs to know when.
    pub fn wants_delay(&self) -> bool {
        let launching = matches!(self.next, Next::Launching(_));
        let taken = self.replace.len() as u32 + self.in_flight + u32::from(launching);
        !self.ended && self.has_room(taken) && (launching || self.next == Next::Nothing)
    }

    /// Whether the attempt that was just granted starts now, or is a retry that waits for its
    /// time. A hedge that was granted late may have lost its place, or has to ask again.
    pub fn uses_grant(&self) -> bool {
        match self.next {
            Next::Launching(launch) => launch.replaces.is_none(),
            next => matches!(next, Next::Retry { .. }),
        }
    }

    fn on_launched(&mut self, now: Duration, hedge_after: Option<Duration>) -> Step {
        if let Next::Launching(_) = self.next {
            self.in_flight += 1;
            self.next = match hedge_after {
                Some(delay) if self.may_hedge() => Next::Hedge {
                    at: self.not_sooner(now.saturating_add(delay)),
                    trigger: Trigger::Threshold,
                },
                _ => Next::Nothing,
            };
        }
        self.settle(now)
    }

    fn on_hedge_due(&mut self, now: Duration, at: Duration) -> Step {
        if self.next == Next::Nothing && self.may_hedge() {
            self.next = Next::Hedge {
                at: self.not_sooner(at),
                trigger: Trigger::Threshold,
            };
        }
        self.settle(now)
    }

    fn on_unplaced(&mut self, now: Duration) -> Step {
        let Next::Launching(launch) = self.next else {
            return self.settle(now);
        };
        self.next = Next::Nothing;
        self.charged -= 1;
        self.hedges -= u32::from(launch.kind == Kind::Hedge);
        if self.in_flight > 0 || !self.replace.is_empty() {
            return self.settle(now);
        }
        match (self.last_failure, launch.kind) {
            (None, _) => self.end(End::Unplaced),
            // Nothing was free a backoff after the failure: nothing will be.
            (Some(failed), Kind::Retry) if launch.replaces.is_none() => {
                self.end(End::Failed(failed))
            }
            // No other endpoint: what never left has failed like anything else, and a hedge
            // whose race has failed in the meantime is one that was held.
            (Some(failed), _) => self.retry_or_end(now, failed),
        }
    }

    fn on_granted(&mut self, now: Duration, wait: Duration) -> Step {
        let Next::Asking(ask) = self.next else {
            return self.settle(now);
        };
        self.next = Next::Nothing;
        match ask {
            Ask::Hedge(trigger) => self.on_hedge_granted(now, trigger),
            Ask::Retry { backoff } => {
                let at = match backoff {
                    // At once, or when the server's pushback ends.
                    None => self.not_sooner(now),
                    Some(_) => {
                        self.backoffs += 1;
                        now.saturating_add(wait)
                    }
                };
                self.retry_at(now, at)
            }
        }
    }

    /// What held when the question was asked may hold no more.
    fn on_hedge_granted(&mut self, now: Duration, trigger: Trigger) -> Step {
        let at = self.not_sooner(now);
        match self.last_failure {
            _ if self.expired(now) => self.end(End::Deadline),
            Some(failed) if self.in_flight == 0 && self.replace.is_empty() => {
                match self.may_retry(at) {
                    true => self.retry_at(now, at),
                    false => self.end(End::Failed(failed)),
                }
            }
            _ if !self.may_hedge() => self.settle(now),
            _ if at > now => {
                self.next = Next::Hedge { at, trigger };
                self.settle(now)
            }
            _ => self.launch(Kind::Hedge),
        }
    }

    fn on_held(&mut self, now: Duration) -> Step {
        let Next::Asking(ask) = self.next else {
            return self.settle(now);
        };
        self.next = Next::Nothing;
        match (self.last_failure, ask) {
            (Some(failed), _) if self.in_flight == 0 && self.replace.is_empty() => match ask {
                // The attempts failed while the hedge's question was out.
                Ask::Hedge(_) => self.retry_or_end(now, failed),
                Ask::Retry { .. } => self.end(End::Failed(failed)),
            },
            _ => self.settle(now),
        }
    }

    fn on_finished(&mut self, now: Duration, launch: Launch, verdict: Verdict) -> Step {
        self.in_flight = self.in_flight.saturating_sub(1);
        match verdict {
            Verdict::Answer => self.end(End::Answer(launch.id)),
            Verdict::Failure(pushback) => self.failed(now, launch.id, pushback),
            Verdict::Unsent(how) => {
                if !self.would_replace(now, how) {
                    return self.failed(now, launch.id, Pushback::None);
                }
                match how {
                    Unsent::NeverSent => self.unsent += 1,
                    Unsent::Refused => self.refused = true,
                }
                self.last_failure = Some(launch.id);
                self.replace.push(launch);
                self.settle(now)
            }
        }
    }

    /// Attempt `id` failed, and is not replaced.
    fn failed(&mut self, now: Duration, id: AttemptId, pushback: Pushback) -> Step {
        self.last_failure = Some(id);
        match pushback {
            Pushback::None => {}
            Pushback::Stop => self.stopped = true,
            Pushback::After(delay) => {
                self.not_before = Some(now.saturating_add(delay));
                self.backoffs = 0;
            }
        }
        if self.is_owed() {
            // What comes next is decided when the host has answered.
            return self.settle(now);
        }
        if self.in_flight == 0 {
            return self.retry_or_end(now, id);
        }
        self.next = match self.may_hedge() {
            true => Next::Hedge {
                at: self.not_sooner(now),
                trigger: Trigger::Failure,
            },
            false => Next::Nothing,
        };
        self.settle(now)
    }

    /// Nothing is in flight after the failure of `id`.
    fn retry_or_end(&mut self, now: Duration, id: AttemptId) -> Step {
        let pushback = self.not_before.filter(|instant| *instant >= now);
        if !self.may_retry(pushback.unwrap_or(now)) {
            return self.end(End::Failed(id));
        }
        let draws = pushback.is_none() && !self.rules.eager;
        self.ask(Ask::Retry {
            backoff: draws.then_some(self.backoffs),
        })
    }

    fn retry_at(&mut self, now: Duration, at: Duration) -> Step {
        match (self.beyond_deadline(at), self.last_failure) {
            (true, Some(failed)) => self.end(End::Failed(failed)),
            _ => {
                self.next = Next::Retry { at };
                self.settle(now)
            }
        }
    }

    /// What is due at `now`.
    fn settle(&mut self, now: Duration) -> Step {
        if self.expired(now) {
            return self.end(End::Deadline);
        }
        if !self.is_owed()
            && let Some(launch) = self.replace.pop()
        {
            return self.request(launch.kind, launch.previous, Some(launch.id));
        }
        match self.next {
            Next::Hedge { at, trigger } if at <= now => {
                if self.may_hedge() {
                    return self.ask(Ask::Hedge(trigger));
                }
                self.next = Next::Nothing;
            }
            Next::Retry { at } if at <= now => return self.launch(Kind::Retry),
            _ => {}
        }
        let due = match self.next {
            Next::Hedge { at, .. } | Next::Retry { at } => Some(at),
            _ => None,
        };
        let until = match (due, self.rules.deadline) {
            (Some(due), Some(deadline)) => Some(due.min(deadline)),
            (due, deadline) => due.or(deadline),
        };
        Step::Wait { until }
    }

    fn launch(&mut self, kind: Kind) -> Step {
        let previous = self.charged;
        self.charged += 1;
        self.hedges += u32::from(kind == Kind::Hedge);
        self.not_before = None;
        self.request(kind, previous, None)
    }

    fn request(&mut self, kind: Kind, previous: u32, replaces: Option<AttemptId>) -> Step {
        let launch = Launch {
            id: self.launches,
            previous,
            kind,
            replaces,
        };
        self.launches += 1;
        self.next = Next::Launching(launch);
        Step::Launch(launch)
    }

    fn ask(&mut self, ask: Ask) -> Step {
        self.next = Next::Asking(ask);
        Step::Ask(ask)
    }

    fn end(&mut self, end: End) -> Step {
        self.ended = true;
        self.next = Next::Nothing;
        Step::End(end)
    }

    /// Whether one more attempt may start while another is in flight. One that waits for its
    /// replacement keeps its place.
    fn may_hedge(&self) -> bool {
        self.has_room(self.replace.len() as u32 + self.in_flight)
    }

    /// Whether one more attempt fits beside those that are `taken`.
    fn has_room(&self, taken: u32) -> bool {
        self.rules.hedging
            && !self.stopped
            && taken < self.rules.max_concurrent
            && self.hedges < self.rules.max_hedges
            && self.charged < self.rules.max_attempts
    }

    /// Whether one more attempt may start at the instant with no other in flight.
    fn may_retry(&self, at: Duration) -> bool {
        (self.rules.retries || self.rules.eager)
            && !self.stopped
            && self.charged < self.rules.max_attempts
            && !self.beyond_deadline(at)
    }

    /// Whether a question or a launch is out.
    fn is_owed(&self) -> bool {
        matches!(self.next, Next::Asking(_) | Next::Launching(_))
    }

    fn not_sooner(&self, at: Duration) -> Duration {
        self.not_before.map_or(at, |pushback| at.max(pushback))
    }

    fn expired(&self, now: Duration) -> bool {
        self.rules.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// An attempt that would start at or after the deadline is not worth waiting for.
    fn beyond_deadline(&self, at: Duration) -> bool {
        self.rules.deadline.is_some_and(|deadline| deadline <= at)
    }
}
