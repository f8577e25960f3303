//! One attempt on its way: from a ready channel to the trailers of its response.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, response::Parts};
use http_body::Body as _;
use smallvec::SmallVec;
use tonic::{
    Code,
    body::Body,
    transport::{Channel, channel::ResponseFuture},
};
use tower_service::Service as _;

use super::{
    fault::{DEADLINE_SLACK, Fault},
    messages::Messages,
    ticket::Ticket,
    wire,
};
use crate::{
    endpoint::{Endpoint, Line},
    nanos::Nanos,
    telemetry::AttemptTelemetry,
};

/// The data of a response: a unary one is a single frame, which needs no list of its own.
pub(crate) type Frames = SmallVec<[Bytes; 1]>;

/// What an attempt ends with.
// An attempt's large parts lie in place, here and below: a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum Reply {
    /// The response is complete, and the server gave a status.
    Complete(Complete),
    /// The attempt is to be judged by what has come: its head, for a call with one attempt, or
    /// more than the buffer holds. The rest follows.
    Open(Response<Front>),
    /// No status came from the server.
    Fault(Fault),
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) head: Parts,
    pub(crate) data: Frames,
    /// `None` where the head carries the status.
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) code: Code,
}

impl Complete {
    /// Where the status is.
    pub(crate) fn status_headers(&self) -> &HeaderMap {
        self.trailers.as_ref().unwrap_or(&self.head.headers)
    }
}

/// A response's body, of which a part was read.
#[derive(Debug)]
pub(crate) struct Front {
    /// Whether it is all that was waited for, and not more than the buffer holds.
    pub(crate) enough: bool,
    pub(crate) data: Frames,
    pub(crate) rest: Body,
}

/// How far an attempt reads its response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// To the head: a call with one attempt.
    Head,
    /// To the trailers, holding at most the channel's limit.
    Trailers,
    /// To the end of a stream's first message, holding at most that.
    Message,
}

/// One copy of a call on the wire. Dropping it cancels it: its stream is reset.
pub(crate) struct Attempt {
    course: Course,
    /// `None` once it has ended.
    held: Option<Held>,
}

/// Where it is, apart from what it holds: polled while its span is the current one.
struct Course {
    stage: Stage,
    until: Until,
    /// What was left of the call's deadline when it started.
    time_left: Nanos,
}

/// What an attempt holds while it is in flight, and hands on when it ends.
pub(crate) struct Held {
    pub(crate) ticket: Ticket,
    pub(crate) telemetry: AttemptTelemetry,
}

/// A finished attempt.
pub(crate) struct Finished {
    pub(crate) reply: Reply,
    pub(crate) held: Held,
}

#[allow(clippy::large_enum_variant)] // As above.
enum Stage {
    /// Waiting for a slot of the channel's queue.
    Ready(Channel, Option<Box<Request<Body>>>),
    /// Waiting for the head.
    Sent(ResponseFuture),
    /// Reading the body.
    Reading(Reading),
    /// Ended, or waiting for the call's own deadline.
    Done,
}

struct Reading {
    head: Parts,
    body: Body,
    data: Frames,
    bytes: usize,
    messages: Messages,
}

/// What is left of an attempt whose answer nobody wants any more.
pub(crate) enum Rest {
    /// It was not sent yet, or has ended: there is nothing to reset.
    Nothing,
    /// Its head has not come.
    Head(ResponseFuture),
    /// Its body is coming.
    Body(Body),
}

impl Attempt {
    pub(crate) fn new(
        line: Line,
        request: Request<Body>,
        held: Held,
        until: Until,
        time_left: Option<Duration>,
    ) -> Self {
        let stage = held
            .telemetry
            .within(|| Stage::first(line, request, held.ticket.endpoint()));
        Self {
            course: Course {
                stage,
                until,
                time_left: time_left.map_or(Nanos::NEVER, Nanos::of),
            },
            held: Some(held),
        }
    }

    /// As when it is polled as a future, but what it holds stays in it.
    pub(crate) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let Self { course, held } = self;
        match held {
            Some(held) => held
                .telemetry
                .within(|| course.poll_reply(&held.ticket, cx)),
            None => Poll::Pending,
        }
    }

    /// What it holds; `None` once that was taken.
    pub(crate) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Takes what it holds, when it has ended.
    pub(crate) fn take_held(&mut self) -> Option<Held> {
        self.held.take()
    }

    /// Takes it apart: what there is to reset, and what it holds.
    pub(crate) fn into_rest(self) -> (Rest, Option<Held>) {
        let rest = match self.course.stage {
            Stage::Ready(..) | Stage::Done => Rest::Nothing,
            Stage::Sent(response) => Rest::Head(response),
            Stage::Reading(reading) => Rest::Body(reading.body),
        };
        (rest, self.held)
    }
}

impl Stage {
    /// The queue nearly always has a slot: then the request goes into it at once, and never lies here.
    fn first(mut line: Line, request: Request<Body>, endpoint: &Endpoint) -> Self {
        // Nobody is woken by this: where there is none, the attempt asks again when it is polled.
        let mut cx = Context::from_waker(Waker::noop());
        match line.channel.poll_ready(&mut cx) {
            Poll::Ready(Ok(())) => {
                let response = line.channel.call(request);
                endpoint.keep(line);
                Self::Sent(response)
            }
            _ => Self::Ready(line.channel, Some(Box::new(request))),
        }
    }
}

impl Course {
    fn poll_reply(&mut self, ticket: &Ticket, cx: &mut Context<'_>) -> Poll<Reply> {
        loop {
            match &mut self.stage {
                Stage::Ready(channel, request) => {
                    let ready = std::task::ready!(channel.poll_ready(cx));
                    match (ready, request.take()) {
                        (Ok(()), Some(request)) => {
                            self.stage = Stage::Sent(channel.call(*request));
                        }
                        (Ok(()), None) => return Poll::Pending,
                        (Err(error), _) => {
                            // The channel's own task is gone: nothing was given to it.
                            return self.fault(ticket, Fault::not_taken(error.into()));
                        }
                    }
                }
                Stage::Sent(response) => {
                    let response = match std::task::ready!(Pin::new(response).poll(cx)) {
                        Ok(response) => response,
                        Err(error) => return self.fault(ticket, Fault::of(error.into())),
                    };
                    ticket.heard();
                    let (mut head, body) = response.into_parts();
                    if let Some(code) = wire::sanitize(&mut head.headers) {
                        // A stream may be empty, a unary answer not.
                        if let (Until::Trailers, Code::Ok) = (self.until, code) {
                            return self.fault(ticket, no_message(Some(0)));
                        }
                        let complete = Complete {
                            head,
                            data: Frames::new(),
                            trailers: None,
                            code,
                        };
                        return self.completed(ticket, complete);
                    }
                    if head.status != StatusCode::OK {
                        return self.fault(ticket, Fault::gateway(head.status));
                    }
                    if let Until::Head = self.until {
                        let front = Front {
                            enough: true,
                            data: Frames::new(),
                            rest: body,
                        };
                        return self.done(Reply::Open(Response::from_parts(head, front)));
                    }
                    self.stage = Stage::Reading(Reading {
                        head,
                        body,
                        data: Frames::new(),
                        bytes: 0,
                        messages: Messages::default(),
                    });
                }
                Stage::Reading(reading) => {
                    let frame = std::task::ready!(Pin::new(&mut reading.body).poll_frame(cx));
                    let frame = match frame {
                        Some(Ok(frame)) => frame,
                        Some(Err(status)) => {
                            let mut fault = Fault::of(Box::new(status));
                            // Its head has come: the server had it.
                            fault.unsent = None;
                            return self.fault(ticket, fault);
                        }
                        None => {
                            return self.fault(
                                ticket,
                                Fault::protocol(
                                    Code::Unknown,
                                    "response ended without grpc-status",
                                ),
                            );
                        }
                    };
                    let trailers = match frame.into_data() {
                        Ok(data) => {
                            reading.bytes += data.len();
                            reading.messages.feed(&data);
                            reading.data.push(data);
                            let enough = match self.until {
                                Until::Head => continue,
                                Until::Trailers => false,
                                Until::Message => reading.messages.any(),
                            };
                            if enough || reading.bytes > ticket.shared().response_limit() {
                                return self.open(enough);
                            }
                            continue;
                        }
                        Err(frame) => frame.into_trailers().unwrap_or_default(),
                    };
                    return self.complete(ticket, trailers);
                }
                Stage::Done => return Poll::Pending,
            }
        }
    }

    fn complete(&mut self, ticket: &Ticket, mut trailers: HeaderMap) -> Poll<Reply> {
        let Stage::Reading(reading) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return Poll::Pending;
        };
        let Some(code) = wire::sanitize(&mut trailers) else {
            return self.fault(
                ticket,
                Fault::protocol(Code::Unknown, "response's trailers carry no grpc-status"),
            );
        };
        let messages = reading.messages.whole();
        let complete = match self.until {
            // A stream may be empty.
            Until::Message => messages.is_some(),
            Until::Head | Until::Trailers => messages == Some(1),
        };
        if code == Code::Ok && !complete {
            return self.fault(ticket, no_message(messages));
        }
        let complete = Complete {
            head: reading.head,
            data: reading.data,
            trailers: Some(trailers),
            code,
        };
        self.completed(ticket, complete)
    }

    fn completed(&mut self, ticket: &Ticket, complete: Complete) -> Poll<Reply> {
        // A server's timer that read our header; what it says of it is CANCELLED, as tonic's.
        if complete.code == Code::Cancelled && self.at_deadline(ticket) {
            return self.expired();
        }
        self.done(Reply::Complete(complete))
    }

    /// The race ends with what has come; the rest follows.
    fn open(&mut self, enough: bool) -> Poll<Reply> {
        let Stage::Reading(reading) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return Poll::Pending;
        };
        let front = Front {
            enough,
            data: reading.data,
            rest: reading.body,
        };
        Poll::Ready(Reply::Open(Response::from_parts(reading.head, front)))
    }

    fn fault(&mut self, ticket: &Ticket, fault: Fault) -> Poll<Reply> {
        // tonic's timer, or a server that resets what is over: both read our header.
        let over = fault.timed_out || fault.status.code() == Code::Cancelled;
        if over && self.at_deadline(ticket) {
            return self.expired();
        }
        self.done(Reply::Fault(fault))
    }

    fn at_deadline(&self, ticket: &Ticket) -> bool {
        ticket.elapsed(ticket.shared().now()) + DEADLINE_SLACK >= self.time_left.get()
    }

    /// Somebody else's timer for the call's deadline ran out a moment before ours, which ends
    /// the call with the right status.
    fn expired(&mut self) -> Poll<Reply> {
        self.stage = Stage::Done;
        Poll::Pending
    }

    fn done(&mut self, reply: Reply) -> Poll<Reply> {
        self.stage = Stage::Done;
        Poll::Ready(reply)
    }
}

/// An OK of a unary call that does not come with exactly one whole message.
fn no_message(found: Option<usize>) -> Fault {
    let found = found.map_or("a cut-off message".to_owned(), |count| {
        format!("{count} messages instead of one")
    });
    Fault::protocol(Code::Internal, format!("unary response with {found}"))
}

impl Future for Attempt {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let attempt = self.get_mut();
        let reply = std::task::ready!(attempt.poll_reply(cx));
        match attempt.take_held() {
            Some(held) => Poll::Ready(Finished { reply, held }),
            None => Poll::Pending,
        }
    }
}
