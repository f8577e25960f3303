//! Several replicas of one script, the channel over them, and waiting for a channel's own state.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tonic::{Code, Request, client::Grpc, transport::Server};
use tonic_hedge::{BudgetPolicy, Builder, EndpointState, Hedge, HedgedChannel, Measured};

use super::{
    Answer, Arrival, PATIENCE, ProbeReply, ProbeRequest, Replica, Seen, probe,
    wire::{Rewrite, unchanged},
};

/// Replicas of one script, named `a`, `b`, `c`, ..., and what all of them saw.
pub struct Fleet {
    pub replicas: Vec<Replica>,
    pub seen: Arc<Seen>,
}

impl Fleet {
    pub async fn start<F, R>(count: u8, script: F) -> Self
    where
        F: Fn(Arrival) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::rewriting(count, unchanged(), script).await
    }

    /// With responses that are rewritten on their way out.
    pub async fn rewriting<F, R>(count: u8, rewrite: Rewrite, script: F) -> Self
    where
        F: Fn(Arrival) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let seen = Arc::new(Seen::default());
        let mut replicas = Vec::new();
        for index in 0..count {
            let name = char::from(b'a' + index).to_string();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            replicas.push(Replica::serve_seen(
                &name,
                listener,
                Server::builder(),
                Arc::clone(&seen),
                Arc::clone(&rewrite),
                script.clone(),
            ));
        }
        Self { replicas, seen }
    }

    /// Over all of them, hedging after 20 ms, with budget enough.
    pub fn builder(&self) -> Builder {
        HedgedChannel::builder()
            .endpoints(self.replicas.iter().map(Replica::uri))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::after(Duration::from_millis(20)))
            .budget(BudgetPolicy::default().initial(100.0))
    }

    /// A channel that is connected to all of them.
    pub async fn channel(&self, builder: Builder) -> HedgedChannel {
        let channel = builder.build().unwrap();
        connected(&channel, self.replicas.len()).await;
        channel
    }
}

/// Waits until `channel` is connected to `count` endpoints. A script sees nothing of it.
pub async fn connected(channel: &HedgedChannel, count: usize) {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/warm.Up/Up");
    let codec = tonic_prost::ProstCodec::<ProbeRequest, ProbeReply>::default();
    let status = grpc.unary(Request::new(ProbeRequest::default()), path, codec);
    let status = status.await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    until_measured(channel, "all endpoints are connected", |measured| {
        let ready = |state| state == EndpointState::Ready;
        let endpoints = measured.endpoints.iter();
        endpoints.filter(|endpoint| ready(endpoint.state)).count() == count
    })
    .await;
}

/// Waits until no attempt is in flight any more.
pub async fn settled(channel: &HedgedChannel) {
    until_measured(channel, "no attempt is in flight", |measured| {
        let mut endpoints = measured.endpoints.iter();
        endpoints.all(|endpoint| endpoint.in_flight == 0)
    })
    .await;
}

/// Waits until what `channel` measured `holds`.
pub async fn until_measured(
    channel: &HedgedChannel,
    what: &str,
    holds: impl Fn(&Measured) -> bool,
) {
    let wait = async {
        while !holds(&channel.measured()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        panic!("{what}: {:#?}", channel.measured());
    }
}
