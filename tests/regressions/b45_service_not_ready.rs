//! tower-resilience#286, #307, #362: an attempt was made with a clone of a service that had not been
//! asked whether it is ready.
//!
//! Right: each attempt asks its own. tonic's `Channel` panics where that is left out; with a buffer
//! of one place it makes those wait that come too many.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{Status, transport::Endpoint};
use tonic_hedge::{AttemptKind, BudgetPolicy, Hedge, HedgedChannel, ResponseExt, Retry};

use crate::support::{
    Arrival, ProbeClient, Replica, connected, probe,
    raw::{REFUSED_STREAM, Raw, Step, ok, script},
    request,
};

fn narrow(uri: String) -> Endpoint {
    Endpoint::new(uri).unwrap().buffer_size(1)
}

#[tokio::test]
async fn hedges_and_retries_ask() {
    // The third attempt answers: the first never does, the second fails.
    let script = |arrival: Arrival| async move {
        match arrival.previous() {
            0 => std::future::pending().await,
            1 => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    };
    let mut replicas = Vec::new();
    for name in ["a", "b", "c"] {
        replicas.push(Replica::start(name, script).await);
    }
    let channel = HedgedChannel::builder()
        .endpoints(replicas.iter().map(|replica| narrow(replica.uri())))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(5)).max_concurrent(3))
        .retry(Retry::default().base(Duration::ZERO))
        .budget(BudgetPolicy::default().capacity(1e6).initial(1e6))
        .without_breaker()
        .build()
        .unwrap();
    connected(&channel, 3).await;
    let mut calls = JoinSet::new();
    for id in 0..60 {
        let mut client = ProbeClient::new(channel.clone());
        calls.spawn(async move { client.get(request(&id.to_string())).await });
    }
    for call in calls.join_all().await {
        assert_eq!(call.unwrap().get_ref().previous_attempts, 2);
    }
}

#[tokio::test]
async fn replacements_ask() {
    let steps = script(|number| match number % 2 {
        1 => vec![Step::Body, Step::Reset(REFUSED_STREAM)],
        _ => ok("good"),
    });
    let a = Raw::start(steps.clone()).await;
    let channel = HedgedChannel::builder()
        .endpoints([narrow(a.uri())])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel);
    client.put(request("warm")).await.unwrap();
    for id in 0..50 {
        let response = client.put(request(&id.to_string())).await.unwrap();
        let log = response.call_log().unwrap();
        assert_eq!(log.attempts()[1].kind(), AttemptKind::Replacement);
    }
}
