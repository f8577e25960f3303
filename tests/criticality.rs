//! Criticality: on the request, from the surrounding task, and through servers that call on.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::{sync::Arc, time::Duration};

use duplex::{InMemory, asked, builder, get, inserted, pipe, tail};
use support::{Arrival, ProbeClient, Seen, probe, scripted};
use tonic::{
    Code, Request,
    transport::{Channel, Server},
};
use tonic_hedge::{
    Criticality, EndpointSpec, Hedge, HedgedChannel, InheritLayer, RequestExt, ResponseExt,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn replicas() -> [InMemory; 2] {
    ["a", "b"].map(|name| InMemory::start(name, tail))
}

fn hedged(replicas: &[InMemory]) -> HedgedChannel {
    builder(replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap()
}

/// LA11: a sheddable call is never hedged; it is retried as any other.
#[tokio::test(start_paused = true)]
async fn la11_sheddable() {
    let replicas = replicas();
    let channel = hedged(&replicas);
    let mut client = ProbeClient::new(channel.clone());
    let slow = asked(1_000, Code::Ok).criticality(Criticality::Sheddable);
    let response = client.get(slow).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    assert_eq!(get(&channel).suppressed, [("not_sheddable", 1)]);
    let failing = asked(0, Code::Unavailable).criticality(Criticality::Sheddable);
    client.get(failing).await.unwrap();
    assert_eq!(get(&channel).retries, 1);
    assert_eq!(get(&channel).hedges, 0);
}

/// The strongest word first: the request's own, its metadata, the innermost scope.
#[tokio::test(start_paused = true)]
async fn precedence() {
    let replicas = replicas();
    let channel = hedged(&replicas);
    let hedged = async |request: Request<support::ProbeRequest>| {
        let mut client = ProbeClient::new(channel.clone());
        client.get(request).await.unwrap().hedged()
    };
    let slow = || asked(1_000, Code::Ok);
    let with_metadata = |value: &'static str| {
        let mut request = slow();
        request
            .metadata_mut()
            .insert("x-criticality", value.parse().unwrap());
        request
    };
    use Criticality::{Critical, Default, Sheddable};
    assert!(hedged(slow()).await);
    assert!(hedged(slow().criticality(Critical)).await);
    assert!(!hedged(with_metadata("sheddable")).await);
    assert!(hedged(with_metadata("critical")).await);
    assert!(hedged(with_metadata("sheddable").criticality(Default)).await);
    assert!(!hedged(with_metadata("critical").criticality(Sheddable)).await);
    Sheddable
        .scope(async {
            assert!(!hedged(slow()).await);
            assert!(hedged(slow().criticality(Critical)).await);
            assert!(hedged(with_metadata("critical")).await);
            assert!(!hedged(with_metadata("unknown")).await, "no word at all");
            Critical
                .scope(async { assert!(hedged(slow()).await, "the inner scope") })
                .await;
            assert!(!hedged(slow()).await, "the outer one again");
        })
        .await;
    assert!(hedged(slow()).await, "no scope");
}

/// The scope counts where the call is made, not where its future is polled.
#[tokio::test(start_paused = true)]
async fn the_scope_of_the_call() {
    let replicas = replicas();
    let channel = hedged(&replicas);
    let mut client = ProbeClient::new(channel.clone());
    let call = Criticality::Sheddable
        .scope(async move { client.get(asked(1_000, Code::Ok)).await })
        .await;
    assert!(!call.unwrap().hedged());
    let written = replicas.iter().flat_map(|it| it.seen.arrivals());
    let written: Vec<_> = written
        .map(|it| it.metadata.get("x-criticality").cloned())
        .collect();
    assert_eq!(written, [Some("sheddable".parse().unwrap())]);
}

/// A server that answers a call by calling on, behind the layer.
fn relay(name: &str, to: HedgedChannel) -> (Channel, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let service = scripted(name, Arc::clone(&seen), move |arrival: Arrival| {
        let mut client = ProbeClient::new(to.clone());
        async move { client.get(arrival.request).await }
    });
    let (channel, incoming) = pipe();
    let server = Server::builder()
        .layer(InheritLayer::new())
        .add_service(service);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    (channel, seen)
}

fn over(names: [(&str, Channel); 2]) -> HedgedChannel {
    let specs = names.map(|(name, channel)| EndpointSpec::channel(name, channel));
    let [one, two] = specs;
    HedgedChannel::builder()
        .discover(tokio_stream::iter([inserted(0, one), inserted(1, two)]))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap()
}

/// A sheddable request stays sheddable over two hops, each of which would hedge it; a default one
/// is hedged by each.
#[tokio::test(start_paused = true)]
async fn sheddable_over_two_hops() {
    for (criticality, on_the_wire) in [
        (Criticality::Sheddable, Some("sheddable")),
        (Criticality::Default, None),
        (Criticality::Critical, Some("critical")),
    ] {
        let leaves = replicas();
        let last = hedged(&leaves);
        let (b1, b1_seen) = relay("b1", last.clone());
        let (b2, b2_seen) = relay("b2", last.clone());
        let middle = over([("b1", b1), ("b2", b2)]);
        let (a1, _) = relay("a1", middle.clone());
        let (a2, _) = relay("a2", middle.clone());
        let first = over([("a1", a1), ("a2", a2)]);
        let mut client = ProbeClient::new(first.clone());
        client
            .get(asked(1_000, Code::Ok).criticality(criticality))
            .await
            .unwrap();
        let sheddable = criticality == Criticality::Sheddable;
        for channel in [&first, &middle, &last] {
            let get = get(channel);
            let held = get.suppressed.contains(&("not_sheddable", 1));
            assert_eq!(held, sheddable, "{criticality:?}: {get:?}");
            assert_eq!(get.hedges == 0, sheddable, "{criticality:?}: {get:?}");
        }
        let seen = leaves.iter().map(|it| &it.seen).chain([&b1_seen, &b2_seen]);
        for arrival in seen.flat_map(|seen| seen.arrivals()) {
            let word = arrival.metadata.get("x-criticality");
            assert_eq!(word.map(|it| it.to_str().unwrap()), on_the_wire);
        }
    }
}
