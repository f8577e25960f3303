//! tower#472: a hedge reserved a place in the inner service's buffer when its call began, and kept
//! it although it never started, until all places were gone.
//!
//! Right: a place is taken by an attempt that is sent, and no sooner. Two places serve a thousand
//! calls that are not hedged, though each could be.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use tonic_hedge::{Hedge, HedgedChannel};

use crate::support::{ProbeClient, Replica, connected, probe, request, settled};

#[tokio::test]
async fn two_places_for_a_thousand_calls() {
    let (a, b) = (Replica::fast("a").await, Replica::fast("b").await);
    let narrow = |replica: &Replica| Endpoint::new(replica.uri()).unwrap().buffer_size(2);
    let channel = HedgedChannel::builder()
        .endpoints([narrow(&a), narrow(&b)])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_secs(3600)))
        .build()
        .unwrap();
    connected(&channel, 2).await;
    let mut calls = JoinSet::new();
    for id in 0..50 {
        let mut client = ProbeClient::new(channel.clone());
        calls.spawn(async move {
            for _ in 0..20 {
                client.get(request(&id.to_string())).await.unwrap();
            }
        });
    }
    calls.join_all().await;
    settled(&channel).await;
    assert_eq!(a.seen.calls() + b.seen.calls(), 1_000);
}
