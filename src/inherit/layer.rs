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

use super::{CURRENT, Inherited};

/// A tonic server's layer: what a request causes is as critical as the request, and part of a hedge
/// if the request is one.
///
/// That is what its handler calls, and, where the handler streams its response, what the stream
/// calls. A task that either spawns is not in the scope ([`Inherited`] takes it along).
///
/// A request is part of a hedge by the metadata `x-hedge: 1`, which a
/// [`HedgedChannel`](crate::HedgedChannel) sends with a hedge and with every call that a hedge
/// causes, or by gRPC's own `grpc-previous-rpc-attempts`, which every client sends with a further
/// attempt (gRFC A6). The calls that it causes are not hedged: a hedge that passes through several
/// gateways stays one copy. They are retried as any other.
///
/// ```no_run
/// # async fn serve(router: tonic::service::Routes) -> Result<(), tonic::transport::Error> {
/// tonic::transport::Server::builder()
///     .layer(tonic_hedge::InheritLayer::new())
///     .add_routes(router)
///     .serve("127.0.0.1:50051".parse().unwrap())
///     .await
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct InheritLayer {
    hedge_again: bool,
}

/// The service of a [`InheritLayer`].
#[derive(Clone, Debug)]
pub struct InheritService<S> {
    inner: S,
    hedge_again: bool,
}

pin_project! {
    /// The future of a [`InheritService`].
    #[derive(Debug)]
    pub struct InheritFuture<F> {
        inherited: Inherited,
        #[pin]
        inner: F,
    }
}

pin_project! {
    /// The response body of a [`InheritService`].
    #[derive(Debug)]
    pub struct InheritBody<B> {
        inherited: Inherited,
        #[pin]
        inner: B,
    }
}

impl InheritLayer {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether calls that a hedge causes may be hedged here. Off by default. The mark goes on all
    /// the same: the next server decides for itself.
    #[must_use]
    pub fn hedge_again(mut self, hedge_again: bool) -> Self {
        self.hedge_again = hedge_again;
        self
    }
}

impl<S> Layer<S> for InheritLayer {
    type Service = InheritService<S>;

    fn layer(&self, service: S) -> InheritService<S> {
        InheritService {
            inner: service,
            hedge_again: self.hedge_again,
        }
    }
}

impl<S, A, B> Service<Request<A>> for InheritService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<InheritBody<B>>;
    type Error = S::Error;
    type Future = InheritFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let inherited = Inherited::of_request(request.headers(), self.hedge_again);
        let inner = CURRENT.sync_scope(inherited, || self.inner.call(request));
        InheritFuture { inherited, inner }
    }
}

impl<F, B, E> Future for InheritFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<InheritBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let inherited = *this.inherited;
        let response = ready!(CURRENT.sync_scope(inherited, || this.inner.poll(cx)))?;
        let body = |inner| InheritBody { inherited, inner };
        Poll::Ready(Ok(response.map(body)))
    }
}

impl<B: Body> Body for InheritBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        CURRENT.sync_scope(*this.inherited, || this.inner.poll_frame(cx))
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
    use crate::{
        criticality::{CRITICALITY, Criticality},
        inherit::HEDGE,
    };

    /// A body, or a handler, that notes where it is polled.
    struct Noting;

    impl Body for Noting {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            let current = match Inherited::current() {
                current if current.is_hedge() => "default, part of a hedge",
                current => current.criticality().map_or("none", Criticality::name),
            };
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
            let called = Inherited::current();
            Box::pin(async move {
                assert_eq!(Inherited::current(), called);
                Ok(Response::new(Self))
            })
        }
    }

    /// What a handler streams is made while the body is polled, after its future has ended.
    #[tokio::test]
    async fn the_scope_of_a_streamed_response() {
        for (name, word, expected) in [
            (CRITICALITY, "sheddable", "sheddable"),
            (CRITICALITY, "urgent", "default"),
            (HEDGE, "1", "default, part of a hedge"),
            (HEDGE, "0", "default"),
        ] {
            let mut request = Request::new(());
            let word = HeaderValue::from_static(word);
            request.headers_mut().insert(name, word);
            let mut service = InheritLayer::new().layer(Noting);
            let mut body = service.call(request).await.unwrap().into_body();
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let data = frame.unwrap().unwrap().into_data().unwrap();
            assert_eq!(data, expected.as_bytes());
            assert_eq!(Inherited::current(), Inherited::default());
        }
    }
}
