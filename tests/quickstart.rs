//! The parts of `examples/quickstart`, in a small version: what must hold on any machine,
//! however slow. Percentiles are not among that.

#![allow(dead_code, clippy::unwrap_used)]

#[path = "../examples/quickstart/load.rs"]
mod load;
#[path = "../examples/quickstart/replica.rs"]
mod replica;
#[path = "../examples/quickstart/report.rs"]
mod report;

use load::Run;
use replica::{Replica, probe, take_counts};
use report::Side;
use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{Hedge, HedgedChannel};

const CALLS: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quickstart_counts() {
    let replicas = Replica::start_three().await.unwrap();
    let endpoints = replicas
        .iter()
        .map(|replica| Endpoint::from_shared(replica.uri()).unwrap());
    let plain = Channel::balance_list(endpoints);
    let hedged = HedgedChannel::builder()
        .endpoints(replicas.iter().map(Replica::uri))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::at(0.85))
        .build()
        .unwrap();

    let seen = Run::new("plain", CALLS, 16).drive(plain).await;
    let plain = Side::new(seen, take_counts(&replicas).await);
    let seen = Run::new("hedged", CALLS, 16).drive(hedged.clone()).await;
    let hedged_side = Side::new(seen, take_counts(&replicas).await);

    let json = report::json(&plain, &hedged_side, &hedged.measured());
    let count = |side: &str, field: &str| json[side][field].as_u64().unwrap();
    for side in ["plain", "hedged"] {
        assert_eq!(count(side, "calls"), CALLS, "{json}");
        assert_eq!(count(side, "errors"), 0, "{json}");
    }
    assert_eq!(count("plain", "upstream_calls"), CALLS, "{json}");
    assert_eq!(count("plain", "cancelled_upstream"), 0, "{json}");

    let hedges = count("hedged", "hedges");
    let losers = count("hedged", "upstream_calls") - CALLS;
    assert_eq!(count("hedged", "same_endpoint_hedges"), 0, "{json}");
    assert!(count("hedged", "hedge_wins") <= hedges, "{json}");
    // A hedge whose original answers meanwhile may never leave.
    assert!(losers <= hedges, "{json}");
    // A loser may have answered while it was being cancelled, or be run out.
    assert!(count("hedged", "cancelled_upstream") <= losers, "{json}");
}
