//! Polly#1340: hedging took over the token of a timeout inside it, and cancelled too early.
//!
//! Right: a timeout of one attempt's own, as tonic's `Endpoint` has it, ends that attempt alone. Its
//! hedge goes on and is the call's answer; the call's own deadline is another matter.

use std::time::Duration;

use tonic::{Code, transport::Endpoint};
use tonic_hedge::{AttemptKind, AttemptOutcome, Hedge, HedgedChannel, ResponseExt};

use crate::support::{
    Arrival, Latch, ProbeClient, Replica, connected, probe, request, until_measured,
};

#[tokio::test]
async fn ends_that_attempt_alone() {
    let release = Latch::closed();
    let script = {
        let release = release.clone();
        move |arrival: Arrival| {
            let release = release.clone();
            async move {
                match arrival.previous() {
                    0 => std::future::pending().await,
                    _ => release.passed().await,
                }
                arrival.ok()
            }
        }
    };
    let a = Replica::start("a", script.clone()).await;
    let b = Replica::start("b", script).await;
    // A's attempts have 40 ms; B's have as long as the call.
    let hasty = Endpoint::new(a.uri()).unwrap();
    let hasty = hasty.timeout(Duration::from_millis(40));
    let patient = Endpoint::new(b.uri()).unwrap();
    let channel = HedgedChannel::builder()
        .endpoints([hasty, patient])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(10)))
        .max_attempts(2)
        .without_breaker()
        .build()
        .unwrap();
    connected(&channel, 2).await;
    // Until the original is A's: the picker has no reason to prefer either.
    for _ in 0..200 {
        let call = tokio::spawn({
            let mut client = ProbeClient::new(channel.clone());
            async move { client.get(request("1")).await }
        });
        until_measured(&channel, "A's attempt has timed out", |measured| {
            measured.endpoints[0].in_flight == 0 && measured.endpoints[1].in_flight == 1
        })
        .await;
        let original_at_a = {
            let calls = a.seen.arrivals();
            calls.last().is_some_and(|arrival| arrival.previous() == 0)
        };
        if !original_at_a {
            call.abort();
            let _ = call.await;
            continue;
        }
        release.open();
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.get_ref().replica, "b");
        let log = response.call_log().unwrap();
        let [original, hedge] = log.attempts() else {
            panic!("{log}");
        };
        let failed = AttemptOutcome::Failed(Code::DeadlineExceeded);
        assert_eq!(original.outcome(), failed, "{log}");
        assert_eq!(hedge.kind(), AttemptKind::Hedge, "{log}");
        assert_eq!(hedge.outcome(), AttemptOutcome::Won(Code::Ok), "{log}");
        return;
    }
    panic!("A never had an original");
}
