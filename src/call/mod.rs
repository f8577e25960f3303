//! One call, from the request to the answer.
//!
//! [`call`] looks up what applies, then the body is collected or passed on, a race is driven over
//! a [`host::CallHost`], and what it ends with becomes the response.

mod attempt;
mod body;
mod classify;
mod deadline;
mod fault;
#[cfg(feature = "__fuzz")]
pub(crate) mod fuzz;
mod host;
mod loser;
mod messages;
mod running;
mod tail;
mod ticket;
mod wire;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Status, body::Body};
use tonic_hedge_engine::{
    measure::Probe,
    policy::Timing,
    race::{Drive, End, MAX_UNSENT, Rules},
};

pub(crate) use classify::Codes;

use self::{
    attempt::{Finished, Reply, Until},
    body::{Collected, Rewind},
    host::{CallHost, Ending, Prototype, Source, Terms, Unplaced},
    running::Ran,
    tail::{Kept, Open, Tail},
};
use crate::{
    channel::Shared,
    criticality::Criticality,
    log::CallLogBuilder,
    method::{Method, Shape},
    request::{Hedging, Overrides},
    telemetry::CallTelemetry,
};

/// The text of a deadline that passed here, as against one that a server reports.
const DEADLINE_MESSAGE: &str = "the call's deadline passed before an answer came";

/// A call's future, as the channel returns it.
pub(crate) type CallFuture =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send + 'static>>;

/// Starts a call. What must be taken where the application calls is taken here: the clock,
/// and the context that its spans hang under.
pub(crate) fn call(shared: &Arc<Shared>, request: Request<Body>) -> CallFuture {
    let started = Instant::now();
    let (method, name) = shared.methods().find(request.uri().path());
    let method = Arc::clone(method);
    let telemetry = method
        .telemetry()
        .start_call(name, shared.since_epoch(started));
    let asked = deadline::read(request.headers());
    let timeout = shared.methods().timeout(&method, name);
    // The smaller of both; `None` is none.
    let deadline = match (asked, timeout) {
        (Some(asked), Some(timeout)) => Some(asked.min(timeout)),
        (asked, timeout) => asked.or(timeout),
    };
    let call = Call {
        deadline,
        shortened: deadline != asked,
        shared: Arc::clone(shared),
        method,
        started,
        ambient: Criticality::current(),
    };
    // One future and no layers: each would hold the request once more, and all of it is moved
    // into the box.
    Box::pin(call.run(request, telemetry))
}

/// What one call is made of, apart from its request.
struct Call {
    shared: Arc<Shared>,
    method: Arc<Method>,
    started: Instant,
    deadline: Option<Duration>,
    /// The deadline is sooner than the caller's, and is to be sent in its place.
    shortened: bool,
    /// Of the task that calls.
    ambient: Option<Criticality>,
}

impl Call {
    /// Whether the call may be made at all.
    fn admit(&self) -> Result<Option<Probe>, Status> {
        // Nothing is sent, and nothing charged, for a deadline that has passed already.
        if self.deadline == Some(Duration::ZERO) {
            return Err(Status::deadline_exceeded(DEADLINE_MESSAGE));
        }
        let now = self.shared.since_epoch(self.started);
        let Some(circuit) = self.method.circuit() else {
            return Ok(None);
        };
        circuit.admit(now).map_err(|retry_after| {
            let message = format!("{}: the circuit breaker is open", circuit.name());
            wire::unavailable_until(message, retry_after)
        })
    }

    async fn run(
        self,
        request: Request<Body>,
        mut telemetry: CallTelemetry,
    ) -> Result<Response<Body>, Status> {
        let probe = match self.admit() {
            Ok(probe) => probe,
            Err(status) => {
                telemetry.finish(status.code(), self.shared.since_epoch(self.started));
                return Err(with_log(CallLogBuilder::default(), Duration::ZERO, status));
            }
        };
        let now = self.shared.since_epoch(self.started);
        self.shared.ensure_started();
        self.shared.budget().deposit(now);
        self.method.stats().called();
        let (terms, prototype) = match self.prepare(request).await {
            Ok(prepared) => prepared,
            Err(status) => {
                let at = self.started.elapsed();
                telemetry.finish(status.code(), now + at);
                return Err(with_log(CallLogBuilder::default(), at, status));
            }
        };
        let rules = self.rules(&terms);
        // Kept here while the race is driven: it is large, and would move with each step.
        let mut host = CallHost::new(
            Arc::clone(&self.shared),
            Arc::clone(&self.method),
            terms,
            prototype,
            now,
            telemetry,
            probe,
        );
        if !rules.hedging {
            host.report_at_start();
        }
        match self.race(&mut host, rules).await {
            Ok((reply, at)) => self.finish(host, reply, at),
            Err(status) => Err(fail(host, self.started.elapsed(), status)),
        }
    }

    /// What applies to the call, and what its attempts are made from. The request's own word
    /// comes first.
    async fn prepare(&self, request: Request<Body>) -> Result<(Terms, Prototype), Status> {
        let (mut head, body) = request.into_parts();
        let overrides = head.extensions.remove::<Overrides>().unwrap_or_default();
        let hedge = match overrides.hedging {
            None => self.method.hedge().cloned(),
            Some(Hedging::Off) => None,
            Some(Hedging::On(hedge)) => {
                let error = hedge.validate().err();
                if let Some(error) = error {
                    return Err(Status::invalid_argument(error.to_string()));
                }
                Some(Arc::new(*hedge))
            }
        };
        let shape = self.method.shape();
        let until = self.until(overrides.first_message);
        let mut repeatable = match (until, self.method.repeatable()) {
            (Until::Head, _) if shape == Shape::ServerStreaming => Err("streaming"),
            (Until::Head, known) => known,
            (_, Err(_)) if overrides.repeatable => Ok("marked by the request"),
            (_, known) => known,
        };
        // A request that carries a key of its own may be raced all the same.
        let retries_only = self.method.retries_only() && !overrides.repeatable;
        let hedge = hedge.filter(|_| !retries_only);
        let limit = self.shared.buffer_limit();
        let further = self.method.max_attempts() > 1
            && (hedge.is_some() || self.method.retry(hedge.is_some()).enabled);
        let body = match repeatable {
            // A stream is passed on, never kept.
            Err(_) if shape != Shape::Unary => Source::Passing(Rewind::new(Bytes::new(), body, 0)),
            Err(_) => Source::Passing(Rewind::new(Bytes::new(), body, limit)),
            // It may be repeated, and never will be.
            Ok(_) if !further => Source::Passing(Rewind::new(Bytes::new(), body, limit)),
            Ok(_) => match self.before_deadline(body::collect(body, limit)).await? {
                Ok(Collected::Whole(bytes)) => Source::Whole(bytes),
                Ok(Collected::Over(read, rest)) => {
                    repeatable = Err("body over the buffer limit");
                    Source::Passing(Rewind::new(read, rest, 0))
                }
                Err(status) => return Err(status),
            },
        };
        let criticality = overrides
            .criticality
            .or_else(|| Criticality::of_metadata(&head.headers))
            .or(self.ambient)
            .unwrap_or_default();
        criticality.write(&mut head.headers);
        if let Some(deadline) = self.deadline.filter(|_| self.shortened) {
            deadline::write(&mut head.headers, deadline);
        }
        // A caller's own count would be taken for ours.
        head.headers.remove(wire::PREVIOUS_ATTEMPTS);
        let terms = Terms {
            hedge,
            repeatable,
            criticality,
            deadline: self.deadline,
            until: match body {
                Source::Whole(_) => until,
                Source::Passing(_) => Until::Head,
            },
        };
        let prototype = Prototype {
            uri: head.uri,
            headers: head.headers,
            extensions: head.extensions,
            body,
        };
        Ok((terms, prototype))
    }

    /// How far the attempts of a race are read.
    fn until(&self, first_message: bool) -> Until {
        let limit = self.shared.response_limit();
        match self.method.shape() {
            Shape::Unary => Until::Trailers(limit),
            Shape::FirstMessage => Until::Message(limit),
            Shape::ServerStreaming if first_message => Until::Message(limit),
            Shape::ServerStreaming | Shape::Other => Until::Head,
        }
    }

    fn rules(&self, terms: &Terms) -> Rules {
        if let Until::Head = terms.until {
            return Rules::single(self.deadline);
        }
        let hedge = terms.hedge.as_deref();
        let max_attempts = self.method.max_attempts();
        Rules {
            max_attempts,
            max_concurrent: hedge.map_or(1, |hedge| hedge.max_concurrent),
            hedging: hedge.is_some() && max_attempts > 1,
            retries: self.method.retry(hedge.is_some()).enabled,
            eager: hedge.is_some_and(|hedge| hedge.timing == Timing::OnFailure),
            max_unsent: MAX_UNSENT,
            deadline: self.deadline,
        }
    }

    /// Drives the race; again while no endpoint has become ready yet.
    async fn race(
        &self,
        host: &mut CallHost,
        rules: Rules,
    ) -> Result<(Option<Ran>, Duration), Status> {
        let mut changed = None;
        loop {
            let over = Drive::new(&mut *host, rules.clone(), self.started).await;
            if let Some(error) = over.error {
                return Err(Status::from_error(error));
            }
            if over.end != End::Unplaced {
                return Ok((over.reply, over.at));
            }
            return Err(match host.unplaced.take() {
                Some(Unplaced::NotYet) => match changed.take() {
                    // Listens first, then looks again: no change in between is missed.
                    None => {
                        changed = Some(self.shared.endpoints().changed());
                        continue;
                    }
                    Some(changed) => match self.before_deadline(changed).await {
                        Ok(()) => continue,
                        Err(status) => status,
                    },
                },
                Some(Unplaced::Never(why)) => Status::unavailable(why.to_string()),
                None => Status::internal("the request's body was lost before it was sent"),
            });
        }
    }

    /// Makes the call's result of what the race ended with.
    fn finish(
        &self,
        mut host: CallHost,
        reply: Option<Ran>,
        at: Duration,
    ) -> Result<Response<Body>, Status> {
        let Finished { reply, held } = match reply {
            Some(Ran::Finished(finished)) => finished,
            Some(Ran::Place(_)) => {
                let status = match host.unplaced.take() {
                    Some(Unplaced::Never(why)) => Status::unavailable(why.to_string()),
                    _ => Status::unavailable("connections were lost again and again"),
                };
                return Err(fail(host, at, status));
            }
            None => {
                return Err(fail(host, at, Status::deadline_exceeded(DEADLINE_MESSAGE)));
            }
        };
        match reply {
            Reply::Fault(fault) => Err(fail(host, at, fault.status)),
            Reply::Complete(complete) if complete.code != Code::Ok => {
                let code = complete.code;
                let head = complete.head.headers;
                // tonic adds the head's metadata to a status that no message came before.
                let bare = complete.data.is_empty();
                let status = match complete.trailers {
                    Some(trailers) => wire::status(code, trailers, bare.then_some(head)),
                    None => wire::status(code, head, None),
                };
                Err(fail(host, at, status))
            }
            Reply::Complete(complete) => {
                let (mut telemetry, log, ..) = self.won(host);
                telemetry.finish(Code::Ok, self.shared.since_epoch(self.started) + at);
                let mut head = complete.head;
                head.extensions.insert(log.finish(at));
                let body = Body::new(Kept::new(complete.data, complete.trailers));
                Ok(Response::from_parts(head, body))
            }
            Reply::Open(response) => {
                let proven = host.races_for_message() && response.body().enough;
                let (telemetry, log, probe, upload) = self.won(host);
                let (mut head, front) = response.into_parts();
                head.extensions.insert(log.finish(at));
                let deadline = self.expires().map(|at| (at, Box::pin(sleep_until(at))));
                let mut open = Box::new(Open {
                    method: Arc::clone(&self.method),
                    held,
                    telemetry,
                    probe,
                    deadline,
                    upload,
                });
                if proven {
                    open.prove();
                }
                Ok(Response::from_parts(
                    head,
                    Body::new(Tail::new(front, open)),
                ))
            }
        }
    }

    /// An attempt's answer is the call's: notes it where a hedge gave it.
    #[allow(clippy::type_complexity)] // What `Ending` holds, less what is told here.
    fn won(
        &self,
        host: CallHost,
    ) -> (CallTelemetry, CallLogBuilder, Option<Probe>, Option<Rewind>) {
        let Ending {
            telemetry,
            log,
            probe,
            hedge_won,
            upload,
        } = host.into_end();
        if let Some((id, threshold)) = hedge_won {
            telemetry.won(threshold, id);
            if let Some(meter) = self.method.win_rate() {
                meter.won(self.shared.now());
            }
        }
        (telemetry, log, probe, upload)
    }

    /// When the deadline passes; one past what the clock can express is none.
    fn expires(&self) -> Option<Instant> {
        self.started.checked_add(self.deadline?)
    }

    async fn before_deadline<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        match self.expires() {
            None => Ok(work.await),
            Some(at) => timeout_at(at, work)
                .await
                .map_err(|_| Status::deadline_exceeded(DEADLINE_MESSAGE)),
        }
    }
}

/// The status of a response, from the headers that carry it.
pub(crate) fn status_of(code: Code, headers: http::HeaderMap) -> Status {
    wire::status(code, headers, None)
}

/// Ends a call with a status.
fn fail(host: CallHost, at: Duration, status: Status) -> Status {
    let ended = host.clock(at);
    let Ending {
        mut telemetry, log, ..
    } = host.into_end();
    telemetry.finish(status.code(), ended);
    with_log(log, at, status)
}

/// The log becomes the status's source.
fn with_log(log: CallLogBuilder, at: Duration, mut status: Status) -> Status {
    log.finish_failed(at, &mut status);
    status
}
