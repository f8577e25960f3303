//! The world of one race: where its attempts go, what they cost, and what is learnt of them.

mod ask;
mod further;
mod hedges;
mod judge;
mod launch;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;
use tonic_hedge_engine::{
    measure::Probe,
    plan::Planner,
    policy::{Hedge, RequestView, Timing, Upcoming},
    race::{
        Answer, Ask, Asked, AttemptId, Gone, Host, Launch, Launched, Race, Trigger, Unsent, Verdict,
    },
};

use self::further::Further;
pub(crate) use self::launch::{Placed, Unplaced};
use super::{
    attempt::{Finished, Held, Reply, Until},
    body::Sending,
    course::How,
    loser::{self, Disposed},
    prototype::{Prototype, Source},
    running::{Ran, Running},
};
use crate::{
    channel::Shared,
    criticality::Criticality,
    endpoint::Endpoint,
    hooks::{BoxError, Delaying, View},
    log::{AttemptOutcome, CallLogBuilder},
    method::{HedgeEnd, Method},
    telemetry::{AttemptEnd, CallTelemetry},
};

/// A call's own view of what applies to it.
pub(crate) struct Terms {
    /// The hedging policy, if one applies.
    pub(crate) hedge: Option<Arc<Hedge>>,
    /// The method's own would, were the call not part of a hedge.
    pub(crate) held: bool,
    /// Whether the call may be repeated, and why, or why not.
    pub(crate) repeatable: Result<&'static str, &'static str>,
    pub(crate) criticality: Criticality,
    /// From the start of the call.
    pub(crate) deadline: Option<Duration>,
    pub(crate) until: Until,
    pub(crate) body: How,
}

/// One call's host.
pub(crate) struct CallHost {
    pub(super) shared: Arc<Shared>,
    pub(super) method: Arc<Method>,
    pub(super) terms: Terms,
    pub(super) prototype: Prototype,
    /// The call's start, on the channel's clock.
    started: Duration,
    pub(super) telemetry: CallTelemetry,
    log: CallLogBuilder,
    /// The endpoints that the call uses or has used.
    tried: SmallVec<[Arc<Endpoint>; 2]>,
    /// The half-open breaker's one call.
    pub(super) probe: Option<Box<Probe>>,
    /// When a hedge is due after the newest launch, where that is known.
    pub(super) threshold: Option<Duration>,
    further: Option<Box<Further>>,
}

/// What a call's host leaves behind, apart from its telemetry.
pub(crate) struct Ending {
    pub(crate) log: CallLogBuilder,
    /// Not used up where the result is not judged yet.
    pub(crate) probe: Option<Probe>,
    /// The hedge whose answer became the call's, and its threshold.
    pub(crate) hedge_won: Option<(AttemptId, Option<Duration>)>,
    pub(crate) sending: Sending,
}

impl CallHost {
    pub(crate) fn new(
        shared: Arc<Shared>,
        method: Arc<Method>,
        terms: Terms,
        prototype: Prototype,
        started: Duration,
        telemetry: CallTelemetry,
    ) -> Self {
        Self {
            shared,
            method,
            terms,
            prototype,
            started,
            telemetry,
            log: CallLogBuilder::default(),
            tried: SmallVec::new(),
            probe: None,
            threshold: None,
            further: None,
        }
    }

    fn further(&mut self) -> &mut Further {
        self.further.get_or_insert_default()
    }

    /// Why the original found no endpoint.
    pub(super) fn take_unplaced(&mut self) -> Option<Unplaced> {
        self.further.as_mut()?.unplaced.take()
    }

    /// Ends it: what is left to be told goes to whoever tells the call's result.
    pub(crate) fn end(&mut self) -> Ending {
        self.log.tell_losers(self.method.name());
        let read = Source::Whole(Bytes::new());
        Ending {
            log: std::mem::take(&mut self.log),
            probe: self.probe.take().map(|it| *it),
            hedge_won: self
                .further
                .as_ref()
                .and_then(|it| Some((it.winner?, self.threshold))),
            sending: match std::mem::replace(&mut self.prototype.body, read) {
                Source::Whole(bytes) => Sending::Whole(bytes.len()),
                Source::Passing(rewind) => Sending::Passing(rewind),
                Source::Unread(_) => Sending::Whole(0),
            },
        }
    }

    /// The time since the call's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.now().saturating_sub(self.started)
    }

    /// The call's start.
    pub(super) fn began(&self) -> Instant {
        self.shared.instant(self.started)
    }

    /// An attempt's launch, as the race counts: since the call's start.
    pub(super) fn launched_at(&self, held: &Held) -> Duration {
        held.ticket.launched().saturating_sub(self.started)
    }

    /// Whether a stream's first message ends the race.
    pub(crate) fn races_for_message(&self) -> bool {
        matches!(self.terms.until, Until::Message)
    }

    /// `now` of the race, on the channel's clock.
    #[inline]
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        self.started + now
    }

    #[inline]
    fn time_left(&self, now: Duration) -> Option<Duration> {
        self.terms
            .deadline
            .map(|deadline| deadline.saturating_sub(now))
    }

    /// When a hedge is due after a launch.
    fn hedge_after(&mut self, now: Duration) -> Option<Duration> {
        if self.may_hedge() {
            self.threshold = self.due_after(now);
        }
        self.threshold
    }

    fn due_after(&self, now: Duration) -> Option<Duration> {
        let hedge = self.terms.hedge.as_ref()?;
        let endpoint = self.tried.last()?;
        let measured = self.method.measured(hedge, self.clock(now), endpoint);
        hedge.threshold(measured)
    }

    /// What was reserved for an attempt that is not launched goes back: its token, its place, and its
    /// part of the plan.
    fn withdraw(&mut self, now: Duration) {
        if let Some(further) = &mut self.further {
            further.granted = None;
            further.place = None;
        }
        self.disallow(now);
    }

    /// What the plan has allowed, and was not launched, goes back.
    fn disallow(&mut self, now: Duration) {
        if let Some(further) = &mut self.further
            && std::mem::take(&mut further.allowed)
        {
            self.plan(now, Planner::give_back);
        }
    }

    /// With the plan that times this call's hedge, if one does: that of the place where its first
    /// attempt went.
    fn plan<T>(&self, now: Duration, with: impl FnOnce(&Planner) -> T) -> Option<T> {
        let (hedge, first) = (self.terms.hedge.as_ref()?, self.tried.first()?);
        self.method.plan(hedge, self.clock(now), first, with)
    }
}

impl Drop for CallHost {
    /// The call may have ended while the hedge still waited for its observer.
    fn drop(&mut self) {
        self.disallow(Duration::ZERO);
    }
}

impl Host for CallHost {
    type Attempt = Running;
    type Reply = Ran;
    type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;
    type Delay = Delaying;
    type Error = BoxError;

    fn launch(&mut self, now: Duration, launch: Launch) -> Option<Launched<Running>> {
        let mut sent = None;
        let (attempt, hedge_after) = match self.launch_into(now, launch, &mut sent)? {
            Placed::Sent => (Running::Sent(sent?), self.threshold),
            Placed::Waits(waiting) => (Running::Waiting(waiting), None),
        };
        Some(Launched {
            attempt,
            hedge_after,
        })
    }

    fn delay(&mut self, now: Duration, launch: &Launch) -> Option<Delaying> {
        // The delay counts from when it is sent.
        if self.further.as_ref().is_some_and(|it| it.waits) {
            return None;
        }
        let Timing::With(delay) = &self.terms.hedge.as_ref()?.timing else {
            return None;
        };
        let further = self.further.get_or_insert_default();
        let view = further.view.get_or_insert_with(|| {
            Arc::new(View {
                method: self.method.name().into(),
                headers: self.prototype.headers(),
            })
        });
        let request = Arc::clone(view) as Arc<dyn RequestView>;
        let upcoming = Upcoming::new(launch.previous + 1, now, request);
        Some(Delaying::of(delay, upcoming))
    }

    fn delayed(&mut self, delay: Duration) {
        self.threshold = Some(delay);
    }

    fn withdraw(&mut self, now: Duration) {
        Self::withdraw(self, now);
    }

    fn ask(&mut self, now: Duration, ask: Ask) -> Asked<Self::Wait> {
        self.withdraw(now);
        let answer = match ask {
            Ask::Hedge(trigger) => self.ask_hedge(now, trigger),
            Ask::Retry { backoff } => self.ask_retry(now, backoff),
        };
        let outran = match ask {
            Ask::Hedge(Trigger::Threshold) => self.threshold,
            _ => None,
        };
        self.further().outran = outran;
        let observing = match (ask, answer) {
            (Ask::Hedge(_), Answer::Granted(_)) => {
                self.telemetry.before_hedge(self.log.count(), outran, now)
            }
            _ => None,
        };
        observing.map_or(Asked::Now(answer), Asked::After)
    }

    fn judge(&mut self, now: Duration, launch: &Launch, ran: &mut Ran, race: &Race) -> Verdict {
        let Finished { reply, held } = match ran {
            Ran::Finished(finished) => finished,
            Ran::Place(place) => {
                // Of one that is not replaced it goes back.
                let loan = place.loan.take();
                if race.would_replace(now, Unsent::NeverSent) {
                    self.further().unsent.extend(loan);
                }
                self.further().waited = Some(place.purpose);
                return Verdict::Unsent(Unsent::NeverSent);
            }
        };
        match reply {
            Reply::Open(response) => {
                let enough = response.body().enough;
                self.judge_open(now, launch, held, enough);
                Verdict::Answer
            }
            Reply::Complete(complete) => self.judge_complete(now, launch, held, complete),
            Reply::Fault(fault) => self.judge_fault(now, launch, held, fault, race),
        }
    }

    fn discard(&mut self, now: Duration, launch: Launch, running: Running, why: Gone) {
        let Running::Sent(attempt) = running else {
            return;
        };
        let (rest, held) = attempt.into_rest();
        let Some(mut held) = held else { return };
        let left = self.time_left(now);
        let clock = self.clock(now);
        let elapsed = held.ticket.elapsed(clock);
        // An original that was cut off takes at least this long. Of one whose caller left before
        // the threshold that says nothing about the quantile.
        // A call that is never hedged has not asked for it before.
        let threshold = match self.may_hedge() {
            true => self.threshold,
            false => self.due_after(now),
        };
        let past = threshold.is_some_and(|threshold| elapsed >= threshold);
        if why != Gone::CallerGone || past {
            self.learn_cut(now, &launch, &held, elapsed);
        }
        if why == Gone::Deadline {
            held.telemetry.end(AttemptEnd::Expired, clock);
            // One failure for the call, however many attempts it has: hedging must not trip
            // the breaker sooner.
            if !std::mem::replace(&mut self.further().timed_out, true) {
                self.record(clock.saturating_sub(elapsed), clock, true);
            }
            self.report_deadline(now, &launch, elapsed);
        }
        let end = match why {
            Gone::Lost => HedgeEnd::Lost,
            Gone::Deadline | Gone::CallerGone => HedgeEnd::Abandoned,
        };
        self.hedge_ended(&launch, end);
        let disposed = loser::dispose(rest, held, self.prototype.body.upload(), left);
        let outcome = match disposed {
            Disposed::Reset => AttemptOutcome::Discarded,
            Disposed::Detached => AttemptOutcome::Detached,
        };
        self.log.ended(launch.id, outcome, now);
        if self.further.as_ref().is_some_and(|it| it.hedges.is_some()) {
            self.telemetry.discarded(self.threshold, launch.id);
        }
    }
}
