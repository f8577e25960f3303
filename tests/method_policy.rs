//! Policies by method name, from outside the `.proto`: what they declare, and what beats them.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Arrival, Fleet, ProbeClient, compiled::compiled, probe, request};
use tonic::{Code, Status};
use tonic_hedge::{Builder, Hedge, HedgedChannel, MethodPolicy, ResponseExt, Retry};

const PUT: &str = "hedge.testing.v1.Probe/Put";
const GET: &str = "hedge.testing.v1.Probe/Get";

/// Replicas that answer hedges only.
async fn hedges_only() -> Fleet {
    Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

fn idempotent() -> MethodPolicy {
    MethodPolicy::new().idempotent(true)
}

fn error(name: &str, policy: MethodPolicy) -> String {
    let builder = HedgedChannel::builder()
        .endpoints(["http://127.0.0.1:1"])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .method(name, policy);
    builder.build().unwrap_err().to_string()
}

/// A method that the `.proto` leaves unmarked, and one that no descriptor knows, are hedged once
/// they are declared.
#[tokio::test]
async fn declared_from_outside() {
    let fleet = hedges_only().await;
    let uris =
        || HedgedChannel::builder().endpoints(fleet.replicas.iter().map(support::Replica::uri));
    let hedge = Hedge::after(Duration::from_millis(5));
    let unmarked: Builder = fleet
        .builder()
        .method(PUT, idempotent())
        .hedge(hedge.clone());
    let unknown = uris()
        .method(format!("/{PUT}"), idempotent())
        .hedge(hedge.clone());
    let own = uris().method(PUT, idempotent().hedge(hedge));
    for (name, builder) in [("unmarked", unmarked), ("unknown", unknown), ("own", own)] {
        let mut client = ProbeClient::new(fleet.channel(builder).await);
        let response = client.put(request(name)).await.unwrap();
        assert!(response.hedge_won(), "{name}");
        let arrivals = fleet.seen.of(name);
        assert_eq!(arrivals.len(), 2, "{name}");
        assert_ne!(arrivals[0].replica, arrivals[1].replica, "{name}");
    }
}

/// A service that no descriptor set knows may have several methods named.
#[test]
fn several_methods_of_an_unknown_service() {
    let builder = HedgedChannel::builder()
        .endpoints(["http://127.0.0.1:1"])
        .method("etcdserverpb.KV/Range", idempotent())
        .method("etcdserverpb.KV/Put", MethodPolicy::new().idempotent(false));
    builder.build().unwrap();
}

/// A veto from outside beats the level of the `.proto`; hedging can be turned off by itself.
#[tokio::test]
async fn vetoed_from_outside() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("once")),
            _ => arrival.ok(),
        }
    })
    .await;
    let with = |policy| {
        fleet
            .builder()
            .method(GET, policy)
            .hedge(Hedge::immediately())
    };
    let vetoed = fleet
        .channel(with(MethodPolicy::new().idempotent(false)))
        .await;
    let status = ProbeClient::new(vetoed)
        .get(request("vetoed"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(fleet.seen.of("vetoed").len(), 1);

    let retried = fleet
        .channel(with(MethodPolicy::new().without_hedging()))
        .await;
    let response = ProbeClient::new(retried)
        .get(request("retried"))
        .await
        .unwrap();
    assert!(!response.hedged());
    assert_eq!(fleet.seen.of("retried").len(), 2);

    let once = with(MethodPolicy::new().without_hedging().retry(Retry::off()));
    let once = fleet.channel(once).await;
    ProbeClient::new(once)
        .get(request("once"))
        .await
        .unwrap_err();
    assert_eq!(fleet.seen.of("once").len(), 1);
}

/// The codes and the attempts of one method.
#[tokio::test]
async fn codes_and_attempts_of_a_method() {
    let fleet = Fleet::start(2, |_| async { Err(Status::aborted("again")) }).await;
    for (name, policy, arrivals) in [
        ("answer", MethodPolicy::new(), 1),
        (
            "failure",
            MethodPolicy::new()
                .retryable_codes([Code::Aborted])
                .max_attempts(5),
            5,
        ),
    ] {
        let builder = fleet.builder().method(GET, policy);
        let builder = builder.retry(Retry::default().base(Duration::ZERO));
        let mut client = ProbeClient::new(fleet.channel(builder).await);
        let status = client.get(request(name)).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(fleet.seen.of(name).len(), arrivals, "{name}");
    }
}

/// An HTTP GET declares a method where the channel takes it for that.
#[tokio::test]
async fn an_http_get_declares_where_it_is_trusted() {
    let fleet = hedges_only().await;
    let uris = || {
        HedgedChannel::builder()
            .endpoints(fleet.replicas.iter().map(support::Replica::uri))
            .hedge(Hedge::after(Duration::from_millis(5)))
    };
    // In either order.
    for builder in [
        uris().descriptors(put_is_a_get()).http_get_is_idempotent(),
        uris().http_get_is_idempotent().descriptors(put_is_a_get()),
    ] {
        let mut client = ProbeClient::new(fleet.channel(builder).await);
        assert!(client.put(request("trusted")).await.unwrap().hedge_won());
    }
    let mut call = tonic::Request::new(request("untrusted"));
    call.set_timeout(Duration::from_millis(50));
    let builder = uris().descriptors(put_is_a_get());
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let status = client.put(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fleet.seen.of("untrusted").len(), 1);
}

fn put_is_a_get() -> Vec<u8> {
    let put = "rpc Put(Empty) returns (Empty) { option (google.api.http) = { get: \"/put\" }; }";
    compiled("hedge.testing.v1", "Probe", put)
}

/// CF2: names and policies that cannot be.
#[test]
fn cf2_method_policies() {
    let hedged = || MethodPolicy::new().hedge(Hedge::at(0.95));
    for (name, policy, expected) in [
        (
            "",
            idempotent(),
            r#""" is not of the form package.Service/Method"#,
        ),
        (
            "Get",
            idempotent(),
            r#""Get" is not of the form package.Service/Method"#,
        ),
        (
            "a.B/",
            idempotent(),
            r#""a.B/" is not of the form package.Service/Method"#,
        ),
        (
            "a/b/c",
            idempotent(),
            r#""a/b/c" is not of the form package.Service/Method"#,
        ),
        (
            "hedge.testing.v1.Probe/Gett",
            idempotent(),
            r#""hedge.testing.v1.Probe/Gett" is not a method of its service in the descriptor sets"#,
        ),
        (
            "hedge.testing.v1.Probe/Vetoed",
            idempotent(),
            r#""hedge.testing.v1.Probe/Vetoed" is marked idempotent, but an option of its .proto vetoes it"#,
        ),
        (
            PUT,
            hedged(),
            r#""hedge.testing.v1.Probe/Put" has a hedge policy, but it is not idempotent"#,
        ),
        (
            GET,
            hedged().idempotent(false),
            r#""hedge.testing.v1.Probe/Get" has a hedge policy, but it is not idempotent"#,
        ),
        (
            "hedge.testing.v1.Probe/Watch",
            hedged().idempotent(true),
            r#""hedge.testing.v1.Probe/Watch" has a hedge policy, but it streams"#,
        ),
    ] {
        assert_eq!(
            error(name, policy),
            format!("HedgedChannel.method: {expected}")
        );
    }
    for (policy, expected) in [
        (
            MethodPolicy::new().hedge(Hedge::at(2.0)),
            "Hedge.quantile: 2.0 is not in [0.5, 1)",
        ),
        (
            MethodPolicy::new().max_attempts(0),
            "MethodPolicy.max_attempts: 0 is not in [1, 16]",
        ),
        (
            MethodPolicy::new().retryable_codes([Code::Ok]),
            "MethodPolicy.retryable_codes: OK is not a code of a failure",
        ),
    ] {
        assert_eq!(error(GET, policy), format!("/{GET}: {expected}"));
    }
    let twice = HedgedChannel::builder()
        .method(GET, idempotent())
        .method(GET, idempotent());
    assert_eq!(
        twice.build().unwrap_err().to_string(),
        r#"HedgedChannel.method: "hedge.testing.v1.Probe/Get" is given twice"#
    );
}
