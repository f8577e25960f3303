//! What a client's API hides: each response's headers, trailers, and which messages came compressed.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use parking_lot::Mutex;
use tonic::{Status, body::Body};
use tonic_hedge::HedgedChannel;
use tower::Service;

/// The header that names a call to the replicas.
const ID: &str = "x-interop-call-id";

/// A gRPC message begins with a byte of flags and four of its length.
const PREFIX: usize = 5;

/// A channel that keeps what each of its calls was answered.
#[derive(Clone)]
pub(crate) struct Witness {
    channel: HedgedChannel,
    calls: Arc<Mutex<Vec<Arc<Mutex<Seen>>>>>,
}

/// What was seen of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// What its replicas call it.
    pub(crate) id: String,
    /// `/package.Service/Method`.
    pub(crate) path: String,
    /// `None` before there are any. As the ones of a call that has nothing else, too.
    pub(crate) headers: Option<HeaderMap>,
    /// Of each message of the response that has begun: whether its compressed flag is set.
    pub(crate) compressed: Vec<bool>,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A response's body as it passes.
struct Watched {
    body: Body,
    seen: Arc<Mutex<Seen>>,
    frames: Prefixes,
}

/// Finds the messages in a body whose chunks end anywhere.
#[derive(Default)]
struct Prefixes {
    prefix: Vec<u8>,
    /// Bytes of the current message that have not come yet.
    left: usize,
}

impl Witness {
    pub(crate) fn new(channel: HedgedChannel) -> Self {
        Self {
            channel,
            calls: Arc::default(),
        }
    }

    /// The call that began last.
    pub(crate) fn last(&self) -> Seen {
        let calls = self.calls.lock();
        calls
            .last()
            .map_or_else(Seen::default, |c| c.lock().clone())
    }

    pub(crate) fn calls(&self) -> Vec<Seen> {
        self.calls.lock().iter().map(|c| c.lock().clone()).collect()
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}

impl Service<Request<Body>> for Witness {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let id = next_id();
        if let Ok(value) = HeaderValue::from_str(&id) {
            request.headers_mut().insert(ID, value);
        }
        let seen = Arc::new(Mutex::new(Seen {
            id,
            path: request.uri().path().to_owned(),
            ..Seen::default()
        }));
        self.calls.lock().push(Arc::clone(&seen));
        let call = self.channel.call(request);
        Box::pin(async move {
            let response = call.await?;
            seen.lock().headers = Some(response.headers().clone());
            Ok(response.map(|body| {
                Body::new(Watched {
                    body,
                    seen,
                    frames: Prefixes::default(),
                })
            }))
        })
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let this = &mut *self;
            let mut seen = this.seen.lock();
            if let Some(data) = frame.data_ref() {
                this.frames.read(data.clone(), &mut seen.compressed);
            } else if let Some(trailers) = frame.trailers_ref() {
                seen.trailers = Some(trailers.clone());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Prefixes {
    fn read(&mut self, mut data: Bytes, compressed: &mut Vec<bool>) {
        while !data.is_empty() {
            let body = data.len().min(self.left);
            data.advance(body);
            self.left -= body;
            let missing = data.len().min(PREFIX - self.prefix.len());
            if self.left == 0 {
                self.prefix.extend_from_slice(&data.split_to(missing));
            }
            if let [flags, a, b, c, d] = self.prefix[..] {
                compressed.push(flags & 1 == 1);
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.prefix.clear();
            }
        }
    }
}

/// A name that no other call of this process has.
pub(crate) fn next_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Only unique: nothing else is ordered by it.
    format!("official-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A request that the replicas call `id`.
pub(crate) fn named<T>(message: T, id: &str) -> Result<tonic::Request<T>, tonic::Status> {
    let mut request = tonic::Request::new(message);
    let value = id.parse().map_err(|_| Status::internal("not an id"))?;
    request.metadata_mut().insert(ID, value);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks end anywhere: in a prefix, in a message, between two.
    #[test]
    fn messages_are_found_in_any_chunks() {
        let body = [
            &[1, 0, 0, 0, 3, 9, 9, 9][..],
            &[0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 1, 1],
            &[0, 0, 0, 0, 1, 1],
        ]
        .concat();
        for size in 1..=body.len() {
            let mut frames = Prefixes::default();
            let mut compressed = Vec::new();
            for chunk in body.chunks(size) {
                frames.read(Bytes::copy_from_slice(chunk), &mut compressed);
            }
            assert_eq!(compressed, [true, false, true, false], "{size}");
        }
    }
}
