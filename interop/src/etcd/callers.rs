//! Who calls: plain tonic, and a `HedgedChannel` in each mode.

use std::{error::Error, time::Duration};

use interop::Mode;
use tokio::time::sleep;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_hedge::{Builder, EndpointState, HedgedChannel, MethodPolicy};

use crate::{
    cluster::Cluster,
    kv::{PutRequest, PutResponse, RangeRequest, RangeResponse, kv_client::KvClient},
};

/// The modes with a meaning: the stops are what is slow here.
pub(crate) const MODES: [Mode; 3] = [Mode::Off, Mode::On, Mode::Forced];

/// Why there is no fourth.
pub(crate) const NOT_SLOW: &str = "the nodes that stop are slow in each mode";

/// Whoever calls.
#[derive(Clone)]
pub(crate) enum Caller {
    Plain(KvClient<Channel>),
    Hedged(KvClient<HedgedChannel>),
}

impl Caller {
    /// tonic's own balanced channel over all nodes.
    pub(crate) fn plain(cluster: &Cluster) -> Result<Self, Box<dyn Error>> {
        let endpoints: Result<Vec<_>, _> = cluster.uris().map(Endpoint::new).collect();
        let channel = Channel::balance_list(endpoints?.into_iter());
        Ok(Self::Plain(KvClient::new(channel)))
    }

    pub(crate) fn hedged(channel: &HedgedChannel) -> Self {
        Self::Hedged(KvClient::new(channel.clone()))
    }

    pub(crate) async fn range(
        self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        match self {
            Self::Plain(mut client) => client.range(request).await,
            Self::Hedged(mut client) => client.range(request).await,
        }
    }

    pub(crate) async fn put(
        self,
        request: Request<PutRequest>,
    ) -> Result<Response<PutResponse>, Status> {
        match self {
            Self::Plain(mut client) => client.put(request).await,
            Self::Hedged(mut client) => client.put(request).await,
        }
    }
}

/// A builder over all nodes that hedges `Range` in this mode: the mark comes from here.
pub(crate) fn hedged(cluster: &Cluster, mode: Mode) -> Builder {
    let builder = HedgedChannel::builder().endpoints(cluster.uris()).method(
        "etcdserverpb.KV/Range",
        MethodPolicy::new().idempotent(true),
    );
    match mode.hedge() {
        Some(hedge) => builder.hedge(hedge),
        None => builder,
    }
}

/// Waits until all nodes are connected: only then a hedge has somewhere to go. The channel begins to
/// connect with its first call.
pub(crate) async fn connected(channel: &HedgedChannel) {
    let ready = || {
        let endpoints = channel.measured().endpoints;
        endpoints.iter().all(|it| it.state == EndpointState::Ready)
    };
    while !ready() {
        sleep(Duration::from_millis(10)).await;
    }
}
