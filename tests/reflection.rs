//! Methods that a channel learns from its server, by both versions of the reflection service.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use support::{Arrival, ProbeClient, Seen, probe, request, scripted, settled, until_measured};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, transport::Server};
use tonic_hedge::{
    Builder, Hedge, HedgedChannel, MethodPolicy, ReflectionState, ResponseExt, Retry,
};
use tonic_reflection::server::Builder as Reflecting;

/// Which reflection a server offers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Offers {
    Nothing,
    V1,
    V1Alpha,
}

/// A server whose hedges alone are answered, and the address it listens at.
async fn server(offers: Offers, set: &'static [u8], seen: &Arc<Seen>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let probe = scripted("a", Arc::clone(seen), |arrival: Arrival| async move {
        if arrival.method == "Get" && arrival.previous() == 0 && arrival.request.id != "warm" {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    });
    let mut router = Server::builder().add_service(probe);
    let reflecting = || Reflecting::configure().register_encoded_file_descriptor_set(set);
    match offers {
        Offers::Nothing => {}
        Offers::V1 => router = router.add_service(reflecting().build_v1().unwrap()),
        Offers::V1Alpha => router = router.add_service(reflecting().build_v1alpha().unwrap()),
    }
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    uri
}

/// A set without options of ours: tonic's own reflection would lose them.
fn plain() -> &'static [u8] {
    let methods = "
        rpc Get(Empty) returns (Empty) { option idempotency_level = NO_SIDE_EFFECTS; }
        rpc Put(Empty) returns (Empty);
        rpc Keyed(Empty) returns (Empty) { option idempotency_level = IDEMPOTENT; }
        rpc Watch(Empty) returns (stream Empty) { option idempotency_level = NO_SIDE_EFFECTS; }";
    support::compiled::compiled("hedge.testing.v1", "Probe", methods).leak()
}

async fn builder(offers: Offers, set: &'static [u8], seen: &Arc<Seen>) -> Builder {
    let uris = [
        server(offers, set, seen).await,
        server(offers, set, seen).await,
    ];
    HedgedChannel::builder()
        .endpoints(uris)
        .hedge(Hedge::after(Duration::from_millis(5)))
        .reflection()
}

/// Calls once, so that it starts, and waits until it is over.
async fn learnt(channel: &HedgedChannel) -> ReflectionState {
    assert_eq!(
        channel.measured().reflection,
        Some(ReflectionState::Asking(None))
    );
    let mut client = ProbeClient::new(channel.clone());
    client.get(request("warm")).await.unwrap();
    until_measured(
        channel,
        "reflection is over, both are connected",
        |measured| {
            let state = measured.reflection.as_ref().unwrap();
            let ready =
                |it: &tonic_hedge::EndpointMeasured| it.state == tonic_hedge::EndpointState::Ready;
            !matches!(state, ReflectionState::Asking(_)) && measured.endpoints.iter().all(ready)
        },
    )
    .await;
    channel.measured().reflection.unwrap()
}

/// Before it has learnt a call has one attempt; then it is hedged. Both versions serve.
#[tokio::test]
async fn a_channel_learns_its_methods() {
    for offers in [Offers::V1, Offers::V1Alpha] {
        let seen = Arc::new(Seen::default());
        let channel = builder(offers, plain(), &seen).await.build().unwrap();
        assert_eq!(
            learnt(&channel).await,
            ReflectionState::Learned(4),
            "{offers:?}"
        );
        let mut client = ProbeClient::new(channel.clone());
        let response = client.get(request("get")).await.unwrap();
        assert!(response.hedge_won(), "{offers:?}");
        // The others are as their options say.
        client.put(request("put")).await.unwrap();
        assert_eq!(seen.of("put").len(), 1);
        settled(&channel).await;
    }
}

/// A method that is learnt later goes on from what was handed on when the channel was built: nothing else
/// gives its first call a threshold.
#[tokio::test]
async fn a_method_that_is_learnt_goes_on() {
    let taken = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let learned = serde_json::json!({
        "taken": {"version": 1, "unix_ms": taken.as_millis() as u64},
        "methods": {"hedge.testing.v1.Probe/Get": {"window": {"ended": [[5_000, 100]]}}},
    });
    let seen = Arc::new(Seen::default());
    let builder = builder(Offers::V1, plain(), &seen).await;
    let channel = builder
        .hedge(Hedge::at(0.95))
        .resume(
            serde_json::from_value(learned).unwrap(),
            Duration::from_secs(60),
        )
        .build()
        .unwrap();
    learnt(&channel).await;
    let mut client = ProbeClient::new(channel);
    let call = tokio::time::timeout(support::PATIENCE, client.get(request("get")));
    assert!(call.await.unwrap().unwrap().hedge_won());
}

/// A server without it leaves the channel as it was, which says so.
#[tokio::test]
async fn without_reflection_it_stays_at_one_attempt() {
    let seen = Arc::new(Seen::default());
    let channel = builder(Offers::Nothing, plain(), &seen)
        .await
        .build()
        .unwrap();
    assert_eq!(learnt(&channel).await, ReflectionState::Unsupported);
    let mut call = tonic::Request::new(request("get"));
    call.set_timeout(Duration::from_millis(100));
    let status = ProbeClient::new(channel).get(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(seen.of("get").len(), 1);
}

/// Options of ours survive where the server keeps the compiler's bytes.
#[tokio::test]
async fn a_veto_survives_reflection() {
    let seen = Arc::new(Seen::default());
    let set = probe::FILE_DESCRIPTOR_SET;
    let channel = builder(Offers::V1, set, &seen)
        .await
        .hedge(Hedge::immediately());
    let channel = channel.build().unwrap();
    // All that build.rs compiles.
    assert_eq!(learnt(&channel).await, ReflectionState::Learned(10));
    let mut client = ProbeClient::new(channel);
    client.vetoed(request("vetoed")).await.unwrap();
    client.keyed(request("keyed")).await.unwrap();
    assert_eq!(seen.of("vetoed").len(), 1);
    assert_eq!(seen.of("keyed").len(), 2);
}

/// A server that has lost the options of its files is not believed: a veto may be among them.
#[tokio::test]
async fn cf12_a_server_that_lost_its_options_is_refused() {
    use prost::Message;

    let seen = Arc::new(Seen::default());
    let lost = prost_types::FileDescriptorSet::decode(probe::FILE_DESCRIPTOR_SET).unwrap();
    let channel = builder(Offers::V1, lost.encode_to_vec().leak(), &seen).await;
    let channel = channel.build().unwrap();
    let ReflectionState::Refused(why) = learnt(&channel).await else {
        panic!("{:?}", channel.measured().reflection);
    };
    assert!(why.contains("lost its extensions"), "{why}");
}

/// Where the user's set and the server disagree the stricter wins, in either direction; policies by
/// name hold for what is learnt, and what a method has measured is kept.
#[tokio::test]
async fn cf10_the_stricter_wins() {
    let seen = Arc::new(Seen::default());
    let methods = "
        rpc Get(Empty) returns (Empty);
        rpc Put(Empty) returns (Empty) { option idempotency_level = IDEMPOTENT; }";
    let own = support::compiled::compiled("hedge.testing.v1", "Probe", methods);
    let keyed = "hedge.testing.v1.Probe/Keyed";
    let channel = builder(Offers::V1, plain(), &seen)
        .await
        .retry(Retry::off())
        .descriptors(own)
        .build()
        .unwrap();
    ProbeClient::new(channel.clone())
        .put(request("before"))
        .await
        .unwrap();
    let before = channel.measured();
    assert_eq!(learnt(&channel).await, ReflectionState::Learned(4));
    let mut client = ProbeClient::new(channel.clone());
    // The user's `Get` and the server's `Put` are not declared.
    for id in ["get", "put"] {
        let mut call = tonic::Request::new(request(id));
        call.set_timeout(Duration::from_millis(100));
        let _either = match id {
            "get" => client.get(call).await,
            _ => client.put(call).await,
        };
        assert_eq!(seen.of(id).len(), 1, "{id}");
    }
    drop(before);

    let vetoed = MethodPolicy::new().idempotent(false);
    let channel = builder(Offers::V1, plain(), &seen)
        .await
        .method(keyed, vetoed);
    let channel = channel.hedge(Hedge::immediately()).build().unwrap();
    assert_eq!(learnt(&channel).await, ReflectionState::Learned(4));
    ProbeClient::new(channel)
        .keyed(request("vetoed"))
        .await
        .unwrap();
    assert_eq!(seen.of("vetoed").len(), 1);

    // A name that the server does not have is a mistake that only shows now.
    let typed = MethodPolicy::new().idempotent(true);
    let channel = builder(Offers::V1, plain(), &seen).await;
    let channel = channel
        .method("hedge.testing.v1.Probe/Gett", typed)
        .build()
        .unwrap();
    assert_eq!(learnt(&channel).await, ReflectionState::Learned(4));
}

/// A policy by name that contradicts what the server says does not keep a veto out, and neither do
/// options that cannot be.
#[tokio::test]
async fn a_servers_veto_beats_a_policy_by_name() {
    let compiled = |methods| support::compiled::compiled("hedge.testing.v1", "Probe", methods);
    let vetoed = "rpc Keyed(Empty) returns (Empty) {
        option idempotency_level = IDEMPOTENT;
        option (.hedge.v1.method).idempotent = false;
    }";
    let unmarked = "rpc Keyed(Empty) returns (Empty);";
    let absurd = "rpc Keyed(Empty) returns (Empty) {
        option idempotency_level = IDEMPOTENT;
        option (.hedge.v1.method).quantile = 7;
    }";
    let idempotent = "rpc Keyed(Empty) returns (Empty) { option idempotency_level = IDEMPOTENT; }";
    let hedged = || MethodPolicy::new().hedge(Hedge::immediately());
    for (says, by_name, own) in [
        (vetoed, hedged().idempotent(true), None),
        (vetoed, hedged(), Some(idempotent)),
        (unmarked, hedged(), Some(idempotent)),
        (absurd, hedged(), Some(idempotent)),
        (absurd, MethodPolicy::new(), None),
    ] {
        let seen = Arc::new(Seen::default());
        let mut builder = builder(Offers::V1, compiled(says).leak(), &seen).await;
        if let Some(own) = own {
            builder = builder.descriptors(compiled(own));
        }
        let keyed = "hedge.testing.v1.Probe/Keyed";
        let channel = builder.method(keyed, by_name).build().unwrap();
        assert_eq!(
            learnt(&channel).await,
            ReflectionState::Learned(1),
            "{says}"
        );
        let mut client = ProbeClient::new(channel);
        client.keyed(request("keyed")).await.unwrap();
        assert_eq!(seen.of("keyed").len(), 1, "{says}");
    }
}

/// A channel that is dropped while it asks leaves no task behind.
#[tokio::test]
async fn ml3_a_dropped_channel_stops_asking() {
    // Takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let channel = HedgedChannel::builder()
        .endpoints([uri])
        .reflection()
        .build()
        .unwrap();
    let mut call = tonic::Request::new(request("silent"));
    call.set_timeout(Duration::from_millis(50));
    ProbeClient::new(channel.clone())
        .get(call)
        .await
        .unwrap_err();
    drop(channel);
    support::eventually("no task is left", || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            <= before
    })
    .await;
}
