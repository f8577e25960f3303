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

/// What there is of a request body without waiting.
pub(crate) enum Looked {
    /// All of it.
    Whole(Bytes),
    /// There is more to come.
    More(More),
}

/// A request body that is not read to its end.
pub(crate) struct More {
    /// What was read.
    read: Bytes,
    /// What came next, where that did not fit or was no data.
    next: Option<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

/// A request body, read to its end or to the limit.
pub(crate) enum Collected {
    /// The whole body.
    Whole(Bytes),
    /// The body is longer than the limit: what was read, and the rest.
    Over(Bytes, Body),
}

/// Frames that are taken at once: a unary request is one, and a body that always has another must not
/// keep its task.
const FRAMES: usize = 32;

/// Takes what is there of `body`, up to `limit` bytes. A unary request is one frame, which is there
/// at once, and is kept as it is.
pub(crate) fn look(mut body: Body, limit: usize, cx: &mut Context<'_>) -> Looked {
    let mut read = Bytes::new();
    let mut frames = 0;
    let next = loop {
        frames += 1;
        if frames > FRAMES {
            break None;
        }
        let frame = match Pin::new(&mut body).poll_frame(cx) {
            Poll::Pending => break None,
            Poll::Ready(None) => return Looked::Whole(read),
            Poll::Ready(Some(Err(status))) => break Some(Err(status)),
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        match frame.into_data() {
            Ok(data) if read.len() + data.len() <= limit => read = join(read, data),
            Ok(data) => break Some(Ok(Frame::data(data))),
            Err(frame) => break Some(Ok(frame)),
        }
        if body.is_end_stream() {
            return Looked::Whole(read);
        }
    };
    Looked::More(More {
        read,
        next,
        rest: body,
    })
}

/// Reads on, up to `limit` bytes.
pub(crate) async fn collect(more: More, limit: usize) -> Result<Collected, Status> {
    let More {
        read: mut whole,
        mut next,
        rest: mut body,
    } = more;
    loop {
        let frame = match next.take() {
            Some(frame) => Some(frame),
            None => std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await,
        };
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
    /// `None` while it is polled, or once it was cancelled.
    rest: Option<Body>,
    /// What came when a newer attempt had just begun.
    handed: Option<Option<Result<Frame<Bytes>, Status>>>,
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

/// A request that may still be going out while its response comes.
pub(crate) enum Sending {
    /// All of it was handed over: so many bytes.
    Whole(usize),
    /// It is passed on.
    Passing(Rewind),
}

impl Sending {
    pub(crate) fn upload(&self) -> Upload {
        match self {
            Self::Whole(bytes) => Upload::Whole(*bytes),
            Self::Passing(rewind) => rewind.upload(),
        }
    }

    /// Ends a stream of the caller's requests that goes on.
    pub(crate) fn cancel(&self) {
        if let Self::Passing(rewind) = self
            && rewind.upload() == Upload::Streaming
        {
            rewind.cancel();
        }
    }
}

impl Rewound {
    /// Notes what an attempt has taken.
    fn took(&mut self, frame: &Option<Result<Frame<Bytes>, Status>>) {
        if let Some(Ok(frame)) = frame {
            self.taken = match (self.taken.take(), frame.data_ref()) {
                (Some(taken), Some(data)) if taken.len() + data.len() <= self.keep => {
                    Some(join(taken, data.clone()))
                }
                _ => None,
            };
        }
    }
}

impl Rewind {
    /// Keeps up to `keep` bytes of `body`; 0 allows a replacement only while nothing is read.
    pub(crate) fn new(read: Bytes, rest: Body, keep: usize) -> Self {
        Self(Arc::new(Mutex::new(Rewound {
            rest: Some(rest),
            handed: None,
            taken: Some(read),
            keep,
            reader: 0,
            ended: false,
            cancelled: false,
            waiting: None,
        })))
    }

    /// A body that was [looked](look) at: what of it was read is kept already.
    pub(crate) fn more(more: More, keep: usize) -> Self {
        let rewind = Self::new(more.read, more.rest, keep);
        rewind.0.lock().handed = more.next.map(Some);
        rewind
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
            let rest = rewound.rest.take();
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

/// The reason is what the HTTP/2 stack puts into its RST_STREAM.
fn cancelled() -> Status {
    let reason = h2::Error::from(h2::Reason::CANCEL);
    Status::from_error(Box::new(reason))
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
        let mut rest = {
            let mut rewound = self.shared.lock();
            if rewound.reader != self.reader {
                return Poll::Ready(None);
            }
            if rewound.cancelled {
                return Poll::Ready(Some(Err(cancelled())));
            }
            if let Some(handed) = rewound.handed.take() {
                rewound.took(&handed);
                return Poll::Ready(handed);
            }
            match rewound.rest.take() {
                Some(rest) => {
                    rewound.waiting = None;
                    rest
                }
                // The attempt before is at it, and tells when it is done.
                None => {
                    rewound.waiting = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        };
        // The caller's own code runs in it, and may drop the response: not under the lock.
        let polled = Pin::new(&mut rest).poll_frame(cx);
        let ended = matches!(polled, Poll::Ready(None)) || rest.is_end_stream();
        let mut rewound = self.shared.lock();
        if rewound.cancelled {
            drop(rewound);
            return Poll::Ready(Some(Err(cancelled())));
        }
        rewound.ended |= ended;
        rewound.rest = Some(rest);
        if rewound.reader != self.reader {
            // A newer attempt has begun meanwhile: what has come is its.
            if let Poll::Ready(frame) = polled {
                rewound.handed = Some(frame);
            }
            let newer = rewound.waiting.take();
            drop(rewound);
            if let Some(newer) = newer {
                newer.wake();
            }
            return Poll::Ready(None);
        }
        rewound.waiting = polled.is_pending().then(|| cx.waker().clone());
        if let Poll::Ready(frame) = &polled {
            rewound.took(frame);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        if self.again.is_some() {
            return false;
        }
        let rewound = self.shared.lock();
        // An end here would be the request's own, and the server would take it for whole.
        let over = |rest: &Body| rest.is_end_stream();
        !rewound.cancelled && rewound.handed.is_none() && rewound.rest.as_ref().is_some_and(over)
    }
}
