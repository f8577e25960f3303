//! A response's body, which holds the call's place until it ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{held::Held, scope::Scope};

pin_project! {
    /// The response body of a [`LaneService`](super::LaneService).
    #[derive(Debug)]
    pub struct LaneBody<B> {
        // `None` is the body of a call that was shed: empty.
        #[pin]
        inner: Option<B>,
        held: Option<Held>,
        scope: Scope,
    }
}

impl<B> LaneBody<B> {
    pub(super) fn empty() -> Self {
        Self {
            inner: None,
            held: None,
            scope: Scope::default(),
        }
    }

    pub(super) fn new(inner: B, held: Held, scope: Scope) -> Self {
        Self {
            inner: Some(inner),
            held: Some(held),
            scope,
        }
    }
}

impl<B> Body for LaneBody<B>
where
    B: Body,
    B::Error: 'static,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let polled = ready!(this.scope.within(|| inner.as_mut().poll_frame(cx)));
        if let Some(held) = this.held {
            match &polled {
                None => held.ended(),
                Some(Err(error)) => held.failed(error),
                Some(Ok(frame)) => {
                    if frame.data_ref().is_some_and(|data| data.has_remaining()) {
                        held.data();
                    }
                    if let Some(trailers) = frame.trailers_ref() {
                        held.trailers(trailers);
                    }
                    // Who is told so does not ask for more.
                    if inner.is_end_stream() {
                        held.ended();
                    }
                }
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
