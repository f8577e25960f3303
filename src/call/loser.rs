//! What becomes of a response that nobody waits for any more: a reset, if its endpoint's
//! ration allows one, else it runs to its end and is thrown away.
//!
//! HTTP/2 stacks punish resets: a tonic server closes the connection once more than 20
//! streams were reset before it accepted them, and every call on it fails. A stalled server
//! under hedging is exactly that.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use http_body::Body as _;
use tokio::runtime::Handle;
use tonic::body::Body;

use super::{
    attempt::{Held, Rest},
    body::Upload,
    fault::Fault,
    ticket::Ticket,
};
use crate::telemetry::AttemptEnd;

/// The longest that a detached attempt without a deadline runs. A server that has not
/// answered by then is reset all the same.
const LONGEST: Duration = Duration::from_secs(30);

/// The most bytes of a detached response that are read: past tonic's own default limit of a
/// message nobody would have taken it.
const MOST_BYTES: usize = 4 << 20;

/// What a detached attempt keeps besides its request: the stream's receive window, 64 KiB unless
/// the user widens it.
const KEPT: u32 = 64 << 10;

/// The most bytes that the detached attempts of one endpoint keep at once: 256 small requests,
/// which is what 400 calls a second lose in a stall of half a second and then some, or 15 of
/// 1 MiB. Beyond it a reset costs less than the memory.
const MOST_KEPT: u32 = 16 << 20;

/// How an abandoned attempt was disposed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposed {
    /// Its stream was reset, or it had none.
    Reset,
    /// It runs on.
    Detached,
}

/// Disposes of an attempt. `time_left` is what is left of its call's deadline.
pub(crate) fn dispose(
    rest: Rest,
    held: Held,
    upload: Upload,
    time_left: Option<Duration>,
) -> Disposed {
    if let Rest::Nothing = rest {
        return Disposed::Reset;
    }
    if held.ticket.try_reset() {
        return Disposed::Reset;
    }
    // A stream of the caller's must not be read on when the caller has gone.
    let Upload::Whole(bytes) = upload else {
        held.ticket.cut();
        return Disposed::Reset;
    };
    // tonic's own timer resets what has no time left, if nothing here does.
    if time_left == Some(Duration::ZERO) {
        held.ticket.cut();
        return Disposed::Reset;
    }
    // Outside a runtime nothing can run on: a drop at shutdown.
    let Ok(runtime) = Handle::try_current() else {
        held.ticket.cut();
        return Disposed::Reset;
    };
    let kept = u32::try_from(bytes)
        .unwrap_or(u32::MAX)
        .saturating_add(KEPT);
    if !enter(held.ticket.endpoint().detached(), kept) {
        held.ticket.cut();
        return Disposed::Reset;
    }
    held.ticket.shared().counters().detached();
    let limit = time_left.unwrap_or(LONGEST).min(LONGEST);
    let Held {
        ticket,
        mut telemetry,
    } = held;
    // To its call it is over.
    telemetry.end(AttemptEnd::Lost, ticket.shared().now());
    let mut drain = Drain { ticket, kept };
    runtime.spawn(async move {
        if tokio::time::timeout(limit, drain.run(rest)).await.is_err() {
            drain.ticket.cut();
        }
    });
    Disposed::Detached
}

/// Counts `kept` bytes in, unless the endpoint has its most. One step, so that the cap holds.
fn enter(detached: &AtomicU32, kept: u32) -> bool {
    // Relaxed: the sum guards no other memory.
    detached
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
            sum.checked_add(kept).filter(|sum| *sum <= MOST_KEPT)
        })
        .is_ok()
}

/// A detached attempt; counted out when it is dropped.
struct Drain {
    ticket: Ticket,
    kept: u32,
}

impl Drain {
    async fn run(&mut self, rest: Rest) {
        let body = match rest {
            Rest::Nothing => return,
            Rest::Body(body) => body,
            Rest::Head(response) => match response.await {
                Ok(response) => {
                    self.ticket.heard();
                    self.ticket.head(self.ticket.shared().now());
                    // It was accepted, so that a reset hurts nobody now, and spares the rest:
                    // not least the window that an unread request would go on blocking.
                    if self.ticket.try_reset() {
                        return;
                    }
                    response.into_body()
                }
                Err(error) => {
                    // tonic's timer reset it, a moment before ours would have.
                    if Fault::of(error.into()).timed_out {
                        self.ticket.cut();
                    }
                    return;
                }
            },
        };
        match self.read_out(body).await {
            End::Trailers => self.ticket.answered(self.ticket.shared().now()),
            End::Error => {}
            End::TooLong => self.ticket.cut(),
        }
    }

    /// Reads `body` to its end, throwing it away.
    async fn read_out(&mut self, mut body: Body) -> End {
        let mut bytes = 0;
        loop {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                None => return End::Trailers,
                Some(Err(_)) => return End::Error,
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else {
                        continue;
                    };
                    self.ticket.began(self.ticket.shared().now());
                    bytes += data.len();
                    if bytes > MOST_BYTES {
                        return End::TooLong;
                    }
                }
            }
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let detached = self.ticket.endpoint().detached();
        detached.fetch_sub(self.kept, Ordering::Relaxed);
    }
}

/// How a response that is read out ends.
enum End {
    Trailers,
    Error,
    TooLong,
}
