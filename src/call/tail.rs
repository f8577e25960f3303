//! A response's body that is passed on while it comes: its end is judged, its drop is a
//! cancellation, and the call's deadline still holds.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status, body::Body};
use tonic_hedge_engine::measure::Probe;

use super::{
    attempt::{Frames, Front, Held, Rest},
    body::Sending,
    classify::{self, Health},
    fault::Fault,
    loser, wire,
};
use crate::{
    method::{Method, Shape},
    telemetry::{AttemptEnd, CallTelemetry},
};

/// The body of the one attempt that a call is left with.
///
/// All in one: a box around what is open would be one more for each call.
pub(crate) struct Tail {
    front: smallvec::IntoIter<[Bytes; 1]>,
    rest: Body,
    /// `None` once the end was judged.
    open: Option<Open>,
}

/// What has to be told when the body ends.
pub(crate) struct Open {
    pub(crate) method: Arc<Method>,
    pub(crate) held: Held,
    pub(crate) telemetry: CallTelemetry,
    pub(crate) probe: Option<Probe>,
    pub(crate) deadline: Option<(Instant, Pin<Box<Sleep>>)>,
    pub(crate) sending: Sending,
}

impl Tail {
    pub(crate) fn new(front: Front, open: Open) -> Self {
        Self {
            front: front.data.into_iter(),
            rest: front.rest,
            open: Some(open),
        }
    }

    /// The body has ended with `code`, perhaps since its connection was `lost`.
    fn end(&mut self, code: Code, health: Health, lost: bool) {
        let Some(open) = self.open.take() else { return };
        let Open {
            method,
            mut held,
            mut telemetry,
            probe,
            ..
        } = open;
        let now = held.ticket.shared().now();
        match health {
            Health::Fails => held.ticket.failed(now),
            Health::Works => held.ticket.answered(now),
            // By somebody further in, whose word the handler has passed on.
            Health::Sheds => held.ticket.released(),
        }
        // A connection's end is one failure, not as many as it had streams.
        let counts = !lost || held.ticket.is_news(now) || probe.is_some();
        if let Some(circuit) = method
            .circuit()
            .filter(|_| counts && health != Health::Sheds)
        {
            // Its call was admitted a moment before it was launched.
            let launched = now.saturating_sub(held.ticket.elapsed(now));
            circuit.record(launched, now, probe, health == Health::Fails);
        }
        held.telemetry.end(AttemptEnd::Won(code), now);
        telemetry.finish(code, now);
    }
}

impl Open {
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.deadline {
            Some((_, sleep)) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// A stream's message has come: enough for the half-open breaker. A stream may go on for hours,
    /// and is as often dropped as ended.
    pub(crate) fn prove(&mut self) {
        if self.method.shape() != Shape::Unary
            && let Some(circuit) = self.method.circuit()
            && let Some(probe) = self.probe.take()
        {
            let now = self.held.ticket.shared().now();
            circuit.record(now, now, Some(probe), false);
        }
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline
            .as_ref()
            .map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }
}

impl http_body::Body for Tail {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.front.next() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        // First, or a stream that always has something would never end.
        if let Some(open) = &mut self.open
            && open.poll_deadline(cx).is_ready()
        {
            open.held.ticket.cut();
            open.sending.cancel();
            self.end(Code::DeadlineExceeded, Health::Fails, false);
            self.rest = Body::empty();
            let status = Status::deadline_exceeded(super::DEADLINE_MESSAGE);
            return Poll::Ready(Some(Err(status)));
        }
        let frame = std::task::ready!(Pin::new(&mut self.rest).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_trailers() {
                Ok(mut trailers) => {
                    let code = wire::sanitize(&mut trailers);
                    let code = code.unwrap_or(Code::Unknown);
                    self.end(code, classify::health(code, &trailers), false);
                    Some(Ok(Frame::trailers(trailers)))
                }
                Err(data) => {
                    if let Some(open) = &mut self.open {
                        open.held.ticket.heard_more();
                        open.prove();
                    }
                    Some(Ok(data))
                }
            },
            Some(Err(status)) => {
                let fault = Fault::of(Box::new(status));
                let code = fault.status.code();
                let health = classify::health(code, fault.status.metadata().as_ref());
                self.end(code, health, fault.lost);
                Some(Err(fault.status))
            }
            None => {
                // Already judged where there were trailers.
                self.end(Code::Unknown, Health::Fails, false);
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.front.len() == 0 && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.front.len() == 0 {
            true => self.rest.size_hint(),
            // A hint that left out the buffered part would cut the body short.
            false => SizeHint::default(),
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let time_left = open.time_left();
        let rest = Rest::Body(std::mem::take(&mut self.rest));
        open.sending.cancel();
        let upload = open.sending.upload();
        loser::dispose(rest, open.held, upload, time_left);
    }
}

/// A whole response's body: kept frames, then the trailers.
pub(crate) struct Kept {
    data: smallvec::IntoIter<[Bytes; 1]>,
    trailers: Option<HeaderMap>,
}

impl Kept {
    pub(crate) fn new(data: Frames, trailers: Option<HeaderMap>) -> Self {
        Self {
            data: data.into_iter(),
            trailers,
        }
    }
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match self.data.next() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.len() == 0 && self.trailers.is_none()
    }
}
