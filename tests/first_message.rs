//! Hedging the wait for a streamed answer's first message, on real servers.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{
    Arrival, Fleet, ProbeClient, ProbeReply, ProbeRequest, compiled::compiled, eventually, request,
    settled,
};
use tokio::time::Instant;
use tonic::{Code, Request, Status, Streaming};
use tonic_hedge::{
    AttemptOutcome, Builder, CallLog, Hedge, HedgedChannel, MethodPolicy, RequestExt, ResponseExt,
    Retry,
};

const WATCH: &str = "hedge.testing.v1.Probe/Watch";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn prompt() -> Fleet {
    Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await
}

fn first_message(builder: Builder) -> Builder {
    builder.method(WATCH, MethodPolicy::new().first_message(true))
}

/// A stream of `messages`, each of which `slow` thinks about for a minute.
fn stream(id: &str, slow: &str, messages: u32) -> ProbeRequest {
    ProbeRequest {
        messages,
        delay_ms: 60_000,
        only_replica: slow.to_owned(),
        ..request(id)
    }
}

async fn all(mut replies: Streaming<ProbeReply>) -> Result<Vec<ProbeReply>, Status> {
    let mut all = Vec::new();
    while let Some(reply) = replies.message().await? {
        all.push(reply);
    }
    Ok(all)
}

/// A head is no answer. The first message ends the race; the winner's stream goes on to its end,
/// and the loser, whose head has come, is reset.
#[tokio::test]
async fn the_first_message_ends_the_race() {
    let fleet = prompt().await;
    let channel = fleet
        .channel(first_message(fleet.builder().hedge(Hedge::after(ms(20)))))
        .await;
    let mut client = ProbeClient::new(channel.clone());
    let mut won = 0;
    for round in 0..20 {
        let id = format!("call-{round}");
        let slow = ["a", "b"][round % 2];
        let cancelled = fleet.seen.cancelled();
        let response = client.watch(stream(&id, slow, 100)).await.unwrap();
        let log = response.call_log().unwrap().clone();
        let hedged = log.hedged();
        let replies = all(response.into_inner()).await.unwrap();
        assert_eq!(replies.len(), 100, "{log}");
        assert!(replies.iter().all(|reply| reply.replica != slow), "{log}");
        let arrivals = fleet.seen.of(&id);
        let to_slow = arrivals[0].replica == slow;
        assert_eq!(hedged, arrivals.len() > 1, "{log}");
        if to_slow {
            won += 1;
            assert!(log.hedge_won(), "{log}");
            assert_eq!(arrivals[1].previous(), 1);
            fleet
                .seen
                .until("the loser's stream is reset", |seen| {
                    seen.cancelled() > cancelled
                })
                .await;
        }
    }
    assert!(won > 0);
    settled(&channel).await;
}

/// Only where it is asked for: by a policy, by the request, by the option of the `.proto`.
#[tokio::test]
async fn it_has_to_be_asked_for() {
    let fleet = prompt().await;
    let channel = |builder: Builder| fleet.channel(builder.hedge(Hedge::immediately()));
    let count = |id: &str| fleet.seen.of(id).len();

    let mut plain = ProbeClient::new(channel(fleet.builder()).await);
    all(plain
        .watch(stream("plain", "", 2))
        .await
        .unwrap()
        .into_inner())
    .await
    .unwrap();
    assert_eq!(count("plain"), 1);
    let asked = Request::new(stream("request", "", 2)).first_message();
    all(plain.watch(asked).await.unwrap().into_inner())
        .await
        .unwrap();
    assert_eq!(count("request"), 2);
    // It says nothing of calls that stream their requests.
    let uploads = tokio_stream::iter([request("chat")]);
    let asked = Request::new(uploads).first_message().mark_repeatable();
    all(plain.chat(asked).await.unwrap().into_inner())
        .await
        .unwrap();
    assert_eq!(count("chat"), 1);

    let uris =
        || HedgedChannel::builder().endpoints(fleet.replicas.iter().map(support::Replica::uri));
    let by_proto = uris().descriptors(watch_with("first_message: true"));
    let mut by_proto = ProbeClient::new(channel(by_proto).await);
    all(by_proto
        .watch(stream("proto", "", 2))
        .await
        .unwrap()
        .into_inner())
    .await
    .unwrap();
    assert_eq!(count("proto"), 2);
    let by_name = MethodPolicy::new().idempotent(true).first_message(true);
    let mut by_name = ProbeClient::new(channel(uris().method(WATCH, by_name)).await);
    all(by_name
        .watch(stream("name", "", 2))
        .await
        .unwrap()
        .into_inner())
    .await
    .unwrap();
    assert_eq!(count("name"), 2);
    // What is not idempotent is not repeated, whatever its shape.
    let vetoed = fleet.builder().method(
        WATCH,
        MethodPolicy::new().idempotent(false).first_message(true),
    );
    let mut vetoed = ProbeClient::new(channel(vetoed).await);
    all(vetoed
        .watch(stream("vetoed", "", 2))
        .await
        .unwrap()
        .into_inner())
    .await
    .unwrap();
    assert_eq!(count("vetoed"), 1);
}

/// An empty stream is an answer, an error before the first message a failure, one after it is the
/// caller's to see.
#[tokio::test]
async fn the_end_of_a_stream_is_judged_like_any() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            0 if arrival.request.id == "fails" => Err(Status::unavailable("once")),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = first_message(fleet.builder().hedge(Hedge::after(ms(600_000))));
    let builder = builder.retry(Retry::default().base(Duration::ZERO));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.watch(stream("empty", "", 0)).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    assert!(all(response.into_inner()).await.unwrap().is_empty());

    let response = client.watch(stream("fails", "", 3)).await.unwrap();
    let log = response.call_log().unwrap().clone();
    assert_eq!(
        log.attempts()[0].outcome(),
        AttemptOutcome::Failed(Code::Unavailable),
        "{log}"
    );
    assert_eq!(all(response.into_inner()).await.unwrap().len(), 3);
    settled(&channel).await;
}

/// The deadline holds before the first message and after it.
#[tokio::test]
async fn the_deadline_holds_for_the_whole_stream() {
    let fleet = prompt().await;
    let builder = first_message(fleet.builder().hedge(Hedge::after(ms(5))));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let mut call = Request::new(ProbeRequest {
        delay_ms: 600_000,
        ..stream("late", "a", 3)
    });
    call.set_timeout(ms(300));
    // Whichever replica is first: the slow one is outrun, the other one ends at once.
    let response = client.watch(call).await;
    if let Ok(response) = response {
        assert_eq!(all(response.into_inner()).await.unwrap().len(), 3);
    }

    // Both are slow: the first message never comes.
    let stuck = Fleet::start(2, |_| std::future::pending()).await;
    let builder = first_message(stuck.builder().hedge(Hedge::after(ms(5))));
    let channel = stuck.channel(builder).await;
    let mut call = Request::new(stream("never", "", 3));
    call.set_timeout(ms(200));
    let status = ProbeClient::new(channel.clone())
        .watch(call)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 2);
    eventually("nobody works on", || stuck.seen.running() == 0).await;
    settled(&channel).await;
}

/// The caller's drop ends the winner's stream too.
#[tokio::test]
async fn a_dropped_stream_is_reset() {
    let fleet = Fleet::start(1, |arrival: Arrival| async move { arrival.ok() }).await;
    let channel = fleet.channel(first_message(fleet.builder())).await;
    let call = ProbeRequest {
        delay_ms: 20,
        ..stream("dropped", "a", 1_000_000)
    };
    let response = ProbeClient::new(channel.clone()).watch(call).await.unwrap();
    let mut replies = response.into_inner();
    assert!(replies.message().await.unwrap().is_some());
    drop(replies);
    fleet
        .seen
        .until("its server sees it", |seen| seen.cancelled() == 1)
        .await;
    settled(&channel).await;
}

/// The estimate is of the time to the first message, not of the stream.
#[tokio::test]
async fn the_estimate_is_of_the_first_message() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        let late = arrival.request.messages > 0;
        if late {
            tokio::time::sleep(ms(1)).await;
        }
        arrival.ok()
    })
    .await;
    let builder = first_message(fleet.builder().hedge(Hedge::at(0.95).minimum_samples(20)));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let mut slowest = Duration::ZERO;
    for call in 0..24 {
        let began = Instant::now();
        let call = stream(&format!("call-{call}"), "", 2);
        let mut replies = client.watch(call).await.unwrap().into_inner();
        assert!(replies.message().await.unwrap().is_some());
        slowest = slowest.max(began.elapsed());
        // The stream is left open for longer than its first message took.
        tokio::time::sleep(ms(40)).await;
        assert!(replies.message().await.unwrap().is_some());
        assert!(replies.message().await.unwrap().is_none());
    }
    let measured = channel.measured();
    let method = measured
        .methods
        .iter()
        .find(|method| method.method == WATCH)
        .unwrap();
    let [p50, ..] = method.latency.unwrap();
    assert_eq!(method.samples, 24, "{method:?}");
    assert!(p50 <= slowest, "{slowest:?}: {method:?}");
}

/// The probe's `Watch` with options of its own.
fn watch_with(options: &str) -> Vec<u8> {
    let watch = format!(
        "rpc Watch(Empty) returns (stream Empty) {{
           option idempotency_level = NO_SIDE_EFFECTS;
           option (.hedge.v1.method) = {{ {options} }};
         }}"
    );
    compiled("hedge.testing.v1", "Probe", &watch)
}
