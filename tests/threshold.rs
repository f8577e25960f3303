//! What a channel's threshold learns and what not, whole channels in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, get, uniform};
use support::ProbeClient;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_hedge::{BreakerPolicy, Hedge, HedgedChannel};

const MS: Duration = Duration::from_millis(1);

fn channel(replicas: &[InMemory; 2]) -> HedgedChannel {
    builder(replicas)
        .hedge(Hedge::at(0.5))
        .breaker(
            BreakerPolicy::default()
                .consecutive(u32::MAX)
                .floor(0.9)
                .failure_ratio(1.0),
        )
        .build()
        .unwrap()
}

/// TH6: 40 % fail in a millisecond, which is no latency: the threshold is the others'.
#[tokio::test(start_paused = true)]
async fn th6_fast_failures() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
    let channel = channel(&replicas);
    let mut client = ProbeClient::new(channel.clone());
    for call in 0..100 {
        let request = match call % 5 {
            0 | 1 => asked(1, Code::Internal),
            _ => asked(50, Code::Ok),
        };
        let _result = client.get(request).await;
    }
    let threshold = get(&channel).threshold.unwrap();
    assert!((49 * MS..=51 * MS).contains(&threshold), "{threshold:?}");
    assert_eq!(get(&channel).samples, 60);
}

/// TH11: the machine sleeps for an hour. What it knew is too old to hedge by, so that the calls that
/// wake up with it are not all sent twice.
#[tokio::test(start_paused = true)]
async fn th11_a_suspended_machine_starts_no_burst() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
    let channel = channel(&replicas);
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..40 {
        client.get(asked(30, Code::Ok)).await.unwrap();
    }
    assert!(get(&channel).threshold.is_some());
    let before = get(&channel).hedges;

    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(get(&channel).threshold, None);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let mut client = client.clone();
        calls.spawn(async move { client.get(asked(200, Code::Ok)).await });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap().unwrap();
    }
    assert_eq!(get(&channel).hedges, before);
}
