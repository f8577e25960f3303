//! A stream whose requests are still open when it ends on the client's side: the server hears of it
//! at once, not when the caller's stream of requests comes to its end.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{
    PATIENCE, ProbeClient, ProbeReply, probe,
    raw::{self, CANCEL, Raw, Step},
    request, settled,
};
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};
use tonic_hedge::HedgedChannel;

/// A server that sends one reply to each stream, and the channel to it.
async fn one_reply() -> (Raw, HedgedChannel) {
    let steps = |_| vec![Step::Head, raw::reply("raw")];
    let server = Raw::start(raw::script(steps)).await;
    let channel = HedgedChannel::builder()
        .endpoints([server.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    (server, channel)
}

/// A stream that has had its reply, and the requests' side of it.
async fn replied(
    channel: &HedgedChannel,
    timeout: Option<Duration>,
) -> (Streaming<ProbeReply>, Sender<support::ProbeRequest>) {
    let (requests, receiver) = mpsc::channel(1);
    requests.send(request("chat")).await.unwrap();
    let mut call = Request::new(ReceiverStream::new(receiver));
    if let Some(timeout) = timeout {
        call.set_timeout(timeout);
    }
    let mut client = ProbeClient::new(channel.clone());
    let mut replies = client.chat(call).await.unwrap().into_inner();
    assert!(replies.message().await.unwrap().is_some());
    (replies, requests)
}

/// The server is told, and whoever makes the requests is too.
async fn cancelled(
    server: &Raw,
    channel: &HedgedChannel,
    requests: &Sender<support::ProbeRequest>,
) {
    server
        .until("the stream is reset", |log| log.resets == [CANCEL])
        .await;
    let closed = tokio::time::timeout(PATIENCE, requests.closed()).await;
    assert!(closed.is_ok(), "the caller's stream is kept");
    settled(channel).await;
}

#[tokio::test]
async fn dropped_replies_cancel_the_stream() {
    let (server, channel) = one_reply().await;
    let (replies, requests) = replied(&channel, None).await;
    drop(replies);
    cancelled(&server, &channel, &requests).await;
}

/// The same by the deadline.
#[tokio::test]
async fn the_deadline_cancels_the_stream() {
    let (server, channel) = one_reply().await;
    let (mut replies, requests) = replied(&channel, Some(Duration::from_secs(1))).await;
    let status = replies.message().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    cancelled(&server, &channel, &requests).await;
}
