//! Responses that tonic's server would not send by itself, made from those that it sends.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

/// What becomes of a response on its way out.
pub type Rewrite = Arc<dyn Fn(Response<Body>) -> Response<Body> + Send + Sync>;

pub fn unchanged() -> Rewrite {
    Arc::new(|response| response)
}

/// A server's service, with its responses rewritten. It also tells its handlers the authority
/// that the request was sent to, as metadata.
#[derive(Clone)]
pub struct Rewriting<S> {
    inner: S,
    rewrite: Rewrite,
}

pub const AUTHORITY: &str = "x-authority";

impl<S> Rewriting<S> {
    pub fn new(inner: S, rewrite: Rewrite) -> Self {
        Self { inner, rewrite }
    }
}

impl<S: NamedService> NamedService for Rewriting<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Rewriting<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(authority) = request.uri().authority() {
            let value = HeaderValue::from_str(authority.as_str()).unwrap();
            request.headers_mut().insert(AUTHORITY, value);
        }
        let response = self.inner.call(request);
        let rewrite = Arc::clone(&self.rewrite);
        Box::pin(async move { Ok(rewrite(response.await?)) })
    }
}

/// The status moves from the head to trailers, after no message at all.
pub fn in_trailers(mut response: Response<Body>) -> Response<Body> {
    let Some(status) = response.headers_mut().remove("grpc-status") else {
        return response;
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status);
    response.map(|_| of_frames(vec![Frame::trailers(trailers)]))
}

/// Its trailers become these.
pub fn with_trailers(
    response: Response<Body>,
    change: impl Fn(&mut HeaderMap) + Send + Sync + 'static,
) -> Response<Body> {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| match frame.into_trailers() {
            Ok(mut trailers) => {
                change(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(data) => data,
        }))
    })
}

/// These frames, and the end.
pub fn of_frames(frames: Vec<Frame<Bytes>>) -> Body {
    let frames = frames.into_iter().map(Ok::<_, Status>);
    Body::new(http_body_util::StreamBody::new(tokio_stream::iter(frames)))
}

/// A message's frame.
pub fn message(payload: &[u8]) -> Frame<Bytes> {
    let mut frame = vec![0];
    frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend(payload);
    Frame::data(frame.into())
}

/// The trailers of an OK.
pub fn ok_trailers() -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    Frame::trailers(trailers)
}
