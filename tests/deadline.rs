//! The call's deadline: from the call to the trailers, whatever runs, and one status.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Arrival, Fleet, ProbeClient, ProbeRequest, probe, request, settled};
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};
use tonic_hedge::{BudgetPolicy, CallLog, Hedge, HedgedChannel, ResponseExt, Retry};

const NEVER: Duration = Duration::from_secs(3600);

fn within(id: &str, timeout: Duration) -> Request<ProbeRequest> {
    let mut request = Request::new(request(id));
    request.set_timeout(timeout);
    request
}

/// The status of a deadline that passed here, after no less than `timeout`.
fn assert_expired(status: &Status, timeout: Duration) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(
        status.message(),
        "the call's deadline passed before an answer came"
    );
    let log = CallLog::of_status(status).unwrap();
    assert!(log.duration() >= timeout, "{log}");
}

async fn stuck(count: u8) -> Fleet {
    Fleet::start(count, |_| std::future::pending()).await
}

/// DL1: the whole call ends at its deadline, with retries and hedges running.
#[tokio::test]
async fn dl1_whole_call() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("restarting")),
            _ => std::future::pending().await,
        }
    })
    .await;
    let builder = fleet
        .builder()
        .retry(Retry::default().base(Duration::from_millis(1)));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(300);
    let status = client.get(within("1", timeout)).await.unwrap_err();
    assert_expired(&status, timeout);
    settled(&channel).await;
    let calls = fleet.seen.calls();
    assert!((1..=3).contains(&calls), "{calls}");
    fleet
        .seen
        .until("all are cancelled", |seen| seen.running() == 0)
        .await;
    assert_eq!(fleet.seen.calls(), calls);
}

/// DL3: a deadline that has passed already sends nothing, and charges nothing.
#[tokio::test]
async fn dl3_already_past() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let channel = fleet
        .channel(fleet.builder().budget(BudgetPolicy::default()))
        .await;
    let before = channel.measured();
    let mut client = ProbeClient::new(channel.clone());
    let mut late = Request::new(request("1"));
    late.metadata_mut()
        .insert("grpc-timeout", "0m".parse().unwrap());
    let status = client.get(late).await.unwrap_err();
    assert_expired(&status, Duration::ZERO);
    assert!(CallLog::of_status(&status).unwrap().attempts().is_empty());
    assert_eq!(fleet.seen.calls(), 0);
    let after = channel.measured();
    assert_eq!(after.budget, before.budget);
    assert_eq!(after.breakers[0].error_rate, None);
}

/// DL4: it ends a call that still waits for a connection.
#[tokio::test]
async fn dl4_while_connecting() {
    // Accepted by the kernel, answered by nobody.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = HedgedChannel::builder()
        .endpoints([format!("http://{}", silent.local_addr().unwrap())])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(50);
    for _ in 0..3 {
        let status = client.get(within("1", timeout)).await.unwrap_err();
        assert_expired(&status, timeout);
        let status = client.put(within("1", timeout)).await.unwrap_err();
        assert_expired(&status, timeout);
    }
    assert!(channel.measured().methods.iter().all(|m| m.attempts == 0));
}

/// DL4: it ends a call that is slow to send its request.
#[tokio::test]
async fn dl4_while_the_request_is_read() {
    let fleet = stuck(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(50);
    let mut upload = Request::new(tokio_stream::pending::<ProbeRequest>());
    upload.set_timeout(timeout);
    let status = client.upload(upload).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    settled(&channel).await;
}

/// DL6: the greatest values overflow nothing.
#[tokio::test]
async fn dl6_huge() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::after(Duration::MAX));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    client.get(request("1")).await.unwrap();
    for value in ["99999999H", "99999999S", "99999999n"] {
        let mut message = Request::new(request("1"));
        message
            .metadata_mut()
            .insert("grpc-timeout", value.parse().unwrap());
        client.get(message).await.unwrap();
        let mut message = Request::new(request("1"));
        message
            .metadata_mut()
            .insert("grpc-timeout", value.parse().unwrap());
        client.put(message).await.unwrap();
    }
    let hedge = Hedge::at(0.5)
        .minimum_delay(Duration::MAX)
        .maximum_delay(Duration::MAX)
        .cold_start(Duration::MAX);
    let mut client = ProbeClient::new(fleet.channel(fleet.builder().hedge(hedge)).await);
    client.get(request("1")).await.unwrap();
}

/// DL7: our own expiry is DEADLINE_EXCEEDED for every kind of call, never CANCELLED.
#[tokio::test]
async fn dl7_code() {
    let fleet = stuck(2).await;
    let channel = fleet.channel(fleet.builder().without_breaker()).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(40);
    for _ in 0..10 {
        let status = client.get(within("get", timeout)).await.unwrap_err();
        assert_expired(&status, timeout);
        let status = client.put(within("put", timeout)).await.unwrap_err();
        assert_expired(&status, timeout);
        let status = client.watch(within("watch", timeout)).await.unwrap_err();
        assert_expired(&status, timeout);
    }
    settled(&channel).await;
}

/// The deadline runs to the trailers: headers that come in time do not stop it.
#[tokio::test]
async fn dl7_after_the_headers() {
    let rewrite = |response: http::Response<tonic::body::Body>| {
        response.map(|_| {
            let silent = http_body_util::StreamBody::new(tokio_stream::pending::<
                Result<http_body::Frame<bytes::Bytes>, Status>,
            >());
            tonic::body::Body::new(silent)
        })
    };
    let fleet = Fleet::rewriting(
        1,
        std::sync::Arc::new(rewrite),
        |arrival: Arrival| async move { arrival.ok() },
    )
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(300);
    let status = client.get(within("get", timeout)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let status = client.put(within("put", timeout)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fleet.seen.calls(), 2);
    settled(&channel).await;
}

/// DL8: no attempt starts after the deadline.
#[tokio::test]
async fn dl8_own_expiry_is_not_retried() {
    let fleet = stuck(3).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(100);
    let status = client.get(within("1", timeout)).await.unwrap_err();
    assert_expired(&status, timeout);
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 1);
    settled(&channel).await;
    assert!(fleet.seen.calls() <= 1);
    let get = &channel.measured().methods[0];
    assert_eq!((get.attempts, get.retries, get.hedges), (1, 0, 0));
}

/// Case 7: each attempt is told what is left of the deadline, and nothing starts after it.
#[tokio::test]
async fn case_7_remaining_deadline() {
    let fleet = stuck(2).await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(Duration::from_millis(200)));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_secs(2);
    let status = client.get(within("1", timeout)).await.unwrap_err();
    assert_expired(&status, timeout);
    let arrivals = fleet.seen.of("1");
    assert_eq!(arrivals.len(), 2);
    assert_eq!(left(&arrivals[0]), timeout);
    let at_most = Duration::from_millis(1_800);
    assert!(left(&arrivals[1]) <= at_most, "{:?}", left(&arrivals[1]));
}

fn left(arrival: &Arrival) -> Duration {
    let text = arrival
        .metadata
        .get("grpc-timeout")
        .unwrap()
        .to_str()
        .unwrap();
    let (amount, unit) = text.split_at(text.len() - 1);
    let amount: u64 = amount.parse().unwrap();
    match unit {
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        unit => panic!("{unit}"),
    }
}

/// Case 7, TH13: a threshold past the deadline starts no hedge.
#[tokio::test]
async fn case_7_threshold_beyond_the_deadline() {
    let fleet = stuck(2).await;
    let builder = fleet.builder().hedge(Hedge::after(Duration::from_secs(1)));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let timeout = Duration::from_millis(100);
    let status = client.get(within("1", timeout)).await.unwrap_err();
    assert_expired(&status, timeout);
    assert!(!CallLog::of_status(&status).unwrap().hedged());
    assert_eq!(channel.measured().budget, Some(100.0));
}

/// A server's own DEADLINE_EXCEEDED is an answer, and passes with its text.
#[tokio::test]
async fn a_servers_deadline_exceeded_is_an_answer() {
    let fleet = Fleet::start(2, |_| async { Err(Status::deadline_exceeded("shard 7")) }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let status = client.get(request("1")).await.unwrap_err();
    assert_eq!(status.message(), "shard 7");
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 1);
}

/// An unreadable deadline is passed on as it is, and is none to the channel.
#[tokio::test]
async fn dl9_unreadable_timeout_in_metadata() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let mut message = Request::new(request("1"));
    message
        .metadata_mut()
        .insert("grpc-timeout", "soon".parse().unwrap());
    let response = client.get(message).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
}
