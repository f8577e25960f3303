//! The server's side: a scope around all that a request causes, its streamed response included.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{CURRENT, Criticality};

/// A tonic server's layer: what a request causes is as critical as the request.
///
/// That is what its handler calls, and, where the handler streams its response, what the stream
/// calls. A task that either spawns is not in the scope.
///
/// ```no_run
/// # async fn serve(router: tonic::service::Routes) -> Result<(), tonic::transport::Error> {
/// tonic::transport::Server::builder()
///     .layer(tonic_hedge::CriticalityLayer::new())
///     .add_routes(router)
///     .serve("127.0.0.1:50051".parse().unwrap())
///     .await
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CriticalityLayer(());

/// The service of a [`CriticalityLayer`].
#[derive(Clone, Debug)]
pub struct CriticalityService<S>(S);

pin_project! {
    /// The future of a [`CriticalityService`].
    #[derive(Debug)]
    pub struct CriticalityFuture<F> {
        criticality: Criticality,
        #[pin]
        inner: F,
    }
}

pin_project! {
    /// The response body of a [`CriticalityService`].
    #[derive(Debug)]
    pub struct CriticalityBody<B> {
        criticality: Criticality,
        #[pin]
        inner: B,
    }
}

impl CriticalityLayer {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for CriticalityLayer {
    type Service = CriticalityService<S>;

    fn layer(&self, service: S) -> CriticalityService<S> {
        CriticalityService(service)
    }
}

impl<S, A, B> Service<Request<A>> for CriticalityService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<CriticalityBody<B>>;
    type Error = S::Error;
    type Future = CriticalityFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let criticality = Criticality::of_metadata(request.headers()).unwrap_or_default();
        let inner = CURRENT.sync_scope(criticality, || self.0.call(request));
        CriticalityFuture { criticality, inner }
    }
}

impl<F, B, E> Future for CriticalityFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CriticalityBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let criticality = *this.criticality;
        let response = ready!(CURRENT.sync_scope(criticality, || this.inner.poll(cx)))?;
        let body = |inner| CriticalityBody { criticality, inner };
        Poll::Ready(Ok(response.map(body)))
    }
}

impl<B: Body> Body for CriticalityBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        CURRENT.sync_scope(*this.criticality, || this.inner.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn};

    use http::HeaderValue;

    use super::*;
    use crate::criticality::CRITICALITY;

    /// A body, or a handler, that notes where it is polled.
    struct Noting;

    impl Body for Noting {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            let current = Criticality::current().map_or("none", Criticality::name);
            Poll::Ready(Some(Ok(Frame::data(current.as_bytes()))))
        }
    }

    impl Service<Request<()>> for Noting {
        type Response = Response<Self>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<Self>, Infallible>>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            let called = Criticality::current();
            Box::pin(async move {
                assert_eq!(Criticality::current(), called);
                Ok(Response::new(Self))
            })
        }
    }

    /// What a handler streams is made while the body is polled, after its future has ended.
    #[tokio::test]
    async fn the_scope_of_a_streamed_response() {
        for (word, expected) in [
            (Some("sheddable"), "sheddable"),
            (Some("urgent"), "default"),
            (None, "default"),
        ] {
            let mut request = Request::new(());
            if let Some(word) = word {
                let word = HeaderValue::from_static(word);
                request.headers_mut().insert(CRITICALITY, word);
            }
            let mut service = CriticalityLayer::new().layer(Noting);
            let mut body = service.call(request).await.unwrap().into_body();
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let data = frame.unwrap().unwrap().into_data().unwrap();
            assert_eq!(data, expected.as_bytes());
            assert_eq!(Criticality::current(), None);
        }
    }
}
