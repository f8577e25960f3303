//! gRPC's service config on real servers: what each policy means, who beats it, and what it does not
//! do. What is accepted and refused is in `src/service_config/tests.rs`.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Arrival, Fleet, ProbeClient, ProbeRequest, Replica, probe, proxy::Proxy, request};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    Budget, BudgetPolicy, Builder, Hedge, HedgedChannel, MethodPolicy, RequestExt as _,
    ResponseExt as _, RetryBudget,
};

const SERVICE: &str = "hedge.testing.v1.Probe";

/// A config with one entry, for these names.
fn config(names: &str, fields: &str) -> String {
    format!(r#"{{"methodConfig": [{{"name": [{names}], {fields}}}]}}"#)
}

/// The name of one method.
fn exactly(method: &str) -> String {
    format!(r#"{{"service": "{SERVICE}", "method": "{method}"}}"#)
}

fn hedging(attempts: u32, delay: &str, codes: &str) -> String {
    format!(
        r#""hedgingPolicy": {{
            "maxAttempts": {attempts}, "hedgingDelay": "{delay}", "nonFatalStatusCodes": [{codes}]
        }}"#
    )
}

fn retrying(attempts: u32, codes: &str) -> String {
    format!(
        r#""retryPolicy": {{
            "maxAttempts": {attempts}, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
            "backoffMultiplier": 1, "retryableStatusCodes": [{codes}]
        }}"#
    )
}

/// Over the replicas, with their methods known and nothing hedged but by config.
fn builder(fleet: &Fleet) -> Builder {
    HedgedChannel::builder()
        .endpoints(fleet.replicas.iter().map(Replica::uri))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .budget(BudgetPolicy::default().initial(100.0))
}

async fn client(fleet: &Fleet, builder: Builder) -> ProbeClient<HedgedChannel> {
    ProbeClient::new(fleet.channel(builder).await)
}

/// Replicas that answer further attempts only.
async fn further_only(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

async fn failing(code: Code) -> Fleet {
    Fleet::start(
        2,
        move |_| async move { Err(Status::new(code, "scripted")) },
    )
    .await
}

/// How long a call might take, by the header that its server saw.
fn timeout(arrival: &Arrival) -> Duration {
    let value = arrival.metadata.get("grpc-timeout").unwrap();
    let (digits, unit) = value.to_str().unwrap().split_at(value.len() - 1);
    let amount: u64 = digits.parse().unwrap();
    match unit {
        "n" => Duration::from_nanos(amount),
        "u" => Duration::from_micros(amount),
        "m" => Duration::from_millis(amount),
        "S" => Duration::from_secs(amount),
        other => panic!("{other}"),
    }
}

/// A method that its `.proto` leaves unmarked is hedged after the config's delay.
#[tokio::test]
async fn hedged_by_config() {
    let fleet = further_only(2).await;
    let config = config(&exactly("Put"), &hedging(2, "0.005s", ""));
    let mut client = client(&fleet, builder(&fleet).service_config(config)).await;
    let response = client.put(request("put")).await.unwrap();
    assert!(response.hedge_won());
    let arrivals = fleet.seen.of("put");
    assert_eq!(arrivals.len(), 2);
    assert_ne!(arrivals[0].replica, arrivals[1].replica);
}

/// As many as `maxAttempts` are in flight at once.
#[tokio::test]
async fn all_attempts_at_once() {
    let fleet = Fleet::start(4, |arrival: Arrival| async move {
        if arrival.previous() < 3 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let config = config(&exactly("Put"), &hedging(4, "0s", ""));
    let mut client = client(&fleet, builder(&fleet).service_config(config)).await;
    let response = client.put(request("put")).await.unwrap();
    assert_eq!(response.into_inner().previous_attempts, 3);
    assert_eq!(fleet.seen.of("put").len(), 4);
}

/// A failure that is not fatal starts the next attempt long before its delay, in flight or not; one
/// that is fatal ends the call.
#[tokio::test]
async fn a_failure_brings_the_next_hedge_forward() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.previous() {
            0 | 1 => Err(Status::aborted("again")),
            _ => arrival.ok(),
        }
    })
    .await;
    for (codes, arrivals) in [(r#""ABORTED""#, 3), (r#""UNAVAILABLE""#, 1)] {
        let config = config(&exactly("Put"), &hedging(3, "3600s", codes));
        let mut client = client(&fleet, builder(&fleet).service_config(config)).await;
        let result = client.put(request(codes)).await;
        assert_eq!(result.is_ok(), arrivals == 3, "{codes}");
        assert_eq!(fleet.seen.of(codes).len(), arrivals, "{codes}");
    }
}

/// A `retryPolicy` retries, and takes the hedging away that the builder wants.
#[tokio::test]
async fn retried_by_config() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            0..=3 => Err(Status::aborted("again")),
            _ => arrival.ok(),
        }
    })
    .await;
    let config = config(&exactly("Put"), &retrying(9, r#""aborted""#));
    let builder = builder(&fleet).hedge(Hedge::immediately());
    let mut client = client(&fleet, builder.service_config(config)).await;
    let response = client.put(request("put")).await.unwrap();
    assert!(!response.hedged());
    // Nine are five.
    assert_eq!(response.into_inner().previous_attempts, 4);
    let beside = client.get(request("get")).await.unwrap_err();
    assert_eq!(beside.code(), Code::Aborted);
}

/// The listed codes and no others: UNAVAILABLE is not implied, and RESOURCE_EXHAUSTED needs no
/// pushback.
#[tokio::test]
async fn exact_codes() {
    for (code, codes, arrivals) in [
        (Code::Unavailable, r#""ABORTED""#, 1),
        (Code::Unavailable, r#""UNAVAILABLE""#, 3),
        (Code::Aborted, r#"10"#, 3),
        (Code::ResourceExhausted, r#""UNAVAILABLE""#, 1),
        (Code::ResourceExhausted, r#""RESOURCE_EXHAUSTED""#, 3),
    ] {
        let fleet = failing(code).await;
        for policy in [retrying(3, codes), hedging(3, "3600s", codes)] {
            let builder = builder(&fleet).service_config(config(&exactly("Get"), &policy));
            let mut client = client(&fleet, builder).await;
            let status = client.get(request(&policy)).await.unwrap_err();
            assert_eq!(status.code(), code);
            assert_eq!(fleet.seen.of(&policy).len(), arrivals, "{code:?} {policy}");
        }
    }
}

/// A lost connection is UNAVAILABLE, and a failure only where that is listed.
#[tokio::test]
async fn exact_codes_and_a_lost_connection() {
    for (codes, arrivals) in [(r#""ABORTED""#, 1), (r#""UNAVAILABLE""#, 2)] {
        let fleet = further_only(2).await;
        let mut proxies = Vec::new();
        for replica in &fleet.replicas {
            proxies.push(Proxy::to(replica.addr).await);
        }
        let channel = HedgedChannel::builder()
            .endpoints(proxies.iter().map(Proxy::uri))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .service_config(config(&exactly("Get"), &retrying(3, codes)));
        let channel = fleet.channel(channel).await;
        let mut client = ProbeClient::new(channel);
        let call = tokio::spawn(async move { client.get(request("lost")).await });
        fleet
            .seen
            .until("it arrives", |seen| seen.calls() == 1)
            .await;
        let served = fleet.seen.of("lost").remove(0).replica;
        let index = fleet.replicas.iter().position(|it| it.name == served);
        proxies[index.unwrap()].cut();
        let result = call.await.unwrap();
        assert_eq!(result.is_ok(), arrivals == 2, "{codes}: {result:?}");
        assert_eq!(fleet.seen.of("lost").len(), arrivals, "{codes}");
    }
}

/// `retryThrottling` is the channel's budget: half of its tokens, in place of the builder's.
#[tokio::test]
async fn throttled_by_config() {
    let fleet = failing(Code::Unavailable).await;
    let policy = retrying(5, r#""UNAVAILABLE""#);
    let config = format!(
        r#"{{"retryThrottling": {{"maxTokens": 6, "tokenRatio": 0.0019}},
            "methodConfig": [{{"name": [{{}}], {policy}}}]}}"#
    );
    let channel = fleet.channel(builder(&fleet).service_config(config)).await;
    assert_eq!(channel.measured().budget, Some(3.0));
    let mut client = ProbeClient::new(channel.clone());
    for (id, arrivals) in [("first", 4), ("second", 1)] {
        client.get(request(id)).await.unwrap_err();
        assert_eq!(fleet.seen.of(id).len(), arrivals, "{id}");
    }
    // The second call's share; the first one's did not fit.
    assert_eq!(channel.measured().budget, Some(0.001));
}

/// The sooner of the config's timeout and the caller's, for every method: also one that streams, and
/// one that no descriptor knows.
#[tokio::test]
async fn timeouts() {
    const LIMIT: Duration = Duration::from_millis(100);
    let fleet = Fleet::start(1, |_| std::future::pending()).await;
    let config = || config("{}", r#""timeout": "0.1s""#);
    let mut known = client(&fleet, builder(&fleet).service_config(config())).await;
    let bare = HedgedChannel::builder().endpoints(fleet.replicas.iter().map(Replica::uri));
    let mut unknown = client(&fleet, bare.service_config(config())).await;
    let within = |id, timeout| {
        let mut request = Request::new(request(id));
        request.set_timeout(timeout);
        request
    };
    let later = Duration::from_secs(3_600);
    let sooner = Duration::from_millis(20);
    for (id, code, most) in [
        ("none", known.get(request("none")).await.unwrap_err(), LIMIT),
        (
            "later",
            known.put(within("later", later)).await.unwrap_err(),
            LIMIT,
        ),
        (
            "sooner",
            known.get(within("sooner", sooner)).await.unwrap_err(),
            sooner,
        ),
        (
            "stream",
            known.watch(request("stream")).await.unwrap_err(),
            LIMIT,
        ),
        (
            "unknown",
            unknown.get(request("unknown")).await.unwrap_err(),
            LIMIT,
        ),
    ] {
        assert_eq!(code.code(), Code::DeadlineExceeded, "{id}");
        let arrivals = fleet.seen.of(id);
        assert_eq!(arrivals.len(), 1, "{id}");
        assert!(timeout(&arrivals[0]) <= most, "{id}: {arrivals:?}");
        assert!(timeout(&arrivals[0]) > most / 4, "{id}: {arrivals:?}");
    }
    let none = self::config(&exactly("Get"), r#""timeout": "0s""#);
    let mut none = client(&fleet, builder(&fleet).service_config(none)).await;
    let status = none.get(request("zero")).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fleet.seen.of("zero").len(), 0);
}

/// A policy for a service or for all methods is for those that may be repeated anyway.
#[tokio::test]
async fn a_wildcard_declares_nothing() {
    let fleet = failing(Code::Unavailable).await;
    let service = format!(r#"{{"service": "{SERVICE}"}}"#);
    for (names, policy) in [
        ("{}", retrying(2, "14")),
        (service.as_str(), hedging(2, "3600s", "14")),
    ] {
        let builder = builder(&fleet).service_config(config(names, &policy));
        let mut client = client(&fleet, builder).await;
        for (arrivals, method) in [(1, "put"), (2, "get")] {
            let id = format!("{names} {method}");
            match method {
                "put" => client.put(request(&id)).await.unwrap_err(),
                _ => client.get(request(&id)).await.unwrap_err(),
            };
            assert_eq!(fleet.seen.of(&id).len(), arrivals, "{id}");
        }
    }
}

/// A method that is named is repeated, unless it is vetoed, streams, or is not known; and an entry
/// without a policy declares nothing.
#[tokio::test]
async fn what_naming_does_not_do() {
    let fleet = failing(Code::Unavailable).await;
    let names = ["Vetoed", "Get", "Put", "Watch"].map(exactly).join(", ");
    let whole = config(&names, &hedging(3, "0s", "14"));
    let vetoing = builder(&fleet)
        .method(
            format!("{SERVICE}/Get"),
            MethodPolicy::new().idempotent(false),
        )
        .service_config(&whole);
    let mut client = client(&fleet, vetoing).await;
    client.vetoed(request("vetoed")).await.unwrap_err();
    client.get(request("vetoed too")).await.unwrap_err();
    client.watch(request("streams")).await.unwrap_err();
    client.put(request("named")).await.unwrap_err();

    let bare = || HedgedChannel::builder().endpoints(fleet.replicas.iter().map(Replica::uri));
    let mut unknown = self::client(&fleet, bare().service_config(&whole)).await;
    unknown.put(request("unknown")).await.unwrap_err();
    let known = bare().method(format!("{SERVICE}/Put"), MethodPolicy::new());
    let mut known = self::client(&fleet, known.service_config(&whole)).await;
    known.put(request("known")).await.unwrap_err();

    let timeout = config(&names, r#""timeout": "3600s""#);
    let mut timed = self::client(&fleet, builder(&fleet).service_config(timeout)).await;
    timed.put(request("timed")).await.unwrap_err();
    for (id, arrivals) in [
        ("vetoed", 1),
        ("vetoed too", 1),
        ("streams", 1),
        ("named", 2),
        ("unknown", 1),
        ("known", 2),
        ("timed", 1),
    ] {
        // Of three attempts at once the third has no other endpoint.
        let seen = fleet.seen.of(id).len();
        match arrivals {
            1 => assert_eq!(seen, 1, "{id}"),
            least => assert!(seen >= least, "{id}: {seen}"),
        }
    }
}

/// Request, then `.proto`, then config, then the builder, field by field.
#[tokio::test]
async fn cf9_layers() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match (arrival.method, arrival.previous()) {
            ("Tuned", _) => Err(Status::internal("again")),
            (_, 0) => std::future::pending().await,
            _ => arrival.ok(),
        }
    })
    .await;
    let weaker = MethodPolicy::new().without_hedging().max_attempts(1);
    let names = ["Get", "Off", "Tuned"].map(exactly).join(", ");
    let config = config(
        &names,
        &format!(r#"{}, "timeout": "0.3s""#, hedging(5, "0.001s", "14")),
    );
    let builder = builder(&fleet)
        .method(format!("{SERVICE}/Get"), weaker)
        .service_config(config);
    let mut client = client(&fleet, builder).await;
    let response = client.get(request("over the builder")).await.unwrap();
    assert!(response.hedge_won());

    let request_says = Request::new(request("the request")).without_hedging();
    let status = client.get(request_says).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fleet.seen.of("the request").len(), 1);

    // `hedge: OFF`.
    let status = client.off(request("off")).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fleet.seen.of("off").len(), 1);

    // `max_attempts: 2`, `retryable_codes: [INTERNAL]`.
    let tuned: ProbeRequest = request("tuned");
    let status = client.tuned(tuned).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(fleet.seen.of("tuned").len(), 2);
}

/// What stands in the way of a channel with a config, by its text.
#[test]
fn cf1_refused_by_the_builder() {
    let builder = || HedgedChannel::builder().endpoints(["http://127.0.0.1:1"]);
    let error = |builder: Builder| builder.build().unwrap_err().to_string();
    let throttling = r#"{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}"#;
    let budget = Budget::new(&BudgetPolicy::default()).unwrap();
    let bad = config(&exactly("Get"), &retrying(1, "14"));
    for (text, builder) in [
        (
            "HedgedChannel.service_config: methodConfig[0].retryPolicy.maxAttempts: 1 is not at least 2",
            builder().service_config(bad),
        ),
        (
            "HedgedChannel.service_config: more than one given",
            builder().service_config("{}").service_config("{}"),
        ),
        (
            "HedgedChannel.shared_budget: there is a service config with retryThrottling too: one of them",
            builder()
                .shared_budget(budget.clone())
                .service_config(throttling),
        ),
        (
            "HedgedChannel.tower_budget: there is a service config with retryThrottling too: one of them",
            builder()
                .service_config(throttling)
                .tower_budget(RetryBudget::new(budget.clone())),
        ),
    ] {
        assert_eq!(error(builder), text);
    }
    // Without throttling the budget is nobody else's business.
    builder()
        .shared_budget(budget)
        .service_config("{}")
        .build()
        .unwrap();
}

#[test]
fn from_a_file() {
    let path = std::env::temp_dir().join(format!("tonic-hedge-{}.json", std::process::id()));
    let builder = || HedgedChannel::builder().endpoints(["http://127.0.0.1:1"]);
    let read = |text: &[u8]| {
        std::fs::write(&path, text).unwrap();
        builder().service_config_file(&path).build()
    };
    let throttling = r#"{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}"#;
    let channel = read(throttling.as_bytes()).unwrap();
    assert_eq!(channel.measured().budget, Some(5.0));
    let error = read(b"{\"methodConfig\": 1}").unwrap_err().to_string();
    assert_eq!(
        error,
        "HedgedChannel.service_config: methodConfig: 1 is not a list"
    );
    let name = format!("HedgedChannel.service_config_file: {path:?}: ");
    let error = read(b"\"\xff\"").unwrap_err().to_string();
    assert!(error.starts_with(&name), "{error}");
    std::fs::remove_file(&path).unwrap();
    let missing = builder().service_config_file(&path).build().unwrap_err();
    assert!(missing.to_string().starts_with(&name), "{missing}");
    let source = std::error::Error::source(&missing).unwrap();
    let io = source.downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
}

/// A `retryPolicy` permits to repeat a method after a failure, and not to race it: neither what its
/// service's option says of hedging, nor an interceptor's request, changes that.
#[tokio::test]
async fn a_retry_policy_permits_no_race() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match (&arrival.request.id[..], arrival.previous()) {
            ("fails", 0) => Err(Status::unavailable("once")),
            _ => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                arrival.ok()
            }
        }
    })
    .await;
    let methods = "option (.hedge.v1.service).hedge = ON; rpc Put(Empty) returns (Empty);";
    let set = support::compiled::compiled("hedge.testing.v1", "Probe", methods);
    let retried = config(&exactly("Put"), &retrying(2, r#""UNAVAILABLE""#));
    let builder = HedgedChannel::builder()
        .endpoints(fleet.replicas.iter().map(Replica::uri))
        .descriptors(set)
        .hedge(Hedge::immediately())
        .service_config(retried);
    let mut client = client(&fleet, builder).await;
    client.put(request("slow")).await.unwrap();
    let asked = Request::new(request("asked")).hedge(Hedge::immediately());
    client.put(asked).await.unwrap();
    client.put(request("fails")).await.unwrap();
    let arrivals = ["slow", "asked", "fails"].map(|id| fleet.seen.of(id).len());
    assert_eq!(arrivals, [1, 1, 2]);
    // One that carries a key of its own may be raced.
    let keyed = Request::new(request("keyed"))
        .mark_repeatable()
        .hedge(Hedge::immediately());
    client.put(keyed).await.unwrap();
    assert_eq!(fleet.seen.of("keyed").len(), 2);
}
