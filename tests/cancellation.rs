//! The caller leaves, or the race is over: what runs is ended, and nothing more is started.

#![allow(clippy::unwrap_used)]

mod support;

use std::{pin::Pin, time::Duration};

use http_body::Body as _;
use support::{Arrival, Fleet, Latch, ProbeClient, request, settled};
use tonic::{Code, Request, Status};
use tonic_hedge::{BreakerState, BudgetPolicy, Hedge, HedgedChannel, ResponseExt};
use tower::Service as _;

const NEVER: Duration = Duration::from_secs(3600);

async fn stuck(count: u8) -> Fleet {
    Fleet::start(count, |_| std::future::pending()).await
}

/// Attempts of all methods.
fn attempts(channel: &HedgedChannel) -> u64 {
    channel.measured().methods.iter().map(|m| m.attempts).sum()
}

/// CA1: dropped before the threshold: the original is reset, no other replica is asked.
#[tokio::test]
async fn ca1_dropped_before_threshold() {
    let fleet = stuck(2).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("the original arrives", |seen| seen.calls() == 1)
        .await;
    call.abort();
    fleet
        .seen
        .until("the original is cancelled", |seen| seen.cancelled() == 1)
        .await;
    settled(&channel).await;
    assert_eq!(fleet.seen.calls(), 1);
    let measured = channel.measured();
    assert_eq!((measured.budget, measured.resets), (Some(100.0), 1));
}

/// CA2: dropped with both running: both are reset, and nothing is counted as an outcome.
#[tokio::test]
async fn ca2_dropped_with_both_running() {
    let fleet = stuck(3).await;
    let channel = fleet.channel(fleet.builder().max_attempts(2)).await;
    for call in 1..=8 {
        let mut client = ProbeClient::new(channel.clone());
        let task = tokio::spawn(async move { client.get(request("1")).await });
        fleet
            .seen
            .until("both arrive", |seen| seen.calls() == 2 * call)
            .await;
        task.abort();
        fleet
            .seen
            .until("both are cancelled", |seen| seen.cancelled() == 2 * call)
            .await;
    }
    settled(&channel).await;
    let measured = channel.measured();
    let breaker = &measured.breakers[0];
    assert_eq!(breaker.state, BreakerState::Closed);
    assert_eq!(breaker.error_rate, None);
    assert_eq!(fleet.seen.finished(), 0);
    assert_eq!(fleet.seen.calls(), 16);
}

/// CA4: dropped in the tick in which the hedge is due, in either order: nothing starts after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca4_dropped_at_the_threshold() {
    let fleet = stuck(2).await;
    let threshold = Duration::from_millis(5);
    let builder = fleet.builder().hedge(Hedge::after(threshold)).budget(
        BudgetPolicy::default()
            .ratio(1.0)
            .capacity(1e4)
            .initial(1e4),
    );
    let channel = fleet.channel(builder).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            for _ in 0..40 {
                let call = tokio::time::timeout(threshold, client.get(request("1")));
                assert!(call.await.is_err(), "nothing answers");
            }
        });
    }
    tasks.join_all().await;
    let launched = attempts(&channel);
    assert!((320..=641).contains(&launched), "{launched}");
    // Those that the ration detached are ended by their server alone.
    let detached = usize::try_from(channel.measured().detached).unwrap();
    fleet
        .seen
        .until("all are cancelled", |seen| seen.running() <= detached)
        .await;
    assert_eq!(attempts(&channel), launched);
}

/// CA6: a tonic server drops its handler when the loser's stream is reset.
#[tokio::test]
async fn ca6_server_notices() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    for call in 1..=10 {
        client.get(request("1")).await.unwrap();
        fleet
            .seen
            .until("the loser is dropped", |seen| {
                seen.cancelled() == call && seen.running() == 0
            })
            .await;
    }
    let measured = channel.measured();
    assert_eq!((measured.resets, measured.detached), (10, 0));
}

/// A request for the channel itself, below the generated client.
fn raw(response_bytes: u32) -> http::Request<tonic::body::Body> {
    let message = support::ProbeRequest {
        response_bytes,
        ..request("1")
    };
    let frame = support::wire::message(&prost::Message::encode_to_vec(&message));
    http::Request::builder()
        .method("POST")
        .uri("/hedge.testing.v1.Probe/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(support::wire::of_frames(vec![frame]))
        .unwrap()
}

/// CA9, CA13: a winner's body is read long after its losers were cancelled: every byte comes, and
/// the status is the winner's. Within the response limit it is kept, past it it is passed on.
#[tokio::test]
async fn ca9_winners_body_survives_clean_up() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    const SIZE: u32 = 4 << 20;
    for limit in [64 << 10, (4 << 20) + 100] {
        let before = fleet.seen.cancelled();
        let builder = fleet.builder().response_limit(limit);
        let mut channel = fleet.channel(builder).await;
        let response = channel.call(raw(SIZE)).await.unwrap();
        fleet
            .seen
            .until("the loser is gone", |seen| seen.cancelled() == before + 1)
            .await;
        let mut body = response.into_body();
        let (mut bytes, mut status) = (0, None);
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            let frame = frame.unwrap();
            match frame.into_data() {
                Ok(data) => bytes += data.len(),
                Err(trailers) => status = trailers.into_trailers().ok(),
            }
            tokio::task::yield_now().await;
        }
        assert!(bytes > SIZE as usize, "{bytes}");
        assert_eq!(status.unwrap()["grpc-status"], "0");
        settled(&channel).await;
        assert_eq!(fleet.seen.cancelled(), before + 1);
    }
}

/// The same through the generated client, past tonic's own limit of a message.
#[tokio::test]
async fn ca9_generated_client_reads_a_large_winner() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone()).max_decoding_message_size(16 << 20);
    let message = support::ProbeRequest {
        response_bytes: 6 << 20,
        ..request("1")
    };
    let response = client.get(message).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
    assert_eq!(response.get_ref().payload, vec![7; 6 << 20]);
    settled(&channel).await;
}

/// A body that the caller drops half-read is reset like an attempt.
#[tokio::test]
async fn dropped_body_is_cancelled() {
    let dropped = Latch::closed();
    let seen = dropped.clone();
    let rewrite = move |response: http::Response<tonic::body::Body>| {
        let endless = Endless(dropped.clone());
        response.map(|_| tonic::body::Body::new(endless))
    };
    let fleet = Fleet::rewriting(
        2,
        std::sync::Arc::new(rewrite),
        |arrival: Arrival| async move { arrival.ok() },
    )
    .await;
    let builder = fleet.builder().response_limit(64 << 10);
    let mut channel = fleet.channel(builder).await;
    let response = channel.call(raw(1)).await.unwrap();
    drop(response);
    tokio::time::timeout(support::PATIENCE, seen.passed())
        .await
        .expect("the stream is reset");
    settled(&channel).await;
}

/// Data without end; opens its latch when it is dropped.
struct Endless(Latch);

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        let frame = support::wire::message(&[7; 4096]);
        std::task::Poll::Ready(Some(Ok(frame)))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// CA10: the runtime goes down with races open; the channel lives on, and works on the next one.
#[test]
fn ca10_shutdown_with_races_open() {
    let servers = runtime();
    let fleet = servers.block_on(Fleet::start(2, |arrival: Arrival| async move {
        if arrival.request.id == "stuck" {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    }));
    let first = runtime();
    let channel = first.block_on(fleet.channel(fleet.builder()));
    for _ in 0..10 {
        let mut client = ProbeClient::new(channel.clone());
        first.spawn(async move { client.get(request("stuck")).await });
    }
    first.block_on(fleet.seen.until("all race", |seen| seen.calls() >= 20));
    drop(first);

    let second = runtime();
    let mut client = ProbeClient::new(channel.clone());
    let answer = second.block_on(async {
        let mut message = Request::new(request("1"));
        message.set_timeout(support::PATIENCE);
        client.get(message).await
    });
    assert_eq!(answer.unwrap().get_ref().id, "1");
    drop((client, channel));
    drop(second);
    drop(servers);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// CA10: the last handle is dropped while races are open: they end as they would have.
#[tokio::test]
async fn ca10_last_handle_dropped() {
    let release = Latch::closed();
    let held = release.clone();
    let fleet = Fleet::start(2, move |arrival: Arrival| {
        let held = held.clone();
        async move {
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel);
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("both arrive", |seen| seen.calls() == 2)
        .await;
    release.open();
    assert_eq!(call.await.unwrap().unwrap().get_ref().id, "1");
}

/// CA13: a loser's CANCELLED never shows, however late the caller polls.
#[tokio::test]
async fn ca13_losers_cancelled_never_leaks() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match (arrival.previous(), arrival.request.id.as_str()) {
            (0, _) => std::future::pending().await,
            (_, "ok") => arrival.ok(),
            _ => Err(Status::not_found("no such page")),
        }
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    for round in 0..20 {
        let id = if round % 2 == 0 { "ok" } else { "missing" };
        let mut call = Box::pin(client.get(request(id)));
        // Polled until its hedge has answered, then left alone for a while.
        let done = fleet.seen.finished() + 1;
        tokio::select! {
            biased;
            () = fleet.seen.until("a hedge has answered", |seen| seen.finished() == done) => {}
            answer = &mut call => {
                assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), code(id));
                continue;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let answer = call.await;
        assert_eq!(
            answer.map_or_else(|status| status.code(), |_| Code::Ok),
            code(id)
        );
    }
}

fn code(id: &str) -> Code {
    match id {
        "ok" => Code::Ok,
        _ => Code::NotFound,
    }
}
