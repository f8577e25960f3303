//! Failures that happen together are one event to the breaker's count of failures in a row.

#![allow(clippy::unwrap_used)]

mod support;

use support::{
    Arrival, Fleet, ProbeClient, connected, probe, proxy::Proxy, request, until_measured,
};
use tonic::Code;
use tonic_hedge::{BreakerState, HedgedChannel};

/// More than what opens the breaker by failures in a row.
const LOST: u32 = 8;

/// BR12: a connection of one endpoint of two breaks with many calls on it. They fail, and the calls to
/// the other endpoint do not.
#[tokio::test]
async fn br12_a_lost_connection_is_one_failure() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.request.id == "held" {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let mut ways = Vec::new();
    for replica in &fleet.replicas {
        ways.push(Proxy::to(replica.addr).await);
    }
    let channel = HedgedChannel::builder()
        .endpoints(ways.iter().map(Proxy::uri))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    connected(&channel, 2).await;

    let mut held = Vec::new();
    // Whichever it is: an endpoint that has answered before gets more of them.
    let full = |channel: &HedgedChannel| {
        let endpoints = channel.measured().endpoints;
        endpoints.iter().position(|it| it.in_flight >= LOST)
    };
    let full = loop {
        if let Some(full) = full(&channel) {
            break full;
        }
        let sent = fleet.seen.calls();
        let mut client = ProbeClient::new(channel.clone());
        held.push(tokio::spawn(
            async move { client.put(request("held")).await },
        ));
        fleet
            .seen
            .until("it arrives", |seen| seen.calls() > sent)
            .await;
    };
    ways[full].cut();
    until_measured(&channel, "they have failed", |measured| {
        measured.endpoints[full].in_flight == 0
    })
    .await;

    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, BreakerState::Closed);
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..20 {
        client.put(request("next")).await.unwrap();
    }
    let mut failed = 0;
    for call in held {
        if call.is_finished() {
            assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
            failed += 1;
        } else {
            call.abort();
        }
    }
    assert_eq!(failed, LOST);
}
