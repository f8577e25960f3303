//! The future that performs a race's steps on a host.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::machine::{Ask, End, Event, Launch, Race, Rules, Step, Verdict};

/// What the driver needs of the world: it launches, answers and judges, and is told what
/// became of each attempt. One host serves one call.
///
/// Nothing here is async and no lock is held by the driver: a host may call back into
/// whatever it likes.
pub trait Host {
    /// One attempt on its way. Dropping it cancels it.
    type Attempt: Future<Output = Self::Reply> + Unpin;
    /// What an attempt ends with.
    type Reply;
    /// What a further attempt that may start still waits for. Dropped if the race ends first.
    type Wait: Future<Output = ()> + Unpin;
    /// Finds out when a hedge is due, from the newest launch. Dropped as soon as nobody needs to
    /// know any more.
    type Delay: Future<Output = Result<Duration, Self::Error>> + Unpin;
    /// Why that cannot be found out: it ends the race.
    type Error;

    /// Starts an attempt, or finds no endpoint for it.
    fn launch(&mut self, now: Duration, launch: Launch) -> Option<Launched<Self::Attempt>>;

    /// Finds out when a hedge is due after the attempt that was just launched without a
    /// `hedge_after`, where one could follow. `None` is never.
    fn delay(&mut self, now: Duration, launch: &Launch) -> Option<Self::Delay>;

    /// A hedge is due `delay` after the newest launch, as [`Host::delay`] has found out.
    fn delayed(&mut self, delay: Duration);

    /// Says whether a further attempt may start. A yes has reserved what it needs.
    fn ask(&mut self, now: Duration, ask: Ask) -> Asked<Self::Wait>;

    /// The attempt of the last yes does not start after all, though the race goes on: what was
    /// reserved for it goes back.
    fn withdraw(&mut self, now: Duration);

    /// Judges a finished attempt, and records it.
    ///
    /// An attempt that was not processed is a [`Verdict::Unsent`] whether or not `race`
    /// [would replace](Race::would_replace) it; where it would not, it is a failure to count.
    fn judge(
        &mut self,
        now: Duration,
        launch: &Launch,
        reply: &mut Self::Reply,
        race: &Race,
    ) -> Verdict;

    /// Takes an attempt that the race has no more use for: it is dropped, or detached.
    fn discard(&mut self, now: Duration, launch: Launch, attempt: Self::Attempt, why: Gone);
}

/// A host that somebody else keeps: it need not move with the race.
impl<H: Host> Host for &mut H {
    type Attempt = H::Attempt;
    type Reply = H::Reply;
    type Wait = H::Wait;
    type Delay = H::Delay;
    type Error = H::Error;

    fn launch(&mut self, now: Duration, launch: Launch) -> Option<Launched<Self::Attempt>> {
        H::launch(self, now, launch)
    }

    fn delay(&mut self, now: Duration, launch: &Launch) -> Option<H::Delay> {
        H::delay(self, now, launch)
    }

    fn delayed(&mut self, delay: Duration) {
        H::delayed(self, delay);
    }

    fn ask(&mut self, now: Duration, ask: Ask) -> Asked<H::Wait> {
        H::ask(self, now, ask)
    }

    fn withdraw(&mut self, now: Duration) {
        H::withdraw(self, now);
    }

    fn judge(
        &mut self,
        now: Duration,
        launch: &Launch,
        reply: &mut Self::Reply,
        race: &Race,
    ) -> Verdict {
        H::judge(self, now, launch, reply, race)
    }

    fn discard(&mut self, now: Duration, launch: Launch, attempt: Self::Attempt, why: Gone) {
        H::discard(self, now, launch, attempt, why);
    }
}

/// A launched attempt.
#[derive(Debug)]
pub struct Launched<A> {
    /// The attempt.
    pub attempt: A,
    /// When a hedge is due, from now. `None` is never, or as [`Host::delay`] says.
    pub hedge_after: Option<Duration>,
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes. A retry waits this long first, unless the server's pushback fixed its wait.
    Granted(Duration),
    /// No.
    Held,
}

/// An [`Answer`], or a yes that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<W> {
    /// At once.
    Now(Answer),
    /// Yes, as soon as this has ended, or an attempt has failed. The race goes on meanwhile, and
    /// a retry does not wait any further.
    After(W),
}

/// Why an attempt in flight is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Another attempt ended the race.
    Lost,
    /// The deadline passed.
    Deadline,
    /// The caller went away, or cannot be served.
    CallerGone,
}

/// A finished race.
#[derive(Debug)]
pub struct Over<H: Host> {
    /// The host, with what it has noted.
    pub host: H,
    /// How it ended.
    pub end: End,
    /// The result that the call ends with, where an attempt made one.
    pub reply: Option<H::Reply>,
    /// What it ended with where it broke.
    pub error: Option<H::Error>,
    /// When it ended, since the start of the call.
    pub at: Duration,
}

pin_project! {
    /// Drives one race to its end.
    ///
    /// # Cancel safety
    /// Dropping it hands every attempt in flight to [`Host::discard`] with
    /// [`Gone::CallerGone`].
    #[must_use = "a race runs only while it is polled"]
    pub struct Drive<H: Host> {
        race: Race,
        // `None` only after the end.
        host: Option<H>,
        started: Instant,
        // The original attempt stays out of the vector, which a call that is not hedged
        // therefore never allocates.
        first: Option<(Launch, H::Attempt)>,
        others: Vec<(Launch, H::Attempt)>,
        last_failure: Option<H::Reply>,
        waiting: Option<H::Wait>,
        delay: Option<(Duration, H::Delay)>,
        error: Option<H::Error>,
        step: Option<Step>,
        // The original was launched by somebody else, and not polled since.
        launched: bool,
        #[pin]
        sleep: Option<Sleep>,
        sleep_until: Option<Duration>,
    }

    impl<H: Host> PinnedDrop for Drive<H> {
        fn drop(this: Pin<&mut Self>) {
            this.abandon();
        }
    }
}

impl<H: Host> Drive<H> {
    /// A race that starts when first polled. `started` is the call's own start: its deadline
    /// and thresholds count from there.
    pub fn new(host: H, rules: Rules, started: Instant) -> Self {
        Self {
            race: Race::new(rules),
            host: Some(host),
            started,
            first: None,
            others: Vec::new(),
            last_failure: None,
            waiting: None,
            delay: None,
            error: None,
            step: None,
            launched: false,
            sleep: None,
            sleep_until: None,
        }
    }

    /// A race whose [original](Launch::ORIGINAL) was launched `at` then, before its deadline, without
    /// a race: a call needs none until something is to be decided. It goes on as if it had launched
    /// the original itself; [`Host::delay`] is not asked about it.
    pub fn resumed(
        host: H,
        rules: Rules,
        started: Instant,
        at: Duration,
        original: Launched<H::Attempt>,
    ) -> Self {
        let mut drive = Self::new(host, rules, started);
        let Launched {
            attempt,
            hedge_after,
        } = original;
        let first = drive.race.on(at, Event::Start);
        debug_assert_eq!(first, Step::Launch(Launch::ORIGINAL));
        drive.first = Some((Launch::ORIGINAL, attempt));
        drive.step = Some(drive.race.on(at, Event::Launched { hedge_after }));
        drive.launched = true;
        drive
    }

    fn abandon(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(host) = this.host else { return };
        let now = this.started.elapsed();
        this.race.on(now, Event::CallerGone);
        for (launch, attempt) in this.first.take().into_iter().chain(this.others.drain(..)) {
            host.discard(now, launch, attempt, Gone::CallerGone);
        }
    }
}

impl<H: Host> Future for Drive<H> {
    type Output = Over<H>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.as_mut().project();
        let mut now = this.started.elapsed();
        // The question that is put when all attempts that have ended are judged.
        let mut asked = None;
        // A threshold of zero asks before the attempt just launched is polled, so that all
        // that may start do, even if the original answers at once.
        let mut launched = std::mem::take(this.launched);
        let mut cut_short = false;
        let mut step = match this.step.take() {
            Some(step) => step,
            None => this.race.on(now, Event::Start),
        };
        loop {
            let host = this.host.as_mut();
            #[allow(clippy::expect_used)] // The contract of `Future`, as the standard library's.
            let host = host.expect("a finished race was polled again");
            // Attempts that end in one poll all count before a question is put: where one of
            // them has an answer no hedge is needed.
            let ended = match step {
                Step::Ask(_) if launched => None,
                Step::Ask(_) | Step::Wait { .. } => poll_attempts(this.first, this.others, cx),
                _ => None,
            };
            if let Some((launch, mut reply)) = ended {
                if let Step::Ask(ask) = step {
                    asked = Some(ask);
                }
                now = this.started.elapsed();
                let verdict = host.judge(now, &launch, &mut reply, this.race);
                // What failed is retried, replaced or told at once, whatever a yes waits for.
                cut_short |= verdict != Verdict::Answer;
                *this.last_failure = Some(reply);
                step = this.race.on(now, Event::Finished { launch, verdict });
                continue;
            }
            let event = match step {
                Step::Launch(launch) => match host.launch(now, launch) {
                    Some(Launched {
                        attempt,
                        mut hedge_after,
                    }) => {
                        *this.delay = None;
                        let mut broken = None;
                        if hedge_after.is_none()
                            && this.race.wants_delay()
                            && let Some(mut delay) = host.delay(now, &launch)
                        {
                            // One that knows at once is as good as a number.
                            match Pin::new(&mut delay).poll(cx) {
                                Poll::Ready(Ok(delay)) => {
                                    host.delayed(delay);
                                    hedge_after = Some(delay);
                                }
                                Poll::Ready(Err(error)) => broken = Some(error),
                                Poll::Pending => *this.delay = Some((now, delay)),
                            }
                        }
                        // Only an attempt that is alone may take the first place, so that
                        // the order of polling stays the order of launches.
                        match this.first {
                            None if this.others.is_empty() => {
                                *this.first = Some((launch, attempt));
                            }
                            _ => this.others.push((launch, attempt)),
                        }
                        match broken {
                            None => Event::Launched { hedge_after },
                            Some(error) => {
                                *this.error = Some(error);
                                Event::Broken
                            }
                        }
                    }
                    None => Event::Unplaced,
                },
                Step::Ask(ask) => {
                    *this.delay = None;
                    match host.ask(now, ask) {
                        Asked::Now(Answer::Granted(wait)) => Event::Granted { wait },
                        Asked::Now(Answer::Held) => Event::Held,
                        Asked::After(wait) => {
                            *this.waiting = Some(wait);
                            cut_short = false;
                            // The machine is owed the answer, and says what else there is to wait for.
                            Event::Tick
                        }
                    }
                }
                Step::Wait { until } => match asked.take() {
                    Some(ask) => {
                        step = Step::Ask(ask);
                        continue;
                    }
                    None if is_over(this.waiting, cut_short, cx) => {
                        now = this.started.elapsed();
                        Event::Granted {
                            wait: Duration::ZERO,
                        }
                    }
                    None => match poll_delay(this.delay, this.race, cx) {
                        Some(Ok((launched, delay))) => {
                            now = this.started.elapsed();
                            host.delayed(delay);
                            let at = launched.saturating_add(delay);
                            Event::HedgeDue { at }
                        }
                        Some(Err(error)) => {
                            now = this.started.elapsed();
                            *this.error = Some(error);
                            Event::Broken
                        }
                        None => {
                            let timer = Timer {
                                started: *this.started,
                                sleep: this.sleep.as_mut(),
                                until: this.sleep_until,
                            };
                            if timer.poll(until, cx).is_pending() {
                                *this.step = Some(step);
                                return Poll::Pending;
                            }
                            now = this.started.elapsed();
                            Event::Tick
                        }
                    },
                },
                Step::End(end) => {
                    let why = match end {
                        End::Deadline => Gone::Deadline,
                        End::Broken => Gone::CallerGone,
                        _ => Gone::Lost,
                    };
                    for (launch, attempt) in
                        this.first.take().into_iter().chain(this.others.drain(..))
                    {
                        host.discard(now, launch, attempt, why);
                    }
                    let reply = match end {
                        End::Answer(_) | End::Failed(_) => this.last_failure.take(),
                        _ => None,
                    };
                    *this.waiting = None;
                    *this.delay = None;
                    let Some(host) = this.host.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Over {
                        host,
                        end,
                        reply,
                        error: this.error.take(),
                        at: now,
                    });
                }
            };
            launched = matches!(event, Event::Launched { .. });
            let granted = matches!(event, Event::Granted { .. });
            step = this.race.on(now, event);
            if granted && !this.race.uses_grant() {
                host.withdraw(now);
            }
        }
    }
}

/// Whether there was something to wait for, and it has ended or is `cut_short`.
fn is_over<W: Future<Output = ()> + Unpin>(
    waiting: &mut Option<W>,
    cut_short: bool,
    cx: &mut Context<'_>,
) -> bool {
    let over = match waiting {
        Some(wait) => cut_short || Pin::new(wait).poll(cx).is_ready(),
        None => false,
    };
    if over {
        *waiting = None;
    }
    over
}

/// When the next hedge is due, if that has just turned out: the newest launch, and the delay.
#[allow(clippy::type_complexity)] // What is kept, and what it comes to.
fn poll_delay<D, E>(
    delay: &mut Option<(Duration, D)>,
    race: &Race,
    cx: &mut Context<'_>,
) -> Option<Result<(Duration, Duration), E>>
where
    D: Future<Output = Result<Duration, E>> + Unpin,
{
    let (launched, future) = delay.as_mut()?;
    let launched = *launched;
    // A failure has started the next attempt, or a server wants no more.
    let due = match race.wants_delay() {
        true => match Pin::new(future).poll(cx) {
            Poll::Pending => return None,
            Poll::Ready(due) => Some(due),
        },
        false => None,
    };
    *delay = None;
    due.map(|due| due.map(|delay| (launched, delay)))
}

/// Polls the attempts in the order of their launch, so that of two that are ready the older
/// one counts.
fn poll_attempts<A: Future + Unpin>(
    first: &mut Option<(Launch, A)>,
    others: &mut Vec<(Launch, A)>,
    cx: &mut Context<'_>,
) -> Option<(Launch, A::Output)> {
    if let Some((launch, attempt)) = first
        && let Poll::Ready(reply) = Pin::new(attempt).poll(cx)
    {
        let launch = *launch;
        *first = None;
        return Some((launch, reply));
    }
    for index in 0..others.len() {
        let (launch, attempt) = &mut others[index];
        if let Poll::Ready(reply) = Pin::new(attempt).poll(cx) {
            let launch = *launch;
            others.remove(index);
            return Some((launch, reply));
        }
    }
    None
}

/// The one timer of a call, for its threshold, its backoff and its deadline alike.
struct Timer<'a> {
    started: Instant,
    sleep: Pin<&'a mut Option<Sleep>>,
    until: &'a mut Option<Duration>,
}

impl Timer<'_> {
    fn poll(mut self, until: Option<Duration>, cx: &mut Context<'_>) -> Poll<()> {
        // A deadline past what the clock can express is none.
        let deadline = until.and_then(|until| self.started.checked_add(until));
        let (Some(until), Some(deadline)) = (until, deadline) else {
            self.sleep.set(None);
            *self.until = None;
            return Poll::Pending;
        };
        if *self.until != Some(until) {
            match self.sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.reset(deadline),
                None => self.sleep.set(Some(tokio::time::sleep_until(deadline))),
            }
            *self.until = Some(until);
        }
        match self.sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Pending,
        }
    }
}
