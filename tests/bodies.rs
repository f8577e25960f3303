//! Messages: large, empty, compressed, over a limit, and not as many as a unary call has.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use prost::Message as _;
use support::{
    Arrival, Fleet, Latch, ProbeClient, ProbeReply, ProbeRequest, request, settled, wire,
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, CompressionEncoding, EncodeBuf, Encoder},
};
use tonic_hedge::{AttemptOutcome, CallLog, Hedge, HedgedChannel, ResponseExt};
use tonic_prost::ProstCodec;

const NEVER: Duration = Duration::from_secs(3600);

/// An original that waits until its hedge has arrived too; the hedge wins.
async fn raced(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

/// Bytes that tell where they are.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn large(id: &str, request_bytes: usize, response_bytes: u32) -> ProbeRequest {
    ProbeRequest {
        payload: pattern(request_bytes),
        response_bytes,
        ..request(id)
    }
}

/// BL1: the interop suite's sizes, raced: byte for byte, in both attempts.
#[tokio::test]
async fn bl1_large_unary() {
    let fleet = raced(2).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let response = client.get(large("1", 271_828, 314_159)).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
    assert_eq!(response.get_ref().payload, vec![7; 314_159]);
    for attempt in fleet.seen.of("1") {
        assert!(attempt.request.payload == pattern(271_828));
    }
    assert_eq!(fleet.seen.calls(), 2);
}

/// BL2: a request over the buffer limit is sent once, whole, and never hedged.
#[tokio::test]
async fn bl2_over_replay_cap() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        match arrival.request.id.as_str() {
            "fails" => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(large("1", 3 << 19, 10)).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    let arrivals = fleet.seen.of("1");
    assert_eq!(arrivals.len(), 1);
    assert!(arrivals[0].request.payload == pattern(3 << 19));
    assert_eq!(channel.measured().budget, Some(100.0));
    // Nor is it retried.
    client.get(large("fails", 3 << 19, 10)).await.unwrap_err();
    assert_eq!(fleet.seen.of("fails").len(), 1);

    // The limit is the user's.
    let channel = fleet.channel(fleet.builder().buffer_limit(2 << 20)).await;
    let mut client = ProbeClient::new(channel);
    let response = client.get(large("2", 3 << 19, 10)).await.unwrap();
    assert!(response.hedged());
    for attempt in fleet.seen.of("2") {
        assert!(attempt.request.payload == pattern(3 << 19));
    }
}

/// BL4: a message is encoded once, however many attempts send it.
#[tokio::test]
async fn bl4_encode_once() {
    let fleet = Fleet::start(4, |arrival: Arrival| async move {
        if arrival.previous() < 3 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(Duration::from_millis(5)).max_concurrent(4))
        .max_attempts(4);
    let channel = fleet.channel(builder).await;
    let encoded = Arc::new(AtomicUsize::new(0));
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/hedge.testing.v1.Probe/Get");
    let codec = Counting(Arc::clone(&encoded));
    let message = Request::new(large("1", 10_000, 0));
    let response = grpc.unary(message, path, codec).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 3);
    assert_eq!(fleet.seen.of("1").len(), 4);
    assert_eq!(encoded.load(Ordering::SeqCst), 1);
}

/// Prost's codec, whose encoder counts.
struct Counting(Arc<AtomicUsize>);

impl Codec for Counting {
    type Encode = ProbeRequest;
    type Decode = ProbeReply;
    type Encoder = CountingEncoder;
    type Decoder = <ProstCodec<ProbeRequest, ProbeReply> as Codec>::Decoder;

    fn encoder(&mut self) -> CountingEncoder {
        CountingEncoder(Arc::clone(&self.0))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<ProbeRequest, ProbeReply>::default().decoder()
    }
}

struct CountingEncoder(Arc<AtomicUsize>);

impl Encoder for CountingEncoder {
    type Item = ProbeRequest;
    type Error = Status;

    fn encode(&mut self, item: ProbeRequest, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        item.encode(buffer).unwrap();
        Ok(())
    }
}

/// BL7: a compressed request is compressed in both attempts, and so is the answer.
#[tokio::test]
async fn bl7_compression() {
    let fleet = raced(2).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let response = client.get(large("1", 100_000, 100_000)).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
    assert_eq!(response.get_ref().payload, vec![7; 100_000]);
    assert_eq!(response.metadata().get("grpc-encoding").unwrap(), "gzip");
    let attempts = fleet.seen.of("1");
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        assert_eq!(attempt.metadata.get("grpc-encoding").unwrap(), "gzip");
        assert!(attempt.request.payload == pattern(100_000));
    }
}

/// BL8: an empty message is a message.
#[tokio::test]
async fn bl8_empty_message() {
    let fleet = raced(2).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let response = client.get(ProbeRequest::default()).await.unwrap();
    assert!(response.hedged());
    assert_eq!(fleet.seen.of("").len(), 2);
    let rewrite = |response: http::Response<tonic::body::Body>| {
        response.map(|_| wire::of_frames(vec![wire::message(b""), wire::ok_trailers()]))
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival: Arrival| async move {
        arrival.ok()
    })
    .await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.get_ref(), &ProbeReply::default());
}

/// BL10: an answer over the client's own limit fails once, as with a plain channel.
#[tokio::test]
async fn bl10_over_receive_limit() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let endpoint = tonic::transport::Endpoint::new(fleet.replicas[0].uri()).unwrap();
    let mut plain = ProbeClient::new(endpoint.connect().await.unwrap());
    // Over tonic's default limit, and so over the channel's; over a limit of the client's own.
    let mut hedged = ProbeClient::new(channel.clone());
    let expected = plain.get(large("plain!", 0, 5 << 20)).await.unwrap_err();
    let status = hedged.get(large("hedged", 0, 5 << 20)).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (expected.code(), expected.message())
    );
    assert_eq!(fleet.seen.of("hedged").len(), 1);
    let mut hedged = hedged.max_decoding_message_size(1000);
    let mut plain = plain.max_decoding_message_size(1000);
    let expected = plain.get(large("plain!", 0, 2000)).await.unwrap_err();
    let status = hedged.get(large("small!", 0, 2000)).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (expected.code(), expected.message())
    );
    assert_eq!(fleet.seen.of("small!").len(), 1);
    settled(&channel).await;
}

/// An answer over the response limit wins its race, and comes whole.
#[tokio::test]
async fn over_the_response_limit_is_passed_on() {
    let fleet = raced(2).await;
    let channel = fleet.channel(fleet.builder().response_limit(1000)).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(large("1", 0, 300_000)).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
    assert_eq!(response.get_ref().payload, vec![7; 300_000]);
    settled(&channel).await;
}

/// BL11: an OK with no message, or with two, is an error to a unary call.
#[tokio::test]
async fn bl11_zero_or_two_messages() {
    let rewrite = |response: http::Response<tonic::body::Body>| {
        let Some(count) = response.headers().get("x-messages") else {
            return response;
        };
        let count: usize = count.to_str().unwrap().parse().unwrap();
        let mut frames: Vec<_> = (0..count).map(|_| wire::message(b"")).collect();
        frames.push(wire::ok_trailers());
        response.map(|_| wire::of_frames(frames))
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival: Arrival| async move {
        let mut response = arrival.ok()?;
        let count = arrival.request.messages.to_string().parse().unwrap();
        response.metadata_mut().insert("x-messages", count);
        Ok(response)
    })
    .await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER)).without_breaker();
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let message = |messages| ProbeRequest {
        messages,
        ..request("1")
    };
    client.get(message(1)).await.unwrap();
    for count in [0, 2, 3] {
        let status = client.get(message(count)).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{count}");
        let text = format!("unary response with {count} messages instead of one");
        assert_eq!(status.message(), text);
    }
}

/// A broken answer does not beat a good one that is on its way.
#[tokio::test]
async fn bl11_broken_answer_does_not_win() {
    let failed = Latch::closed();
    let release = failed.clone();
    let rewrite = |response: http::Response<tonic::body::Body>| {
        if !response.headers().contains_key("x-broken") {
            return response;
        }
        response.map(|_| wire::of_frames(vec![wire::ok_trailers()]))
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), move |arrival: Arrival| {
        let failed = failed.clone();
        async move {
            let mut response = arrival.ok()?;
            if arrival.previous() == 0 {
                failed.passed().await;
            } else {
                response
                    .metadata_mut()
                    .insert("x-broken", "1".parse().unwrap());
            }
            Ok(response)
        }
    })
    .await;
    let channel = fleet.channel(fleet.builder().max_attempts(2)).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the hedge has failed", |measured| {
        let in_flight: u32 = measured.endpoints.iter().map(|e| e.in_flight).sum();
        fleet.seen.finished() == 1 && in_flight == 1
    })
    .await;
    release.open();
    let response = call.await.unwrap().unwrap();
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Won(Code::Ok));
    let failed = AttemptOutcome::Failed(Code::Internal);
    assert_eq!(log.attempts()[1].outcome(), failed);
}

/// BL6: streaming methods pass straight through, though their .proto marks them idempotent (CF6).
#[tokio::test]
async fn bl6_streaming_passes_through() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "fails" => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::immediately())
        .without_breaker();
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());

    let watch = ProbeRequest {
        messages: 3,
        ..request("watch")
    };
    let response = client.watch(watch).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    let mut replies = response.into_inner();
    for _ in 0..3 {
        assert_eq!(replies.message().await.unwrap().unwrap().id, "watch");
    }
    assert!(replies.message().await.unwrap().is_none());
    assert_eq!(fleet.seen.of("watch").len(), 1);

    let messages = ["first", "second", "upload"].map(request);
    let response = client.upload(tokio_stream::iter(messages)).await.unwrap();
    assert_eq!(response.get_ref().id, "upload");
    assert_eq!(fleet.seen.of("upload").len(), 1);

    // Each reply comes before the next request is sent: nothing is collected.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    sender.send(request("chat-0")).await.unwrap();
    let mut replies = client.chat(requests).await.unwrap().into_inner();
    for turn in 0..5 {
        let reply = replies.message().await.unwrap().unwrap();
        assert_eq!(reply.id, format!("chat-{turn}"));
        let next = format!("chat-{}", turn + 1);
        sender.send(request(&next)).await.unwrap();
    }
    drop(sender);
    while replies.message().await.unwrap().is_some() {}
    assert_eq!(fleet.seen.of("chat-0").len(), 1);

    // Nor are they retried, though the failure is one that a retry may better.
    for method in ["watch", "upload"] {
        let before = fleet.seen.of("fails").len();
        let status = match method {
            "watch" => client.watch(request("fails")).await.unwrap_err(),
            _ => {
                let messages = tokio_stream::iter([request("fails")]);
                client.upload(messages).await.unwrap_err()
            }
        };
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "down")
        );
        assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 1);
        assert_eq!(fleet.seen.of("fails").len(), before + 1);
    }
    settled(&channel).await;
    assert_eq!(hedges(&channel), 0);
}

fn hedges(channel: &HedgedChannel) -> u64 {
    channel.measured().methods.iter().map(|m| m.hedges).sum()
}
