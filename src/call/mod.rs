//! One call, from the request to the answer.
//!
//! [`call`] looks up what applies. The [`course::Course`] reads the request's body, launches the
//! original, and drives a race over a [`host::CallHost`] when there is something to decide; what it
//! ends with becomes the response.

mod attempt;
mod body;
mod classify;
mod course;
pub(crate) mod deadline;
mod fault;
#[cfg(feature = "__fuzz")]
pub(crate) mod fuzz;
mod host;
mod loser;
mod messages;
mod prototype;
mod running;
mod tail;
mod ticket;
mod timer;
pub(crate) mod wire;

use std::{pin::Pin, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status, body::Body};
use tonic_hedge_engine::{
    policy::{Hedge, Timing},
    race::{MAX_UNSENT, Rules},
};

pub(crate) use classify::Codes;

use self::{
    attempt::{Held, Reply, Until},
    course::{Course, How},
    host::{CallHost, Ending, Terms},
    prototype::Prototype,
    tail::{Kept, Open, Tail},
};
use crate::{
    channel::Shared,
    criticality::Criticality,
    inherit::{self, Inherited},
    log::{CallLog, CallLogBuilder},
    method::{Method, Shape},
    request::{Hedging, Overrides},
};

/// The text of a deadline that passed here, as against one that a server reports.
const DEADLINE_MESSAGE: &str = "the call's deadline passed before an answer came";

/// A call's future, as the channel returns it: one allocation, which holds all that a call with one
/// attempt needs.
pub(crate) type CallFuture = Pin<Box<Course>>;

/// Starts a call. What must be taken where the application calls is taken here: the clock,
/// and the context that its spans hang under.
pub(crate) fn call(shared: &Arc<Shared>, request: Request<Body>) -> CallFuture {
    let started = shared.now();
    let (method, name) = shared.methods().find(request.uri().path());
    let telemetry = method.telemetry().start_call(name, started);
    let seen = Seen::of(request.headers());
    let asked = match seen.timeout {
        true => deadline::read(request.headers()),
        false => None,
    };
    let timeout = shared.methods().timeout(method, name);
    // The smaller of both; `None` is none.
    let deadline = match (asked, timeout) {
        (Some(asked), Some(timeout)) => Some(asked.min(timeout)),
        (asked, timeout) => asked.or(timeout),
    };
    let method = Arc::clone(method);
    let (mut head, body) = request.into_parts();
    let overrides = head.extensions.remove::<Overrides>().unwrap_or_default();
    let inherited = Inherited::current();
    let of_metadata = || match seen.criticality {
        true => Criticality::of_metadata(&head.headers),
        false => None,
    };
    let of_scope = || inherited.criticality();
    let criticality = Criticality::of_call(overrides.criticality, of_metadata, of_scope);
    if seen.criticality || criticality != Criticality::Default {
        criticality.write(&mut head.headers);
    }
    // A handler that forwards its metadata forwards the mark.
    let marked = seen.hedge && inherit::is_marked(&head.headers);
    if inherited.is_hedge() {
        head.headers.insert(inherit::HEDGE, inherit::MARK);
    }
    // It is sooner than the caller's, and is sent in its place.
    if let Some(deadline) = deadline.filter(|_| deadline != asked) {
        deadline::write(&mut head.headers, deadline);
    }
    // A caller's own count would be taken for ours.
    if seen.previous_attempts {
        head.headers.remove(wire::PREVIOUS_ATTEMPTS);
    }
    let held = inherited.holds_hedges(marked);
    let (terms, right) = terms(&method, overrides, criticality, held, deadline);
    let prototype = Prototype::new(head, body);
    let shared = Arc::clone(shared);
    let host = CallHost::new(shared, method, terms, prototype, started, telemetry);
    Box::pin(Course::new(host, right))
}

/// Which headers of a request say something to a call. One look at each of the few that there are:
/// less than hashing three names.
#[derive(Default)]
struct Seen {
    timeout: bool,
    criticality: bool,
    hedge: bool,
    previous_attempts: bool,
}

impl Seen {
    fn of(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "grpc-timeout" => seen.timeout = true,
                "x-criticality" => seen.criticality = true,
                "x-hedge" => seen.hedge = true,
                "grpc-previous-rpc-attempts" => seen.previous_attempts = true,
                _ => {}
            }
        }
        seen
    }
}

/// What applies to a call, the request's own word first; and whether that can be. Unless it has such
/// a word, a call that is `held` as part of a hedge is not hedged.
fn terms(
    method: &Method,
    overrides: Overrides,
    criticality: Criticality,
    held: bool,
    deadline: Option<Duration>,
) -> (Terms, Result<(), Status>) {
    let mut right = Ok(());
    let held = held && overrides.hedging.is_none() && method.hedge().is_some();
    let hedge = match overrides.hedging {
        None if held => None,
        None => method.hedge().cloned(),
        Some(Hedging::Off) => None,
        Some(Hedging::On(hedge)) => {
            if let Err(error) = hedge.validate() {
                right = Err(Status::invalid_argument(error.to_string()));
            }
            Some(Arc::new(*hedge))
        }
    };
    let shape = method.shape();
    // How far the attempts of a race are read.
    let until = match shape {
        Shape::Unary => Until::Trailers,
        Shape::FirstMessage => Until::Message,
        Shape::ServerStreaming if overrides.first_message => Until::Message,
        Shape::ServerStreaming | Shape::Other => Until::Head,
    };
    let repeatable = match (until, method.repeatable()) {
        (Until::Head, _) if shape == Shape::ServerStreaming => Err("streaming"),
        (Until::Head, known) => known,
        (_, Err(_)) if overrides.repeatable => Ok("marked by the request"),
        (_, known) => known,
    };
    // A request that carries a key of its own may be raced all the same.
    let retries_only = method.retries_only() && !overrides.repeatable;
    let hedge = hedge.filter(|_| !retries_only);
    let further =
        method.max_attempts() > 1 && (hedge.is_some() || method.retry(hedge.is_some()).enabled);
    let body = match repeatable {
        Err(_) if shape != Shape::Unary => How::Streamed,
        Ok(_) if further => How::Collected,
        // It may not be repeated, or never will be.
        _ => How::Passed,
    };
    let terms = Terms {
        hedge,
        held: held && !retries_only,
        repeatable,
        criticality,
        deadline,
        until: match body {
            How::Collected => until,
            How::Passed | How::Streamed => Until::Head,
        },
        body,
    };
    (terms, right)
}

impl CallHost {
    fn rules(&self) -> Rules {
        let deadline = self.terms.deadline;
        if let Until::Head = self.terms.until {
            return Rules::single(deadline);
        }
        let hedge = self.terms.hedge.as_deref();
        let max_attempts = self.method.max_attempts();
        Rules {
            max_attempts,
            max_concurrent: hedge.map_or(1, |hedge| hedge.max_concurrent),
            max_hedges: hedge.map_or(0, Hedge::hedges),
            hedging: hedge.is_some() && max_attempts > 1,
            retries: self.method.retry(hedge.is_some()).enabled,
            eager: hedge.is_some_and(|hedge| hedge.timing == Timing::OnFailure),
            max_unsent: MAX_UNSENT,
            deadline,
        }
    }

    /// Whether the user's own function says when a hedge is due.
    fn is_timed_by_user(&self) -> bool {
        let hedge = self.terms.hedge.as_deref();
        hedge.is_some_and(|hedge| matches!(hedge.timing, Timing::With(_)))
    }

    /// When the deadline passes; one past what the clock can express is none.
    fn expires(&self) -> Option<Instant> {
        self.began().checked_add(self.terms.deadline?)
    }

    /// An attempt's answer is the call's: notes it where a hedge gave it.
    fn won(&mut self) -> Ending {
        let ending = self.end();
        if let Some((id, threshold)) = ending.hedge_won {
            self.telemetry.won(threshold, id);
            if let Some(meter) = self.method.win_rate() {
                meter.won(self.shared.now());
            }
        }
        ending
    }

    /// The log goes into the response's extensions, in the place that the request's had, if any.
    fn put_log(&mut self, log: CallLog, response: &mut http::Extensions) {
        if response.is_empty() {
            *response = std::mem::take(&mut self.prototype.extensions);
            response.clear();
        }
        response.insert(log);
    }
}

/// The call's deadline has passed.
fn expire(host: &mut CallHost, at: Duration) -> Status {
    fail(host, at, Status::deadline_exceeded(DEADLINE_MESSAGE))
}

/// Makes the call's result of what its last attempt came to.
fn finish(
    host: &mut CallHost,
    reply: Reply,
    held: Held,
    at: Duration,
) -> Result<Response<Body>, Status> {
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
            let log = host.won().log;
            host.telemetry.finish(Code::Ok, host.clock(at));
            let mut head = complete.head;
            host.put_log(log.finish(at), &mut head.extensions);
            let body = Body::new(Kept::new(complete.data, complete.trailers));
            Ok(Response::from_parts(head, body))
        }
        Reply::Open(response) => {
            let proven = host.races_for_message() && response.body().enough;
            let Ending {
                log,
                probe,
                sending,
                ..
            } = host.won();
            let (mut head, front) = response.into_parts();
            host.put_log(log.finish(at), &mut head.extensions);
            let deadline = host.expires().map(|at| (at, Box::pin(sleep_until(at))));
            let mut open = Open {
                method: Arc::clone(&host.method),
                held,
                telemetry: host.telemetry.hand_on(),
                probe,
                deadline,
                sending,
            };
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

/// The status of a response, from the headers that carry it.
pub(crate) fn status_of(code: Code, headers: http::HeaderMap) -> Status {
    wire::status(code, headers, None)
}

/// Ends a call with a status.
fn fail(host: &mut CallHost, at: Duration, status: Status) -> Status {
    let log = host.end().log;
    host.telemetry.finish(status.code(), host.clock(at));
    with_log(log, at, status)
}

/// The log becomes the status's source.
fn with_log(log: CallLogBuilder, at: Duration, mut status: Status) -> Status {
    log.finish_failed(at, &mut status);
    status
}
