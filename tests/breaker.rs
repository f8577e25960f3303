//! The breaker and the gate on the error rate, through whole channels in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, get, method, tail, uniform};
use prost::Message;
use support::{ProbeClient, ProbeRequest};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};
use tonic_hedge::{
    BreakerMeasured, BreakerPolicy, BreakerScope, BreakerState, Hedge, HedgedChannel, MethodPolicy,
    ResponseExt, Retry,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn breaker(channel: &HedgedChannel) -> BreakerMeasured {
    channel.measured().breakers.remove(0)
}

fn sent(replicas: &[InMemory]) -> usize {
    replicas.iter().map(|it| it.seen.calls()).sum()
}

/// Five failures in a row.
async fn open(client: &mut ProbeClient<HedgedChannel>) {
    for _ in 0..5 {
        client.get(asked(0, Code::Internal)).await.unwrap_err();
    }
}

/// 40 % errors, never five in a row: the breaker stays closed, hedging stops within one window at
/// the default `suppress_at`, and comes back after the recovery.
#[tokio::test(start_paused = true)]
async fn forty_percent_errors_stop_hedging_but_not_calls() {
    let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let mut ticks = tokio::time::interval(ms(100));
    // Of ten calls in a second the last is slow; returns whether it was hedged.
    let mut second = async |pattern: &str| {
        let mut hedged = false;
        for call in pattern.chars() {
            ticks.tick().await;
            let result = match call {
                'F' => client.get(asked(1, Code::Internal)).await,
                'S' => client.get(asked(50, Code::Ok)).await,
                _ => client.get(asked(1, Code::Ok)).await,
            };
            assert_eq!(result.is_err(), call == 'F');
            hedged |= result.hedge_won();
            assert_eq!(breaker(&channel).state, BreakerState::Closed);
        }
        hedged
    };
    for _ in 0..30 {
        assert!(second(".........S").await, "healthy");
    }
    let mut stopped = None;
    for at in 0..60 {
        let hedged = second("FF...FF..S").await;
        match stopped {
            None if !hedged => stopped = Some(at),
            None => {}
            Some(_) => assert!(!hedged, "stopped is stopped, second {at}"),
        }
    }
    assert!(stopped.unwrap() < 30, "within a window: {stopped:?}");
    let held = get(&channel).suppressed;
    assert_eq!(held, [("error_rate", 60 - stopped.unwrap())]);
    let back = async {
        let mut seconds = 0;
        while !second(".........S").await {
            seconds += 1;
        }
        seconds
    };
    let back = back.await;
    assert!(back <= 30, "back {back} s after the recovery");
    for _ in 0..10 {
        assert!(second(".........S").await, "and it stays");
    }
}

/// One failure among 19 calls, wherever it falls, suppresses no hedge; the twentieth neither.
#[tokio::test(start_paused = true)]
async fn one_failure_in_nineteen_suppresses_nothing() {
    for place in [0, 9, 18] {
        let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
        let hedge = Hedge::after(ms(20));
        let channel = builder(&replicas).hedge(hedge).build().unwrap();
        let mut client = ProbeClient::new(channel.clone());
        for call in 0..19 {
            let code = if call == place {
                Code::Internal
            } else {
                Code::Ok
            };
            let _result = client.get(asked(0, code)).await;
        }
        assert_eq!(breaker(&channel).error_rate, None);
        for _ in 0..2 {
            assert!(client.get(asked(50, Code::Ok)).await.unwrap().hedge_won());
            assert_eq!(breaker(&channel).error_rate, None);
        }
        assert_eq!(get(&channel).suppressed, []);
    }
}

#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes, tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, tag = "1")]
    delay: Option<RetryDelay>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryDelay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn retry_info(status: &Status) -> Duration {
    let mut rich = RichStatus::decode(status.details()).unwrap();
    assert_eq!(
        (rich.code, &*rich.message),
        (status.code() as i32, status.message())
    );
    let detail = rich.details.remove(0);
    assert_eq!(detail.type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let delay = RetryInfo::decode(&*detail.value).unwrap().delay.unwrap();
    Duration::new(delay.seconds as u64, delay.nanos as u32)
}

/// BR2: an open breaker answers at once; nothing is sent, spent or recorded.
#[tokio::test(start_paused = true)]
async fn br2_open() {
    let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    let before = channel.measured();
    assert_eq!(before.breakers[0].state, BreakerState::Open);
    let sent = || replicas.iter().map(|it| it.seen.calls()).sum::<usize>();
    assert_eq!(sent(), 5);
    tokio::time::advance(ms(2_000)).await;
    for _ in 0..100 {
        let status = client.get(asked(50, Code::Ok)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "channel: the circuit breaker is open");
        assert_eq!(retry_info(&status), ms(3_000));
        assert!(status.call_log().unwrap().attempts().is_empty());
        assert!(!status.hedged());
    }
    assert_eq!(sent(), 5, "no bytes");
    let after = channel.measured();
    assert_eq!(after.budget, before.budget, "no token");
    assert_eq!(
        after.breakers[0].baseline, before.breakers[0].baseline,
        "no failure"
    );
    assert_eq!(get(&channel).attempts, 5);
    assert_eq!(get(&channel).suppressed, []);
}

/// BR6: half-open, one probe passes, and however slow it is, it is not hedged.
#[tokio::test(start_paused = true)]
async fn br6_no_hedging_unless_closed() {
    let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    tokio::time::advance(ms(5_000)).await;
    let mut other = client.clone();
    let probe = tokio::spawn(async move { other.get(asked(1_000, Code::Ok)).await });
    tokio::time::sleep(ms(500)).await;
    assert_eq!(breaker(&channel).state, BreakerState::HalfOpen);
    for _ in 0..10 {
        let status = client.get(asked(0, Code::Ok)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    let response = probe.await.unwrap().unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    assert_eq!(get(&channel).suppressed, [("breaker_closed", 1)]);
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
    assert!(client.get(asked(50, Code::Ok)).await.unwrap().hedge_won());
}

/// A probe that fails is not retried, and opens the breaker again.
#[tokio::test(start_paused = true)]
async fn a_probe_is_not_retried() {
    let replicas = [InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    tokio::time::advance(ms(5_000)).await;
    let status = client.get(asked(0, Code::Unavailable)).await.unwrap_err();
    assert_eq!(status.call_log().unwrap().attempts().len(), 1);
    assert_eq!(breaker(&channel).state, BreakerState::Open);
}

/// BR2: a retry that was granted before the breaker opened is not sent when its backoff ends.
#[tokio::test(start_paused = true)]
async fn br2_no_retry_into_an_open_breaker() {
    let replicas = [InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let hour = ms(3_600_000);
    let backoff = Retry::default().base(hour).cap(hour);
    let channel = builder(&replicas).retry(backoff).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let calls = [(); 4].map(|()| {
        let mut client = client.clone();
        tokio::spawn(async move { client.get(asked(0, Code::Unavailable)).await })
    });
    tokio::time::sleep(ms(5)).await;
    assert_eq!(sent(&replicas), 4);
    client.get(asked(0, Code::Internal)).await.unwrap_err();
    assert_eq!(breaker(&channel).state, BreakerState::Open);
    for call in calls {
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "as asked")
        );
    }
    assert_eq!(sent(&replicas), 5);
    assert_eq!(channel.measured().budget, Some(11.0), "given back");
}

/// BR5: a probe's answer on purpose closes it; one that is dropped gives its place back.
#[tokio::test(start_paused = true)]
async fn br5_probe_ends_otherwise() {
    let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    tokio::time::advance(ms(5_000)).await;
    let dropped = tokio::time::timeout(ms(10), client.get(asked(1_000, Code::Ok))).await;
    assert!(dropped.is_err());
    assert_eq!(breaker(&channel).state, BreakerState::HalfOpen);
    let status = client
        .get(asked(0, Code::InvalidArgument))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "the next probe");
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
}

/// A subscription never ends, or is dropped: its first message is the probe's success.
#[tokio::test(start_paused = true)]
async fn a_streams_message_closes_it() {
    let replicas = [InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    tokio::time::advance(ms(5_000)).await;
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let requests = UnboundedReceiverStream::new(requests);
    let mut replies = client.chat(requests).await.unwrap().into_inner();
    assert_eq!(breaker(&channel).state, BreakerState::HalfOpen, "its head");
    sender.send(asked(0, Code::Ok).into_inner()).unwrap();
    assert!(replies.message().await.unwrap().is_some());
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
    // It is still open, and its end counts like any other.
    sender.send(asked(0, Code::Internal).into_inner()).unwrap();
    replies.message().await.unwrap_err();
    assert_eq!(breaker(&channel).baseline, Some(6.0 / 7.0));
}

/// So is the message that ends the race for a stream's first one.
#[tokio::test(start_paused = true)]
async fn a_first_message_closes_it() {
    let replicas = [InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let first = MethodPolicy::new().first_message(true);
    let channel = builder(&replicas).method("hedge.testing.v1.Probe/Watch", first);
    let channel = channel.build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    open(&mut client).await;
    tokio::time::advance(ms(5_000)).await;
    let request = ProbeRequest {
        messages: 3,
        ..asked(0, Code::Ok).into_inner()
    };
    let mut replies = client.watch(request).await.unwrap().into_inner();
    assert!(replies.message().await.unwrap().is_some());
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
}

/// BR9: five in a row of each code.
#[tokio::test(start_paused = true)]
async fn br9_which_codes_count() {
    let counted = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::ResourceExhausted,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
    ];
    for code in (0..=16).map(Code::from) {
        let replica = InMemory::start("a", uniform);
        let channel = builder([&replica]).max_attempts(1).build().unwrap();
        let mut client = ProbeClient::new(channel.clone());
        for _ in 0..5 {
            let result = client.get(asked(0, code)).await;
            assert_eq!(result.err().map_or(Code::Ok, |status| status.code()), code);
        }
        let opened = breaker(&channel).state == BreakerState::Open;
        assert_eq!(opened, counted.contains(&code), "{code:?}");
    }
}

/// BR10: a caller's tiny deadline counts as DEADLINE_EXCEEDED, as a server's own would: from here
/// the two cannot be told apart. It is not silent: the breaker's state and the text say it.
#[tokio::test(start_paused = true)]
async fn br10_a_callers_tiny_deadline_counts() {
    let replica = InMemory::start("a", uniform);
    let channel = builder([&replica]).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let mut codes = Vec::new();
    for _ in 0..1_000 {
        let mut request = asked(50, Code::Ok);
        request.set_timeout(ms(1));
        let status = client.get(request).await.unwrap_err();
        codes.push(status.code());
    }
    assert_eq!(codes[..5], [Code::DeadlineExceeded; 5]);
    let status = client.get(asked(0, Code::Ok)).await;
    assert!(codes[5..].contains(&Code::Unavailable));
    assert!(
        status
            .unwrap_err()
            .message()
            .contains("circuit breaker is open")
    );
    assert_eq!(breaker(&channel).state, BreakerState::Open);
}

/// A deadline that has passed before anything is sent is nobody's failure.
#[tokio::test(start_paused = true)]
async fn br10_nothing_sent_is_not_counted() {
    let replica = InMemory::start("a", uniform);
    let channel = builder([&replica]).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..100 {
        let mut request = asked(0, Code::Ok);
        request.set_timeout(Duration::ZERO);
        client.get(request).await.unwrap_err();
    }
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
    assert_eq!(breaker(&channel).baseline, None);
}

/// BR12: one bad endpoint of three: calls are answered by the others, and hedges go there.
#[tokio::test(start_paused = true)]
async fn br12_one_bad_endpoint_of_three() {
    let down = |_| async { Err(Status::unavailable("down")) };
    let good = |name| InMemory::start(name, tail);
    let replicas = [good("a"), InMemory::start("b", down), good("c")];
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let mut bad = Vec::new();
    for call in 0..300 {
        tokio::time::sleep(ms(10)).await;
        let slow = if call % 10 == 9 { 50 } else { 5 };
        let response = client.get(asked(slow, Code::Ok)).await.unwrap();
        let log = response.call_log().unwrap();
        bad.extend(
            log.attempts()
                .iter()
                .filter(|it| it.endpoint() == "b")
                .map(|_| call),
        );
    }
    assert_eq!(breaker(&channel).state, BreakerState::Closed);
    assert!(bad.len() <= 10, "b was asked by calls {bad:?}");
    let measured = channel.measured();
    assert!(method(&measured, "Get").hedges >= 25);
}

/// One breaker for the channel, for each service, for each method.
#[tokio::test(start_paused = true)]
async fn scopes() {
    for (scope, get_name, keyed_passes) in [
        (BreakerScope::Channel, "channel", false),
        (BreakerScope::Service, "hedge.testing.v1.Probe", false),
        (BreakerScope::Method, "hedge.testing.v1.Probe/Get", true),
    ] {
        let replica = InMemory::start("a", uniform);
        let channel = builder([&replica])
            .breaker(BreakerPolicy::default())
            .breaker_scope(scope)
            .build()
            .unwrap();
        let mut client = ProbeClient::new(channel.clone());
        open(&mut client).await;
        let status = client.get(asked(0, Code::Ok)).await.unwrap_err();
        assert_eq!(
            status.message(),
            format!("{get_name}: the circuit breaker is open")
        );
        let keyed = client.keyed(asked(0, Code::Ok)).await;
        assert_eq!(keyed.is_ok(), keyed_passes, "{scope:?}");
        let opened = channel.measured().breakers.into_iter();
        let opened: Vec<_> = opened.filter(|it| it.state == BreakerState::Open).collect();
        assert_eq!(opened.len(), 1);
        assert_eq!(opened[0].name, get_name);
    }
}

/// Without a breaker nothing opens, and gates 3 and 4 hold.
#[tokio::test(start_paused = true)]
async fn without_a_breaker() {
    let replicas = [InMemory::start("a", tail), InMemory::start("b", tail)];
    let builder = builder(&replicas).hedge(Hedge::after(ms(20)));
    let channel = builder.without_breaker().build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..4 {
        open(&mut client).await;
    }
    assert!(channel.measured().breakers.is_empty());
    assert!(client.get(asked(50, Code::Ok)).await.unwrap().hedge_won());
}
