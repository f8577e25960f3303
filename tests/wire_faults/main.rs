//! Faults on the wire: what a server may break, and what the caller gets for it.

#![allow(clippy::unwrap_used)]

mod resets;
mod responses;
mod silence;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod uploads;

use std::{sync::Arc, time::Duration};

use support::{
    Latch, ProbeClient, ProbeRequest, Replica, probe,
    raw::{
        CANCEL, INTERNAL_ERROR, Last, Manner, NO_ERROR, REFUSED_STREAM, Raw, Step, header, ok,
        reply, script, status, trailers_only,
    },
    request,
};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BudgetPolicy, CallLog, Hedge, HedgedChannel, ResponseExt,
};

type Client = ProbeClient<HedgedChannel>;

/// Hedges after 20 ms; no breaker, so that each fault meets the same channel.
fn channel<const N: usize>(uris: [String; N]) -> HedgedChannel {
    HedgedChannel::builder()
        .endpoints(uris)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .without_breaker()
        .build()
        .unwrap()
}

fn client<const N: usize>(uris: [String; N]) -> Client {
    ProbeClient::new(channel(uris))
}

/// Waits until every endpoint is connected. A first call has started the connecting.
async fn connected(channel: &HedgedChannel) {
    let ready = async {
        while channel
            .measured()
            .endpoints
            .iter()
            .any(|endpoint| endpoint.state != tonic_hedge::EndpointState::Ready)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, ready)
        .await
        .unwrap();
}

/// Two raw servers, connected by a first call each way; then the n-th stream of both gets
/// `steps(n)`.
async fn two(steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> (Raw, Raw, Client) {
    let (a, b, channel) = two_channel(steps).await;
    (a, b, ProbeClient::new(channel))
}

async fn two_channel(
    steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static,
) -> (Raw, Raw, HedgedChannel) {
    let script = script(move |number| match number {
        0 => ok("warm"),
        number => steps(number - 1),
    });
    let a = Raw::start(script.clone()).await;
    let b = Raw::start(script).await;
    let channel = channel([a.uri(), b.uri()]);
    let mut client = ProbeClient::new(channel.clone());
    // Not hedged, so that it takes the first stream only.
    client.put(request("warm")).await.unwrap();
    connected(&channel).await;
    (a, b, channel)
}

/// One server with `steps` for every stream.
async fn one(steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> (Raw, Client) {
    let raw = Raw::start(script(steps)).await;
    let client = client([raw.uri()]);
    (raw, client)
}

fn ids(servers: &[&Raw], id: &str) -> usize {
    servers
        .iter()
        .map(|raw| raw.log(|log| log.ids.iter().filter(|seen| *seen == id).count()))
        .sum()
}

fn kinds(log: &CallLog) -> Vec<AttemptKind> {
    log.attempts()
        .iter()
        .map(|attempt| attempt.kind())
        .collect()
}
