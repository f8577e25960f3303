//! The same calls through `tower::hedge`, as one would put it before a generated client: a channel's
//! requests cannot be cloned, messages can.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tonic::{Response, Status, transport::Channel};
use tower::{
    Service, ServiceExt as _,
    hedge::{Hedge, Policy},
};

use crate::{
    args::Outcome,
    at_once::probe::{ProbeReply, ProbeRequest, probe_client::ProbeClient},
    calls::Call,
};

/// Longer than a bench: the threshold stays the one that it is given.
const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// What it takes for an estimate.
const SAMPLES: u64 = 20;

pub(crate) struct TowerHedge(Hedge<Get, Hedging>);

impl TowerHedge {
    /// Hedges calls that take longer than `threshold`, if `hedging` is so.
    pub(crate) fn new(client: ProbeClient<Channel>, threshold: Duration, hedging: Hedging) -> Self {
        let latencies = [threshold.as_millis() as u64; SAMPLES as usize];
        Self(Hedge::new_with_mock_latencies(
            Get(client),
            hedging,
            SAMPLES,
            0.95,
            PERIOD,
            &latencies,
        ))
    }
}

impl Call for TowerHedge {
    async fn call(&mut self, request: ProbeRequest) -> Outcome<()> {
        let answer = self.0.ready().await?.call(request);
        answer.await.map(drop)
    }
}

/// Whether a call that outruns the threshold is hedged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hedging(pub(crate) bool);

impl Policy<ProbeRequest> for Hedging {
    fn clone_request(&self, request: &ProbeRequest) -> Option<ProbeRequest> {
        Some(request.clone())
    }
    fn can_retry(&self, _: &ProbeRequest) -> bool {
        self.0
    }
}

/// A generated client's method as a service.
#[derive(Clone)]
struct Get(ProbeClient<Channel>);

impl Service<ProbeRequest> for Get {
    type Response = Response<ProbeReply>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    /// The generated client waits for its channel itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ProbeRequest) -> Self::Future {
        let mut client = self.0.clone();
        Box::pin(async move { client.get(request).await })
    }
}
