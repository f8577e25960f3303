//! A call's place from its admission to its end, and what its end tells the lane.

use std::{any::Any, time::Duration};

use http::{HeaderMap, Response, StatusCode};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_hedge_engine::lane::{LaneOutcome, Permit, RoundTrip};

use crate::{call::wire, log::CallLog};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Marks the response of a lane that has shed the call, for lanes further out.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShedHere;

/// A call's permit. Dropped before the call's end it gives the place back and says nothing,
/// unless the call's deadline has passed: a server that is too slow shows in no other way where
/// a timer ends its calls.
#[derive(Debug)]
pub(super) struct Held {
    permit: Option<Permit>,
    epoch: Instant,
    /// When the call's `grpc-timeout` has passed.
    deadline: Option<Duration>,
    /// The first message is awaited, and is what is measured.
    first_message: bool,
    /// What the head says, in case that nothing else comes.
    head: LaneOutcome,
}

impl Held {
    pub(super) fn new(
        permit: Permit,
        epoch: Instant,
        timeout: Option<Duration>,
        round_trip: RoundTrip,
    ) -> Self {
        let admitted = permit.admitted();
        Self {
            permit: Some(permit),
            epoch,
            deadline: timeout.map(|timeout| admitted.saturating_add(timeout)),
            first_message: round_trip == RoundTrip::FirstMessage,
            head: LaneOutcome::Answered,
        }
    }

    /// The response's head is there. Its end too, if it is nothing but a status.
    pub(super) fn head<B: http_body::Body>(&mut self, response: &Response<B>) {
        if response.extensions().get::<ShedHere>().is_some() {
            self.permit = None;
            return;
        }
        let code = code(response.headers());
        self.head = match (code, response.status()) {
            (Some(code), _) => of_code(code),
            (None, StatusCode::OK) => LaneOutcome::Answered,
            (None, status) => of_code(wire::code_of_http(status)),
        };
        if code.is_some() || response.body().is_end_stream() {
            self.end(self.head);
        }
    }

    /// A part of a message is there.
    pub(super) fn data(&mut self) {
        if std::mem::take(&mut self.first_message)
            && let Some(permit) = &mut self.permit
        {
            permit.sample(self.epoch.elapsed(), self.head);
        }
    }

    pub(super) fn trailers(&mut self, trailers: &HeaderMap) {
        self.end(code(trailers).map_or(self.head, of_code));
    }

    /// The body has ended, without trailers if nothing was said before.
    pub(super) fn ended(&mut self) {
        self.end(self.head);
    }

    pub(super) fn failed<E: Any>(&mut self, error: &E) {
        let status = status(error);
        if status.is_some_and(was_never_sent) {
            self.permit = None;
            return;
        }
        // What fails without a status failed in its transport, or timed out there.
        let outcome = status.map_or(LaneOutcome::Overloaded, |status| of_code(status.code()));
        self.end(outcome);
    }

    fn end(&mut self, outcome: LaneOutcome) {
        if let Some(permit) = self.permit.take() {
            permit.finish(self.epoch.elapsed(), outcome);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(_), Some(deadline)) = (&self.permit, self.deadline)
            && self.epoch.elapsed() >= deadline
        {
            self.end(LaneOutcome::Overloaded);
        }
    }
}

/// The status code in `headers`, if there is one. For a lane the first of several is enough.
fn code(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(wire::GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}

fn of_code(code: Code) -> LaneOutcome {
    match code {
        Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded => {
            LaneOutcome::Overloaded
        }
        _ => LaneOutcome::Answered,
    }
}

fn status<E: Any>(error: &E) -> Option<&Status> {
    let error: &dyn Any = error;
    match error.downcast_ref::<BoxError>() {
        Some(boxed) => boxed.downcast_ref::<Status>(),
        None => error.downcast_ref::<Status>(),
    }
}

/// Whether a channel ended the call before anybody was asked, as an open breaker does: that says
/// nothing of what is behind, and would cut all the while the breaker is open.
fn was_never_sent(status: &Status) -> bool {
    let source = std::error::Error::source(status);
    let log = source.and_then(|source| source.downcast_ref::<CallLog>());
    log.is_some_and(|log| log.attempts().is_empty())
}
