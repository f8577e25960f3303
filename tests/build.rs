//! Mistakes in what a channel is made from: each error names the thing, the value and the bound.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{ProbeClient, compiled::compiled, probe, request};
use tonic::{Code, transport::Endpoint};
use tonic_hedge::{
    BreakerPolicy, Budget, BudgetPolicy, Builder, Hedge, HedgedChannel, Retry, WinRate,
};

const ENDPOINT: &str = "http://127.0.0.1:1";

fn builder() -> Builder {
    HedgedChannel::builder().endpoints([ENDPOINT])
}

fn error(builder: Builder) -> String {
    builder.build().unwrap_err().to_string()
}

/// TH9, CF2: a quantile that is none.
#[test]
fn th9_bad_quantile() {
    for (quantile, shown) in [
        (0.0, "0.0"),
        (0.49, "0.49"),
        (1.0, "1.0"),
        (1.2, "1.2"),
        (-1.0, "-1.0"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        assert_eq!(
            error(builder().hedge(Hedge::at(quantile))),
            format!("Hedge.quantile: {shown} is not in [0.5, 1)")
        );
    }
}

/// CF2: every policy's fields.
#[test]
fn cf2_policies() {
    let ms = Duration::from_millis;
    let at = || Hedge::at(0.95);
    for (builder, expected) in [
        (
            builder().hedge(at().max_concurrent(1)),
            "Hedge.max_concurrent: 1 is not at least 2",
        ),
        (
            builder().hedge(at().minimum_delay(ms(50)).maximum_delay(ms(20))),
            "Hedge.maximum_delay: 20ms is not at least Hedge.minimum_delay",
        ),
        (
            builder().hedge(at().minimum_delay(Duration::ZERO)),
            "Hedge.minimum_delay: 0ns is not at least 1ms",
        ),
        (
            builder().hedge(at().window(Duration::ZERO)),
            "Hedge.window: 0ns is not in [1s, 3600s]",
        ),
        (
            builder().hedge(at().suppress_at(f64::NAN)),
            "Hedge.suppress_at: NaN is not in (0, 1]",
        ),
        (
            builder().retry(Retry::default().factor(-1.0)),
            "Retry.factor: -1.0 is not in [1, 10]",
        ),
        (
            builder().retry(Retry::default().base(ms(2_000))),
            "Retry.base: 2s is not at most Retry.cap",
        ),
        (
            builder().budget(BudgetPolicy::default().ratio(f64::NAN)),
            "Budget.ratio: NaN is not in [0, 1]",
        ),
        (
            builder().budget(BudgetPolicy::default().capacity(0.0)),
            "Budget.capacity: 0.0 is not in [1, 1000000]",
        ),
        (
            builder().breaker(BreakerPolicy::default().consecutive(0)),
            "Breaker.consecutive: 0 is not at least 1",
        ),
        (
            builder().breaker(BreakerPolicy::default().cool_down(Duration::ZERO)),
            "Breaker.cool_down: 0ns is not in [1ms, 3600s]",
        ),
        (
            builder().max_attempts(0),
            "HedgedChannel.max_attempts: 0 is not in [1, 16]",
        ),
        (
            builder().max_attempts(17),
            "HedgedChannel.max_attempts: 17 is not in [1, 16]",
        ),
        (
            builder().buffer_limit(0),
            "HedgedChannel.buffer_limit: 0 is not at least 1",
        ),
        (
            builder().response_limit(0),
            "HedgedChannel.response_limit: 0 is not at least 1",
        ),
    ] {
        assert_eq!(error(builder), expected);
    }
    let win_rate = WinRate::at_least(2.0);
    let text = error(builder().hedge(at().win_rate(win_rate)));
    assert!(
        text.starts_with("WinRate.") && text.contains("2.0 is not"),
        "{text}"
    );
}

/// CF2: what names the endpoints.
#[tokio::test]
async fn cf2_endpoints() {
    let none: [&str; 0] = [];
    for (builder, expected) in [
        (
            HedgedChannel::builder(),
            "HedgedChannel: no endpoints given: use endpoints, discover, dns or channel",
        ),
        (
            HedgedChannel::builder().endpoints(none),
            "HedgedChannel.endpoints: 0 is not at least 1",
        ),
        (
            builder().endpoints([ENDPOINT]),
            "HedgedChannel: more than one of endpoints, discover, dns and channel given",
        ),
        (
            builder().dns("http://search.test"),
            "HedgedChannel: more than one of endpoints, discover, dns and channel given",
        ),
        (
            builder().channel(Endpoint::from_static(ENDPOINT).connect_lazy()),
            "HedgedChannel: more than one of endpoints, discover, dns and channel given",
        ),
        (
            HedgedChannel::builder().endpoints(["127.0.0.1:50051"]),
            "HedgedChannel.endpoints: \"127.0.0.1:50051\" has no scheme: write http:// or \
             https:// before it",
        ),
        (
            HedgedChannel::builder().endpoints([ENDPOINT, "search"]),
            "HedgedChannel.endpoints: \"search\" has no scheme: write http:// or https:// \
             before it",
        ),
    ] {
        assert_eq!(error(builder), expected);
    }
    for text in ["http://host:99999", "https://[::1]:port", "http://host:"] {
        let built = HedgedChannel::builder().endpoints([text]).build();
        assert_eq!(
            built.expect_err(text).to_string(),
            format!("HedgedChannel.endpoints: {text:?} has a port that is not in [0, 65535]")
        );
    }
    for text in [
        "http://a b",
        "",
        "http://",
        "http://[::1",
        "http://host:port",
    ] {
        let built = HedgedChannel::builder().endpoints([text]).build();
        let message = built.expect_err(text).to_string();
        let named = format!("HedgedChannel.endpoints: {text:?} ");
        assert!(message.starts_with(&named), "{message}");
        assert!(message.len() > named.len(), "{message}");
    }
}

/// What is no descriptor set, and a set that asks for too much.
#[test]
fn cf2_descriptors() {
    for (set, expected) in [
        (&b""[..], "the descriptor set is empty"),
        (b"not a set", "not a descriptor set, or a truncated one"),
        (
            &probe::FILE_DESCRIPTOR_SET[..probe::FILE_DESCRIPTOR_SET.len() / 2],
            "not a descriptor set, or a truncated one",
        ),
    ] {
        let text = error(builder().descriptors(set));
        let expected = format!("HedgedChannel.descriptors: {expected}");
        assert!(text.starts_with(&expected), "{text}");
    }
    let text = error(builder().descriptors(shop(
        "
        rpc Pay(Empty) returns (Empty) { option (hedge.v1.method) = { hedge: ON }; }
    ",
    )));
    assert!(text.contains("/shop.Shop/Pay"), "{text}");
    assert!(text.contains("is not idempotent"), "{text}");
    let text = error(builder().descriptors(shop(
        "
        rpc Find(Empty) returns (Empty) {
          option idempotency_level = NO_SIDE_EFFECTS;
          option (hedge.v1.method) = { quantile: 1.5 };
        }
    ",
    )));
    assert!(text.contains("/shop.Shop/Find"), "{text}");
    assert!(text.contains("1.5") && text.contains("[0.5, 1)"), "{text}");
}

/// A shop with these methods.
fn shop(methods: &str) -> Vec<u8> {
    compiled("shop", "Shop", methods)
}

/// The first mistake counts, whatever follows it.
#[test]
fn first_mistake_counts() {
    let text = error(
        HedgedChannel::builder()
            .endpoints(["search"])
            .descriptors(b"")
            .max_attempts(0),
    );
    assert!(text.contains("search"), "{text}");
}

/// What is in bounds builds, outside a runtime too.
#[test]
fn bounds_are_inclusive() {
    builder().max_attempts(1).build().unwrap();
    builder().max_attempts(16).build().unwrap();
    builder().hedge(Hedge::at(0.5)).build().unwrap();
    builder().hedge(Hedge::at(0.999_999)).build().unwrap();
    let budget = Budget::new(&BudgetPolicy::default()).unwrap();
    builder().shared_budget(budget).build().unwrap();
}

/// A name that resolves to nothing fails the call, not the build, and is named.
#[tokio::test]
async fn dns_finds_nothing() {
    let channel = HedgedChannel::builder()
        .dns("http://no-such-host.invalid:50051")
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let call = ProbeClient::new(channel);
    let answer = tokio::time::timeout(support::PATIENCE, { call }.get(request("1"))).await;
    let status = answer.expect("it does not wait").unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("no-such-host.invalid"),
        "{status:?}"
    );
}
