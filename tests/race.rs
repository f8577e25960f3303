//! The race of one call over real tonic servers: who answers, who is cancelled, what the log says.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Latch, ProbeClient, Replica, probe, request};
use tonic_hedge::{AttemptKind, AttemptOutcome, Hedge, HedgedChannel, ResponseExt};

fn builder(replicas: &[&Replica]) -> tonic_hedge::Builder {
    HedgedChannel::builder()
        .endpoints(replicas.iter().map(|replica| replica.uri()))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
}

/// RC1: a fast original is alone.
#[tokio::test]
async fn rc1_fast_primary() {
    let a = Replica::fast("a").await;
    let b = Replica::fast("b").await;
    let mut client = ProbeClient::new(builder(&[&a, &b]).build().unwrap());
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts().len(), 1);
    assert!(!response.hedged());
    assert_eq!(a.seen.calls() + b.seen.calls(), 1);
}

/// RC2, CA6: a hedge on another replica wins, and the original's handler is dropped.
#[tokio::test]
async fn rc2_hedge_wins() {
    // Whichever is asked first never answers.
    let first = Latch::closed();
    let script = move |arrival: support::Arrival| {
        let first = first.clone();
        async move {
            if arrival.metadata.get("grpc-previous-rpc-attempts").is_none() {
                first.passed().await;
            }
            arrival.ok()
        }
    };
    let a = Replica::start("a", script.clone()).await;
    let b = Replica::start("b", script).await;
    let mut client = ProbeClient::new(builder(&[&a, &b]).build().unwrap());
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    println!("{log}");
    assert!(log.hedged() && log.hedge_won());
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Discarded);
    assert_eq!(log.attempts()[1].kind(), AttemptKind::Hedge);
    assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
    let (loser, winner) = match response.get_ref().replica.as_str() {
        "a" => (&b, &a),
        _ => (&a, &b),
    };
    loser
        .seen
        .until("cancelled", |seen| seen.cancelled() == 1)
        .await;
    assert_eq!(winner.seen.finished(), 1);
}
