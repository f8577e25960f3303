//! What a stream tells the picker of its endpoint: how long it took to begin, and not how long it
//! went on.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, builder};
use support::{Arrival, ProbeClient, ProbeReply, ProbeRequest, request};
use tokio::time::sleep;
use tonic::{Code, Request, Status, Streaming};
use tonic_hedge::{Builder, Hedge, HedgedChannel, MethodPolicy};

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A replica that takes `first` for what it answers first: a stream's head, or a unary answer.
fn replica(first: Duration) -> InMemory {
    InMemory::start("a", move |arrival: Arrival| async move {
        sleep(first).await;
        arrival.ok()
    })
}

/// A stream of `messages`, a minute for each.
fn minutes(messages: u32) -> Request<ProbeRequest> {
    paced(messages, MINUTE)
}

fn paced(messages: u32, pause: Duration) -> Request<ProbeRequest> {
    Request::new(ProbeRequest {
        messages,
        delay_ms: pause.as_millis() as u32,
        only_replica: "a".to_owned(),
        ..request("stream")
    })
}

async fn to_its_end(mut replies: Streaming<ProbeReply>) -> Result<u32, Status> {
    let mut messages = 0;
    while replies.message().await?.is_some() {
        messages += 1;
    }
    Ok(messages)
}

/// What the picker takes the only endpoint's latency for.
fn latency(channel: &HedgedChannel) -> Option<Duration> {
    channel.measured().endpoints[0].latency
}

fn in_flight(channel: &HedgedChannel) -> u32 {
    channel.measured().endpoints[0].in_flight
}

fn near(latency: Option<Duration>, expected: Duration) {
    let latency = latency.unwrap();
    assert!(
        latency >= expected - ms(1) && latency < expected * 2,
        "{latency:?} for {expected:?}"
    );
}

fn channel(builder: Builder) -> (HedgedChannel, ProbeClient<HedgedChannel>) {
    let channel = builder.build().unwrap();
    (channel.clone(), ProbeClient::new(channel))
}

/// The head says it, and an hour later there is nothing to add.
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_teaches_its_head() {
    let a = replica(ms(5));
    let (channel, mut client) = channel(builder([&a]));
    let replies = client.watch(minutes(60)).await.unwrap().into_inner();
    near(latency(&channel), ms(5));
    assert_eq!(in_flight(&channel), 1);
    assert_eq!(to_its_end(replies).await.unwrap(), 60);
    assert!(latency(&channel).unwrap() < ms(10));
    assert_eq!(in_flight(&channel), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_teaches_its_head() {
    let a = replica(ms(5));
    let (channel, mut client) = channel(builder([&a]));
    let mut replies = client.watch(minutes(60)).await.unwrap().into_inner();
    for _ in 0..30 {
        replies.message().await.unwrap();
    }
    drop(replies);
    assert!(latency(&channel).unwrap() < ms(10));
    assert_eq!(in_flight(&channel), 0);
}

/// A failure makes an endpoint look slower, whenever it comes: by what is known of it, and not by
/// the half hour that the caller gave the stream.
#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_late_is_a_failure_of_no_length() {
    let a = replica(ms(5));
    let (channel, mut client) = channel(builder([&a]));
    let mut request = minutes(60);
    request.set_timeout(30 * MINUTE);
    let replies = client.watch(request).await.unwrap().into_inner();
    let status = to_its_end(replies).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    near(latency(&channel), ms(40));
}

/// Many servers send the head with the first message. Nothing to say for an hour is no slowness.
#[tokio::test(start_paused = true)]
async fn a_head_that_comes_with_a_late_event_teaches_nothing() {
    let a = replica(60 * MINUTE);
    let (channel, mut client) = channel(builder([&a]));
    let replies = client.watch(minutes(1)).await.unwrap().into_inner();
    assert_eq!(latency(&channel), None);
    to_its_end(replies).await.unwrap();
    assert_eq!(latency(&channel), None);

    let mut abandoned = client.clone();
    tokio::time::timeout(MINUTE, abandoned.watch(minutes(1)))
        .await
        .unwrap_err();
    assert_eq!(latency(&channel), None);
    assert_eq!(in_flight(&channel), 0);
}

/// Who races for the first message waits for the endpoint, however long.
#[tokio::test(start_paused = true)]
async fn a_raced_stream_teaches_its_first_message() {
    let a = replica(Duration::ZERO);
    let first_message = MethodPolicy::new().first_message(true);
    let builder = builder([&a])
        .hedge(Hedge::at(0.95))
        .method("hedge.testing.v1.Probe/Watch", first_message);
    let (channel, mut client) = channel(builder);
    let replies = client.watch(paced(60, ms(20_000))).await.unwrap();
    near(latency(&channel), ms(20_000));
    to_its_end(replies.into_inner()).await.unwrap();
    assert!(latency(&channel).unwrap() < ms(10));
}

/// A unary call's time is its endpoint's, to the end, repeatable or not.
#[tokio::test(start_paused = true)]
async fn a_unary_call_teaches_all_of_its_time() {
    let a = replica(ms(20_000));
    let (channel, mut client) = channel(builder([&a]));
    client.put(request("put")).await.unwrap();
    near(latency(&channel), ms(20_000));
    sleep(10 * MINUTE).await;
    client.get(request("get")).await.unwrap();
    near(latency(&channel), ms(20_000));
}
