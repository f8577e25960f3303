//! Lanes before a channel and in a server: who is let in, what is shed, and what is learnt.

#![allow(clippy::unwrap_used)]

mod classes;
#[path = "../support/duplex.rs"]
mod duplex;
mod exits;
mod hedges;
mod learning;
mod shedding;
#[path = "../support/mod.rs"]
mod support;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use duplex::{InMemory, asked, builder, pipe, uniform};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http_body_util::BodyExt as _;
use support::{
    Answer, Arrival, Latch, ProbeClient, ProbeRequest, Seen, eventually, request, scripted,
};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint, Server},
};
use tonic_hedge::{
    BreakerState, Criticality, Hedge, HedgedChannel, LaneAlgorithm, LaneMeasured, LanePolicy,
    LaneService, Lanes, LanesBuilder, RequestExt as _, ResponseExt as _, Retry, RoundTrip,
    StatusExt as _, TenantPolicy,
};
use tonic_hedge_engine::lane::Room;
use tower::{Layer as _, Service};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limit that stays.
fn fixed(limit: u32) -> LanePolicy {
    LanePolicy::default().minimum(limit).maximum(limit)
}

fn one_lane(policy: LanePolicy) -> Lanes {
    Lanes::builder().lane("all", policy).build().unwrap()
}

/// `interactive` and `batch`.
fn two_lanes(interactive: u32, batch: u32) -> LanesBuilder {
    Lanes::builder()
        .lane("interactive", fixed(interactive))
        .lane("batch", fixed(batch))
}

fn lane(lanes: &Lanes, name: &str) -> LaneMeasured {
    let mut measured = lanes.measured();
    measured.retain(|lane| &*lane.name == name);
    measured.remove(0)
}

fn in_flight(lanes: &Lanes) -> u32 {
    lanes.measured().iter().map(|lane| lane.in_flight).sum()
}

/// A server in memory, behind the lanes.
fn server_behind<F, R>(lanes: &Lanes, script: F) -> (Channel, Arc<Seen>)
where
    F: Fn(Arrival) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let seen = Arc::new(Seen::default());
    let service = scripted("a", Arc::clone(&seen), script);
    let (channel, incoming) = pipe();
    let server = Server::builder()
        .layer(lanes.server_layer())
        .add_service(service);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    (channel, seen)
}

/// A server on a loopback port, behind the lanes; dropping the set kills it.
async fn loopback_behind<F, R>(lanes: &Lanes, script: F) -> (String, Arc<Seen>, JoinSet<()>)
where
    F: Fn(Arrival) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let seen = Arc::new(Seen::default());
    let service = scripted("a", Arc::clone(&seen), script);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder()
        .layer(lanes.server_layer())
        .add_service(service);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    });
    (uri, seen, tasks)
}

async fn client_to(uri: &str) -> ProbeClient<Channel> {
    let endpoint = Endpoint::from_shared(uri.to_owned()).unwrap();
    ProbeClient::new(endpoint.connect().await.unwrap())
}

/// A client whose calls pass the lanes before they reach the channel.
fn client_behind(
    lanes: &Lanes,
    channel: &HedgedChannel,
) -> ProbeClient<LaneService<HedgedChannel>> {
    ProbeClient::new(lanes.client_layer().layer(channel.clone()))
}

/// Does what the request's id says.
async fn by_id(arrival: Arrival) -> Answer {
    match arrival.request.id.as_str() {
        "panic" => panic!("as asked"),
        "stuck" => std::future::pending().await,
        _ => uniform(arrival).await,
    }
}

/// A request with a criticality in its metadata, for a client that knows no lanes.
fn with_metadata(key: &'static str, value: &str, id: &str) -> Request<ProbeRequest> {
    let mut request = Request::new(request(id));
    request.metadata_mut().insert(key, value.parse().unwrap());
    request
}

/// The lane that shed the call, and the time that it gave.
fn shed(status: &Status) -> (String, Duration) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let text = |key| status.metadata().get(key).unwrap().to_str().unwrap();
    let pushback = text("grpc-retry-pushback-ms").parse().unwrap();
    (text("x-lane-shed").to_owned(), ms(pushback))
}

/// `google.rpc.RetryInfo`'s delay, read by another decoder than ours.
fn retry_info(status: &Status) -> Duration {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Rich {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        retry_delay: Option<prost_types::Duration>,
    }
    let rich: Rich = prost::Message::decode(status.details()).unwrap();
    assert_eq!(rich.code, Code::ResourceExhausted as i32);
    assert_eq!(
        rich.details[0].type_url,
        "type.googleapis.com/google.rpc.RetryInfo"
    );
    let info: RetryInfo = prost::Message::decode(rich.details[0].value.as_slice()).unwrap();
    info.retry_delay.unwrap().try_into().unwrap()
}
