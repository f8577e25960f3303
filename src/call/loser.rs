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
    ticket::Ticket,
};
use crate::telemetry::AttemptEnd;

/// The longest that a detached attempt without a deadline runs. A server that has not
/// answered by then is reset all the same.
const LONGEST: Duration = Duration::from_secs(30);

/// The most bytes of a detached response that are read: past tonic's own default limit of a
/// message nobody would have taken it.
const MOST_BYTES: usize = 4 << 20;

/// The most detached attempts of one endpoint at once: what 400 calls a second lose in a stall
/// of half a second, and then some. Beyond it a reset costs less than the memory.
const MOST_DETACHED: u32 = 256;

/// How an abandoned attempt was disposed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposed {
    /// Its stream was reset, or it had none.
    Reset,
    /// It runs on.
    Detached,
}

/// Disposes of an attempt. `time_left` is what is left of its call's deadline.
pub(crate) fn dispose(rest: Rest, held: Held, time_left: Option<Duration>) -> Disposed {
    if let Rest::Nothing = rest {
        return Disposed::Reset;
    }
    let shared = held.ticket.shared();
    let endpoint = held.ticket.endpoint();
    if endpoint.try_reset(shared.now()) {
        shared.counters().reset();
        return Disposed::Reset;
    }
    // Outside a runtime nothing can run on: a drop at shutdown.
    let Ok(runtime) = Handle::try_current() else {
        return Disposed::Reset;
    };
    if !enter(endpoint.detached()) {
        shared.counters().reset();
        return Disposed::Reset;
    }
    shared.counters().detached();
    let limit = time_left.unwrap_or(LONGEST).min(LONGEST);
    let Held { ticket, mut span } = held;
    // To its call it is over.
    span.end(AttemptEnd::Lost);
    let mut drain = Drain { ticket };
    // One that outlasts the limit is dropped, which resets it.
    runtime.spawn(async move { tokio::time::timeout(limit, drain.run(rest)).await });
    Disposed::Detached
}

/// Counts one more in, unless the endpoint has its most. One step, so that the cap holds.
fn enter(detached: &AtomicU32) -> bool {
    detached
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MOST_DETACHED).then_some(count + 1)
        })
        .is_ok()
}

/// A detached attempt; counted out when it is dropped.
struct Drain {
    ticket: Ticket,
}

impl Drain {
    async fn run(&mut self, rest: Rest) {
        let body = match rest {
            Rest::Nothing => return,
            Rest::Body(body) => body,
            Rest::Head(response) => match response.await {
                Ok(response) => {
                    self.ticket.endpoint().answered();
                    response.into_body()
                }
                Err(_) => return,
            },
        };
        if read_out(body).await {
            self.ticket.answered();
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let detached = self.ticket.endpoint().detached();
        detached.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads `body` to its end, throwing it away; false where it failed or was too long.
async fn read_out(mut body: Body) -> bool {
    let mut bytes = 0;
    loop {
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => {
                bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
                if bytes > MOST_BYTES {
                    return false;
                }
            }
        }
    }
}
