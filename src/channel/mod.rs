//! `HedgedChannel`: the service that a generated client takes in place of tonic's `Channel`.

mod builder;
mod reuse;
mod shared;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tokio::runtime::Handle;
use tonic::{Status, body::Body};
use tower_service::Service;

pub use builder::{Builder, IntoDnsEndpoint, IntoEndpoint};
pub(crate) use shared::{Settings, Shared};

use crate::{
    call::{self, CallFuture},
    learned::Learned,
    measured::Measured,
};

/// A gRPC channel that races a slow call against a second replica.
///
/// It takes the place of tonic's `Channel` in any generated client, also inside an
/// `InterceptedService`. A clone shares everything: endpoints, estimates, budget, breaker.
/// Build one for the life of the process: what it has learnt lives with it.
///
/// Connections are made in the background from the first call on. Building it never blocks
/// and needs no runtime.
///
/// # Errors
/// A call ends with a [`tonic::Status`]: the server's own, whole, or one of
/// - DEADLINE_EXCEEDED: the call's `grpc-timeout` passed, wherever the call was;
/// - UNAVAILABLE: no endpoint could be connected to (the text names the last error), or the
///   circuit breaker is open (with `google.rpc.RetryInfo`);
/// - what the transport says of a connection that was lost.
///
/// Its [source](std::error::Error::source) is the call's [`CallLog`](crate::CallLog).
///
/// # Cancel safety
/// Dropping a call's future ends all its attempts. No task, stream or buffer outlives it, but
/// for attempts that are run out to spare their connection a reset; those are bounded.
#[derive(Clone)]
pub struct HedgedChannel {
    shared: Arc<Shared>,
}

/// The future of a call through a [`HedgedChannel`].
#[must_use = "a call runs only while it is polled"]
pub struct ResponseFuture {
    call: CallFuture,
}

impl HedgedChannel {
    /// What a channel is made from.
    ///
    /// ```
    /// use tonic_hedge::{Hedge, HedgedChannel};
    ///
    /// let channel = HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     .hedge(Hedge::at(0.95))
    ///     .build()?;
    /// # drop(channel);
    /// # Ok::<(), tonic_hedge::BuildError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects ahead of the first call: for a process that is not ready before its connections are.
    /// Ends when an endpoint is connected. The others go on connecting in the background, as they
    /// do from the first call on; a hedge needs two. Without it the first call does the same.
    ///
    /// It has no deadline of its own. A channel made from one
    /// [`Channel`](Builder::channel) of tonic's is always ready, since that hides its connections.
    ///
    /// # Errors
    /// UNAVAILABLE where a call would end so: no endpoint is connected and each has failed at least
    /// once, or there is none; the text names the last error. They are tried again all the same, so
    /// who starts beside its servers asks again. INTERNAL outside a tokio runtime.
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tonic_hedge::HedgedChannel;
    ///
    /// let channel = HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     .build()?;
    /// tokio::time::timeout(Duration::from_secs(5), channel.connect()).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(&self) -> Result<(), Status> {
        if Handle::try_current().is_err() {
            return Err(Status::internal("a connection needs a tokio runtime"));
        }
        self.shared.ensure_started();
        let connected = self.shared.endpoints().connected().await;
        connected.map_err(|why| Status::unavailable(why.to_string()))
    }

    /// What the channel has measured: thresholds, rates, budget, breaker, endpoints.
    pub fn measured(&self) -> Measured {
        Measured::of(&self.shared)
    }

    /// What the channel has learnt, for the next process: see [`Builder::resume`]. It is computed
    /// when it is asked for, in some microseconds for a method: take it at the end of a process, or
    /// each minute.
    pub fn learned(&self) -> Learned {
        Learned::of(&self.shared)
    }

    #[cfg(feature = "__bench")]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Service<Request<Body>> for HedgedChannel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = ResponseFuture;

    /// Always ready: waiting belongs inside the call, under its deadline.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        ResponseFuture {
            call: call::call(&self.shared, request),
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<Body>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.as_mut().poll(cx)
    }
}

impl fmt::Debug for HedgedChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgedChannel").finish_non_exhaustive()
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
