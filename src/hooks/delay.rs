//! A user's own delay before a hedge.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;
use tonic_hedge_engine::policy::{Delay, DelayFuture, RequestView, Upcoming};

use super::{BoxError, Guarded, Panicked, caught};

/// A call's request, as its delays may depend on it. Made once for a call.
pub(crate) struct View {
    pub(crate) method: Arc<str>,
    pub(crate) headers: HeaderMap,
}

impl RequestView for View {
    fn method(&self) -> &str {
        &self.method
    }

    fn metadata(&self, key: &str) -> Option<&[u8]> {
        self.headers.get(key).map(|value| value.as_bytes())
    }
}

/// A delay that is being computed. A panic is an error like any other.
pub(crate) enum Delaying {
    Running(Guarded<<DelayFuture as Future>::Output>),
    Panicked,
}

impl Delaying {
    pub(crate) fn of(delay: &Delay, upcoming: Upcoming) -> Self {
        match caught(|| delay.of(upcoming)) {
            Ok(future) => Self::Running(Guarded::new(future)),
            Err(Panicked) => Self::Panicked,
        }
    }
}

impl Future for Delaying {
    type Output = Result<Duration, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let panicked = || Err(tonic::Status::internal("Hedge.delay_with panicked").into());
        Poll::Ready(match self.get_mut() {
            Self::Running(future) => match std::task::ready!(Pin::new(future).poll(cx)) {
                Ok(delay) => delay,
                Err(Panicked) => panicked(),
            },
            Self::Panicked => panicked(),
        })
    }
}
