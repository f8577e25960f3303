//! Request bodies: collected once and replayed, or passed on and taken back when unsent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body as _, Frame};
use parking_lot::Mutex;
use tonic::{Status, body::Body};

/// A request body, read to its end or to the limit.
pub(crate) enum Collected {
    /// The whole body.
    Whole(Bytes),
    /// The body is longer than the limit: what was read, and the rest.
    Over(Bytes, Body),
}

/// Reads `body` up to `limit` bytes. A unary request is one frame, which is kept as it is.
pub(crate) async fn collect(mut body: Body, limit: usize) -> Result<Collected, Status> {
    let mut whole = Bytes::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame.transpose()? else {
            return Ok(Collected::Whole(whole));
        };
        // A gRPC request has no trailers.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        whole = join(whole, data);
        if whole.len() > limit {
            return Ok(Collected::Over(whole, body));
        }
        if body.is_end_stream() {
            return Ok(Collected::Whole(whole));
        }
    }
}

/// `first` then `second`; copies only where both have bytes.
fn join(first: Bytes, second: Bytes) -> Bytes {
    if first.is_empty() {
        return second;
    }
    let mut joined = BytesMut::with_capacity(first.len() + second.len());
    joined.put(first);
    joined.put(second);
    joined.freeze()
}

/// A collected body on its way in one attempt. The bytes are shared by all attempts.
///
/// Its size hint is the default, not exact: hyper would add a `content-length`, which tonic's
/// own requests do not carry.
pub(crate) struct Replay(Option<Bytes>);

impl Replay {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl http_body::Body for Replay {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// A body that is passed on as it comes, and can be sent again as long as everything that was
/// taken from it is still known: nothing yet, or at most `keep` bytes.
///
/// It serves the calls with one attempt, whose transparent replacement needs the body back.
#[derive(Clone)]
pub(crate) struct Rewind(Arc<Mutex<Rewound>>);

struct Rewound {
    rest: Body,
    /// What was taken, while it can be given again.
    taken: Option<Bytes>,
    keep: usize,
    /// The attempt whose body this is now; an older one reads nothing more.
    reader: u32,
    /// All of it was taken.
    ended: bool,
    /// The call is over: its stream is reset in place of more of this.
    cancelled: bool,
    /// Who waits for more of it.
    waiting: Option<Waker>,
}

/// What an abandoned attempt still has to do with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// It has all of it, of which it may keep so many bytes.
    Whole(usize),
    /// It reads a stream of the caller's.
    Streaming,
}

impl Rewind {
    /// Keeps up to `keep` bytes of `body`; 0 allows a replacement only while nothing is read.
    pub(crate) fn new(read: Bytes, rest: Body, keep: usize) -> Self {
        Self(Arc::new(Mutex::new(Rewound {
            rest,
            taken: Some(read),
            keep,
            reader: 0,
            ended: false,
            cancelled: false,
            waiting: None,
        })))
    }

    /// The body for the next attempt, or `None` when what was taken is gone.
    pub(crate) fn next(&self) -> Option<RewindBody> {
        let mut rewound = self.0.lock();
        let again = rewound.taken.clone()?;
        rewound.reader += 1;
        Some(RewindBody {
            shared: Arc::clone(&self.0),
            again: Some(again).filter(|bytes| !bytes.is_empty()),
            reader: rewound.reader,
        })
    }

    /// What the attempt has still to do with it. One message counts as taken: nobody waits to
    /// make more of it.
    pub(crate) fn upload(&self) -> Upload {
        let rewound = self.0.lock();
        match rewound.ended || rewound.keep > 0 {
            true => Upload::Whole(rewound.taken.as_ref().map_or(0, Bytes::len)),
            false => Upload::Streaming,
        }
    }

    /// Resets the stream that this goes out on, and lets go of the caller's. The HTTP/2 stack
    /// reads a request on until it ends, though nobody reads the response any more, and to the
    /// server a stream that goes on is no cancellation.
    pub(crate) fn cancel(&self) {
        let (_rest, waiting) = {
            let mut rewound = self.0.lock();
            rewound.cancelled = true;
            let rest = std::mem::take(&mut rewound.rest);
            // The caller's own code runs in its drop: not under the lock.
            (rest, rewound.waiting.take())
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Whether the body can still be sent again.
    pub(crate) fn can_rewind(&self) -> bool {
        self.0.lock().taken.is_some()
    }
}

/// A [`Rewind`]'s body in one attempt.
pub(crate) struct RewindBody {
    shared: Arc<Mutex<Rewound>>,
    again: Option<Bytes>,
    reader: u32,
}

impl http_body::Body for RewindBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(bytes) = self.again.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let mut rewound = self.shared.lock();
        if rewound.reader != self.reader {
            return Poll::Ready(None);
        }
        if rewound.cancelled {
            // The reason is what the stack puts into its RST_STREAM.
            let reason = h2::Error::from(h2::Reason::CANCEL);
            return Poll::Ready(Some(Err(Status::from_error(Box::new(reason)))));
        }
        let polled = Pin::new(&mut rewound.rest).poll_frame(cx);
        rewound.waiting = polled.is_pending().then(|| cx.waker().clone());
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            rewound.taken = match (rewound.taken.take(), frame.data_ref()) {
                (Some(taken), Some(data)) if taken.len() + data.len() <= rewound.keep => {
                    Some(join(taken, data.clone()))
                }
                _ => None,
            };
        }
        rewound.ended |= matches!(polled, Poll::Ready(None)) || rewound.rest.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        if self.again.is_some() {
            return false;
        }
        let rewound = self.shared.lock();
        // An end here would be the request's own, and the server would take it for whole.
        !rewound.cancelled && rewound.rest.is_end_stream()
    }
}
