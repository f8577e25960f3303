//! The course of a call: its original alone, as long as there is nothing to decide.
//!
//! Nearly every call has one attempt, which is answered before a hedge is due. It lies in the call's
//! own allocation and is polled there, with one timer for its threshold and the call's deadline. As
//! soon as there is something to decide (the threshold or the deadline passes, the attempt fails, or
//! no endpoint is ready) the call becomes a race, which goes on from there.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use pin_project_lite::pin_project;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, body::Body};
use tonic_hedge_engine::race::{Drive, End, Gone, Host as _, Launch, Launched, Verdict};

use super::{
    DEADLINE_MESSAGE,
    attempt::{Attempt, Finished, Held, Reply, Until},
    body::{self, Collected, Looked, Rewind},
    expire, fail, finish,
    host::{CallHost, Placed, Unplaced},
    prototype::Source,
    running::{Ran, Running},
    timer::Timer,
    wire,
};

type Outcome = Result<Response<Body>, Status>;

pin_project! {
    /// A call on its way.
    ///
    /// # Cancel safety
    /// Dropping it hands the attempts in flight to their host, as those of a caller who has gone.
    pub(crate) struct Course {
        stage: Stage,
        // `None` once the call is raced.
        host: Option<CallHost>,
        // The first attempt while it is the only one.
        original: Option<Attempt>,
        // Until there is something to decide.
        #[pin]
        timer: Option<Timer>,
    }

    impl PinnedDrop for Course {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.original.is_some()
                && let (Some(host), Some(original)) = (this.host, this.original.take())
            {
                let running = Running::Sent(original);
                host.discard(host.elapsed(), Launch::ORIGINAL, running, Gone::CallerGone);
            }
        }
    }
}

enum Stage {
    /// Nobody has polled it yet. What is wrong with the request is told when the call is admitted.
    New(Result<(), Status>),
    /// The body comes in pieces.
    Collecting(Pin<Box<dyn Future<Output = Result<Collected, Status>> + Send>>),
    /// The body is there: the original can start.
    Ready,
    /// Its original is on its way.
    Alone,
    Raced(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Over,
}

/// How a request's body gets to its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// Every attempt can send all of it.
    Collected,
    /// One message, which is passed on. Nearly always it is there at once; then it goes out as the one
    /// frame that it is, with the end of the stream.
    Passed,
    /// A stream is passed on, never kept.
    Streamed,
}

/// What a call starts with.
#[allow(clippy::large_enum_variant)] // Moved once, within one poll.
enum Start {
    /// The original is on its way, and this is when there is something to decide.
    Alone(Option<Instant>),
    Race(Since),
    /// The deadline has passed.
    Expired,
}

/// How far a call was when it became a race.
#[allow(clippy::large_enum_variant)] // As above.
enum Since {
    /// Nothing is launched.
    Start,
    /// The original found no endpoint.
    Unplaced,
    /// The original was launched at this time.
    Launched(Duration, Launched<Running>),
}

impl Course {
    pub(crate) fn new(host: CallHost, right: Result<(), Status>) -> Self {
        Self {
            stage: Stage::New(right),
            host: Some(host),
            original: None,
            timer: None,
        }
    }
}

impl Future for Course {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut this = self.as_mut().project();
        loop {
            let Some(host) = this.host.as_mut() else {
                // The host is with the race.
                return match this.stage {
                    Stage::Raced(race) => race.as_mut().poll(cx),
                    _ => Poll::Pending,
                };
            };
            let since = match this.stage {
                Stage::New(right) => {
                    let right = std::mem::replace(right, Ok(()));
                    *this.stage = match host.admit(right) {
                        Ok(how) => host.read(how, cx),
                        Err((status, at)) => {
                            *this.stage = Stage::Over;
                            return Poll::Ready(Err(fail(host, at, status)));
                        }
                    };
                    continue;
                }
                Stage::Collecting(work) => {
                    let collected = ready!(work.as_mut().poll(cx));
                    match host.collected(collected) {
                        Ok(()) => *this.stage = Stage::Ready,
                        Err(status) => {
                            *this.stage = Stage::Over;
                            return Poll::Ready(Err(fail(host, host.elapsed(), status)));
                        }
                    }
                    continue;
                }
                Stage::Ready => match host.launch_alone(this.original) {
                    Start::Alone(due) => {
                        *this.stage = Stage::Alone;
                        if host.threshold == Some(Duration::ZERO) {
                            launched(host, this.original)
                        } else {
                            this.timer.set(due.map(Timer::until));
                            continue;
                        }
                    }
                    Start::Race(since) => since,
                    Start::Expired => {
                        *this.stage = Stage::Over;
                        return Poll::Ready(Err(expire(host, host.elapsed())));
                    }
                },
                Stage::Alone => {
                    let Some(original) = this.original.as_mut() else {
                        return Poll::Pending;
                    };
                    match original.poll_reply(cx) {
                        Poll::Ready(reply) => {
                            let Some(held) = original.take_held() else {
                                return Poll::Pending;
                            };
                            *this.original = None;
                            if host.is_plain(&reply) {
                                *this.stage = Stage::Over;
                                this.timer.set(None);
                                return Poll::Ready(answered(host, reply, held));
                            }
                            let at = host.launched_at(&held);
                            let attempt = Running::Ended(Some(Finished { reply, held }));
                            let launched = Launched {
                                attempt,
                                hedge_after: host.threshold,
                            };
                            Since::Launched(at, launched)
                        }
                        Poll::Pending => {
                            let Some(timer) = this.timer.as_mut().as_pin_mut() else {
                                return Poll::Pending;
                            };
                            ready!(timer.poll(cx));
                            launched(host, this.original)
                        }
                    }
                }
                Stage::Raced(_) | Stage::Over => return Poll::Pending,
            };
            this.timer.set(None);
            if let Some(host) = this.host.take() {
                *this.stage = Stage::Raced(Box::pin(race(host, since)));
            }
        }
    }
}

/// The original as a race takes it.
fn launched(host: &CallHost, original: &mut Option<Attempt>) -> Since {
    let taken = original.take();
    match taken.and_then(|it| Some((host.launched_at(it.held()?), it))) {
        None => Since::Start,
        Some((at, original)) => Since::Launched(
            at,
            Launched {
                attempt: Running::Sent(original),
                hedge_after: host.threshold,
            },
        ),
    }
}

/// The original's answer is the call's.
fn answered(host: &mut CallHost, reply: Reply, mut held: Held) -> Outcome {
    let now = host.elapsed();
    match &reply {
        Reply::Open(response) => {
            let enough = response.body().enough;
            host.judge_open(now, &Launch::ORIGINAL, &mut held, enough);
        }
        Reply::Complete(complete) => {
            let verdict = host.judge_complete(now, &Launch::ORIGINAL, &mut held, complete);
            debug_assert_eq!(verdict, Verdict::Answer);
        }
        Reply::Fault(_) => {}
    }
    finish(host, reply, held, now)
}

impl CallHost {
    /// Admits the call, and counts it; or says why not, and when.
    fn admit(&mut self, right: Result<(), Status>) -> Result<How, (Status, Duration)> {
        // Nothing is sent, and nothing charged, for a deadline that has passed already.
        if self.terms.deadline == Some(Duration::ZERO) {
            let status = Status::deadline_exceeded(DEADLINE_MESSAGE);
            return Err((status, Duration::ZERO));
        }
        let now = self.clock(Duration::ZERO);
        if let Some(circuit) = self.method.circuit() {
            let probe = circuit.admit(now).map_err(|retry_after| {
                let message = format!("{}: the circuit breaker is open", circuit.name());
                let status = wire::unavailable_until(message, retry_after);
                (status, Duration::ZERO)
            })?;
            self.probe = probe.map(Box::new);
        }
        self.shared.ensure_started();
        self.shared.budget().deposit(now);
        self.method.stats().called();
        right.map_err(|status| (status, self.elapsed()))?;
        Ok(self.terms.body)
    }

    /// Takes what is there of the request's body.
    fn read(&mut self, how: How, cx: &mut Context<'_>) -> Stage {
        let read = Source::Whole(Default::default());
        let Source::Unread(body) = std::mem::replace(&mut self.prototype.body, read) else {
            return Stage::Ready;
        };
        let limit = self.shared.buffer_limit();
        let source = match how {
            How::Streamed => Source::Passing(Rewind::new(Default::default(), body, 0)),
            How::Passed => match body::look(body, limit, cx) {
                Looked::Whole(bytes) => Source::Whole(bytes),
                Looked::More(more) => Source::Passing(Rewind::more(more, limit)),
            },
            How::Collected => match body::look(body, limit, cx) {
                Looked::Whole(bytes) => Source::Whole(bytes),
                Looked::More(more) => {
                    let expires = self.expires();
                    return Stage::Collecting(Box::pin(async move {
                        before(expires, body::collect(more, limit)).await?
                    }));
                }
            },
        };
        self.prototype.body = source;
        Stage::Ready
    }

    fn collected(&mut self, collected: Result<Collected, Status>) -> Result<(), Status> {
        self.prototype.body = match collected? {
            Collected::Whole(bytes) => Source::Whole(bytes),
            Collected::Over(read, rest) => {
                self.terms.repeatable = Err("body over the buffer limit");
                self.terms.until = Until::Head;
                Source::Passing(Rewind::new(read, rest, 0))
            }
        };
        Ok(())
    }

    /// Launches the original, and puts it into its place.
    fn launch_alone(&mut self, original: &mut Option<Attempt>) -> Start {
        let rules = self.rules();
        if !rules.hedging {
            self.report_at_start();
        }
        if rules.hedging && self.is_timed_by_user() {
            return Start::Race(Since::Start);
        }
        let at = self.elapsed();
        if rules.deadline.is_some_and(|deadline| deadline <= at) {
            return Start::Expired;
        }
        match self.launch_into(at, Launch::ORIGINAL, original) {
            Some(Placed::Sent) => {}
            Some(Placed::Waits(waiting)) => {
                let launched = Launched {
                    attempt: Running::Waiting(waiting),
                    hedge_after: None,
                };
                return Start::Race(Since::Launched(at, launched));
            }
            None => return Start::Race(Since::Unplaced),
        }
        // As the race has it: no hedge without room for it.
        let hedge_at = self
            .threshold
            .filter(|_| rules.hedging && rules.max_concurrent > 1)
            .map(|delay| at.saturating_add(delay));
        let due = match (hedge_at, rules.deadline) {
            (Some(hedge_at), Some(deadline)) => Some(hedge_at.min(deadline)),
            (hedge_at, deadline) => hedge_at.or(deadline),
        };
        // One past what the clock can express is none.
        Start::Alone(due.and_then(|due| self.began().checked_add(due)))
    }

    /// Whether the reply is an answer without a question: nothing that a race, or the user's own
    /// classifier, has a say in.
    fn is_plain(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Open(_) => true,
            Reply::Complete(complete) => {
                complete.code == Code::Ok && self.method.classifier().is_none()
            }
            Reply::Fault(_) => false,
        }
    }
}

/// Drives the race; again while no endpoint has become ready yet.
async fn race(mut host: CallHost, since: Since) -> Outcome {
    let shared = std::sync::Arc::clone(&host.shared);
    let expires = host.expires();
    let mut since = Some(since);
    let mut changed = None;
    loop {
        match since.take() {
            Some(Since::Unplaced) => {}
            since => {
                let (rules, began) = (host.rules(), host.began());
                let over = match since {
                    Some(Since::Launched(at, original)) => {
                        Drive::resumed(&mut host, rules, began, at, original).await
                    }
                    _ => Drive::new(&mut host, rules, began).await,
                };
                let (end, reply, error, at) = (over.end, over.reply, over.error, over.at);
                if let Some(error) = error {
                    let at = host.elapsed();
                    return Err(fail(&mut host, at, Status::from_error(error)));
                }
                if end != End::Unplaced {
                    return ended(&mut host, reply, at);
                }
            }
        }
        let status = match host.take_unplaced() {
            Some(Unplaced::NotYet) => match changed.take() {
                // Listens first, then looks again: no change in between is missed.
                None => {
                    changed = Some(shared.endpoints().changed());
                    continue;
                }
                Some(changed) => match before(expires, changed).await {
                    Ok(()) => continue,
                    Err(status) => status,
                },
            },
            Some(Unplaced::Never(why)) => Status::unavailable(why.to_string()),
            None => Status::internal("the request's body was lost before it was sent"),
        };
        let at = host.elapsed();
        return Err(fail(&mut host, at, status));
    }
}

/// Makes the call's result of what the race ended with.
fn ended(host: &mut CallHost, reply: Option<Ran>, at: Duration) -> Outcome {
    match reply {
        Some(Ran::Finished(Finished { reply, held })) => finish(host, reply, held, at),
        Some(Ran::Place(_)) => {
            let status = match host.take_unplaced() {
                Some(Unplaced::Never(why)) => Status::unavailable(why.to_string()),
                _ => Status::unavailable("connections were lost again and again"),
            };
            Err(fail(host, at, status))
        }
        None => Err(expire(host, at)),
    }
}

async fn before<T>(expires: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Status> {
    match expires {
        None => Ok(work.await),
        Some(at) => timeout_at(at, work)
            .await
            .map_err(|_| Status::deadline_exceeded(DEADLINE_MESSAGE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A larger one is one of glibc's large chunks. With many calls in flight, of which its cache keeps
    /// seven, each of those is looked for where all that was freed lately is swept up first.
    #[test]
    fn a_calls_future_is_no_large_chunk() {
        assert!(size_of::<Course>() <= 1000, "{}", size_of::<Course>());
    }
}
