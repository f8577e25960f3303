//! Lanes before a channel and in a server: who is let in, what is shed, and what is learnt.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
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
    BreakerState, Criticality, Hedge, HedgedChannel, LaneAlgorithm, LaneMeasure, LaneMeasured,
    LanePolicy, LaneService, Lanes, LanesBuilder, RequestExt as _, ResponseExt as _, Retry,
    TenantPolicy,
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

/// LA1: through a whole server: one more per good round trip at the limit, three quarters on a
/// slow one.
#[tokio::test(start_paused = true)]
async fn la1_the_limit_follows_a_server() {
    let policy = LanePolicy::default().initial(4).maximum(6).target(ms(500));
    let lanes = one_lane(policy);
    let (channel, _) = server_behind(&lanes, uniform);
    let client = ProbeClient::new(channel);
    let mut limits = Vec::new();
    for delay in [200, 200, 500, 501, 501, 200] {
        let mut round = JoinSet::new();
        for _ in 0..lane(&lanes, "all").limit {
            let mut client = client.clone();
            round.spawn(async move { client.get(asked(delay, Code::Ok)).await.unwrap() });
        }
        round.join_all().await;
        limits.push(lane(&lanes, "all").limit);
    }
    assert_eq!(limits, [5, 6, 6, 4, 3, 4]);
    assert_eq!(in_flight(&lanes), 0);
}

/// LA3: what cuts, by the status that a server gives, in a server and before a channel.
#[tokio::test(start_paused = true)]
async fn la3_what_cuts() {
    let overloads = [
        Code::ResourceExhausted,
        Code::Unavailable,
        Code::DeadlineExceeded,
    ];
    for code in (0..=16).map(Code::from_i32) {
        let expected = if overloads.contains(&code) { 6 } else { 8 };
        let lanes = one_lane(LanePolicy::default().initial(8));
        let (channel, _) = server_behind(&lanes, uniform);
        let result = ProbeClient::new(channel).get(asked(10, code)).await;
        assert_eq!(result.map_or_else(|it| it.code(), |_| Code::Ok), code);
        assert_eq!(lane(&lanes, "all").limit, expected, "{code:?} of a server");

        let lanes = one_lane(LanePolicy::default().initial(8));
        let replicas = [InMemory::start("a", uniform)];
        let channel = builder(&replicas).max_attempts(1).build().unwrap();
        let result = client_behind(&lanes, &channel).get(asked(10, code)).await;
        assert_eq!(result.is_ok(), code == Code::Ok);
        assert_eq!(lane(&lanes, "all").limit, expected, "{code:?} to a client");
    }
}

/// LA3: a status in the trailers, after messages.
#[tokio::test(start_paused = true)]
async fn la3_a_status_in_the_trailers() {
    let lanes = one_lane(LanePolicy::default().initial(8));
    let service = tower::service_fn(|_: http::Request<String>| async {
        let frames = [
            Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from_static(b"x"))),
            Ok(http_body::Frame::trailers(
                [("grpc-status".parse().unwrap(), "8".parse().unwrap())]
                    .into_iter()
                    .collect(),
            )),
        ];
        let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
        Ok::<_, Infallible>(http::Response::new(body))
    });
    let mut service = lanes.client_layer().layer(service);
    let response = service
        .call(http::Request::new(String::new()))
        .await
        .unwrap();
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (1, 8));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "8");
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, 6));
}

/// LA3: HTTP's own statuses, and failures without a status.
#[tokio::test]
async fn la3_what_has_no_grpc_status() {
    type Made = Result<http::Response<String>, tower::BoxError>;
    let http =
        |code: u16| -> Made { Ok(http::Response::builder().status(code).body("text".into())?) };
    let failed = |error: tower::BoxError| -> Made { Err(error) };
    for (result, expected) in [
        (http(200), 8),
        (http(404), 8),
        (http(429), 6),
        (http(503), 6),
        (failed("lost".into()), 6),
        (failed(Status::not_found("").into()), 8),
        (failed(Status::unavailable("").into()), 6),
    ] {
        let lanes = one_lane(LanePolicy::default().initial(8));
        let what = format!("{result:?}");
        let mut result = Some(result);
        let service = tower::service_fn(move |_: http::Request<String>| {
            std::future::ready(result.take().unwrap())
        });
        let service =
            tower::util::BoxCloneService::new(Once(Arc::new(parking_lot::Mutex::new(service))));
        let mut service = lanes.client_layer().layer(service);
        if let Ok(response) = service.call(http::Request::new(String::new())).await {
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(lane(&lanes, "all").limit, expected, "{what}");
        assert_eq!(in_flight(&lanes), 0);
    }
}

/// A service that can be cloned though what it wraps cannot.
struct Once<S>(Arc<parking_lot::Mutex<S>>);

impl<S> Clone for Once<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service<R>, R> Service<R> for Once<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.lock().poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.lock().call(request)
    }
}

/// LA3: a deadline that passes in a server, whose own timer then drops the handler, and one that
/// passes in the channel, are overloads; a caller who goes away sooner is none.
#[tokio::test(start_paused = true)]
async fn la3_timeout_and_cancel() {
    let lanes = one_lane(LanePolicy::default().initial(8));
    let (channel, seen) = server_behind(&lanes, by_id);
    let mut client = ProbeClient::new(channel);
    let stuck = |timeout| {
        let mut request = Request::new(request("stuck"));
        request.set_timeout(timeout);
        request
    };
    let cancelled = tokio::time::timeout(ms(50), client.get(stuck(ms(300)))).await;
    assert!(cancelled.is_err());
    seen.until("the handler is dropped", |seen| seen.cancelled() == 1)
        .await;
    assert_eq!(lane(&lanes, "all").limit, 8);
    // The request says its deadline, and the caller waits for longer.
    let (mut metadata, extensions, message) = Request::new(request("stuck")).into_parts();
    metadata.insert("grpc-timeout", "300m".parse().unwrap());
    let late = client
        .get(Request::from_parts(metadata, extensions, message))
        .await;
    assert!(late.is_err());
    eventually("its place is back", || in_flight(&lanes) == 0).await;
    assert_eq!(lane(&lanes, "all").limit, 6);

    let lanes = one_lane(LanePolicy::default().initial(8));
    let replicas = [InMemory::start("a", by_id)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = client_behind(&lanes, &channel);
    let cancelled = tokio::time::timeout(ms(50), client.get(stuck(ms(300)))).await;
    assert!(cancelled.is_err());
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, 8));
    let late = client.get(stuck(ms(300))).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, 6));
}

/// LA3: a hedge that loses is none of the lane's business, and a shed further in is no overload.
#[tokio::test(start_paused = true)]
async fn la3_losers_and_local_sheds() {
    let lanes = one_lane(LanePolicy::default().initial(8));
    let replicas = ["a", "b"].map(|name| InMemory::start(name, duplex::tail));
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = client_behind(&lanes, &channel);
    let response = client.get(asked(60_000, Code::Ok)).await.unwrap();
    assert!(response.hedged());
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, 8));

    let inner = one_lane(fixed(1));
    let mut both = ProbeClient::new(
        lanes
            .client_layer()
            .layer(inner.client_layer().layer(channel)),
    );
    let mut other = both.clone();
    let first = tokio::spawn(async move { other.get(asked(10, Code::Ok)).await });
    tokio::task::yield_now().await;
    shed(&both.get(asked(10, Code::Ok)).await.unwrap_err());
    first.await.unwrap().unwrap();
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, 8));
}

/// LA4: the permits equal the limit after each way that a call can end, over a real connection.
#[tokio::test]
async fn la4_release_on_every_exit_of_a_server() {
    let lanes = one_lane(fixed(2));
    let (uri, seen, mut server) = loopback_behind(&lanes, by_id).await;
    let free = |what: &'static str| {
        let lanes = lanes.clone();
        async move { eventually(what, || in_flight(&lanes) == 0).await }
    };
    let mut client = client_to(&uri).await;
    client.get(asked(0, Code::Ok)).await.unwrap();
    free("an OK").await;
    client.get(asked(0, Code::Internal)).await.unwrap_err();
    free("an error").await;
    client.get(request("panic")).await.unwrap_err();
    free("a panic").await;
    // The connection went with the panic, or did not.
    let mut client = client_to(&uri).await;
    let mut stuck = Request::new(request("stuck"));
    stuck.set_timeout(ms(20));
    client.get(stuck).await.unwrap_err();
    free("a deadline").await;
    let before = seen.calls();
    let mut other = client.clone();
    let call = tokio::spawn(async move { other.get(request("stuck")).await });
    seen.until("it is there", |seen| seen.calls() > before)
        .await;
    assert_eq!(in_flight(&lanes), 1);
    call.abort();
    free("a caller who goes away").await;

    let watch = |messages| ProbeRequest {
        messages,
        ..request("stream")
    };
    let mut replies = client.watch(watch(3)).await.unwrap().into_inner();
    while replies.message().await.unwrap().is_some() {}
    free("a stream's end").await;
    let replies = client.watch(watch(1_000_000)).await.unwrap().into_inner();
    assert_eq!(in_flight(&lanes), 1);
    drop(replies);
    free("a stream that is given up").await;

    let calls: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.get(request("stuck")).await })
        })
        .collect();
    eventually("both are in", || in_flight(&lanes) == 2).await;
    shed(&client.get(request("one too many")).await.unwrap_err());
    drop(client);
    for call in calls {
        call.abort();
    }
    free("connections that are gone").await;
    server.shutdown().await;
    free("a shutdown").await;
}

/// LA4: before a channel: dropped before the first poll, in the middle, and with its response.
#[tokio::test(start_paused = true)]
async fn la4_release_on_every_exit_of_a_client() {
    let lanes = one_lane(fixed(1));
    let replicas = [InMemory::start("a", by_id)];
    let channel = builder(&replicas).build().unwrap();
    let mut service = lanes.client_layer().layer(channel.clone());
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let call = service.call(http::Request::new(tonic::body::Body::empty()));
    assert_eq!(in_flight(&lanes), 1);
    drop(call);
    assert_eq!(in_flight(&lanes), 0, "before the first poll");

    let mut client = client_behind(&lanes, &channel);
    {
        let mut call = pin!(client.get(request("stuck")));
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(in_flight(&lanes), 1);
    }
    assert_eq!(in_flight(&lanes), 0, "in the middle");

    let watch = ProbeRequest {
        messages: 3,
        ..request("stream")
    };
    let mut replies = client.watch(watch).await.unwrap().into_inner();
    replies.message().await.unwrap().unwrap();
    assert_eq!(in_flight(&lanes), 1);
    shed(&client.get(asked(0, Code::Ok)).await.unwrap_err());
    drop(replies);
    assert_eq!(in_flight(&lanes), 0, "with its response");
    client.get(asked(0, Code::Ok)).await.unwrap();
    assert_eq!(in_flight(&lanes), 0);
}

/// LA5: batch sheds, at once, while interactive calls go in; each has a limit of its own.
#[tokio::test]
async fn la5_priority() {
    let lanes = two_lanes(3, 2).build().unwrap();
    let latch = Latch::closed();
    let held = latch.clone();
    let (uri, seen, _server) = loopback_behind(&lanes, move |arrival| {
        let held = held.clone();
        async move {
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let client = client_to(&uri).await;
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        let mut client = client.clone();
        let batch = with_metadata("x-criticality", "sheddable", "batch");
        calls.spawn(async move { client.get(batch).await.map(|_| ()) });
    }
    seen.until("the batch is in", |seen| seen.calls() == 2)
        .await;
    for _ in 0..50 {
        let batch = with_metadata("x-criticality", "sheddable", "batch");
        let status = client.clone().get(batch).await.unwrap_err();
        assert_eq!(shed(&status).0, "batch");
    }
    for word in ["critical", "default", "critical"] {
        let mut client = client.clone();
        let interactive = with_metadata("x-criticality", word, "interactive");
        calls.spawn(async move { client.get(interactive).await.map(|_| ()) });
    }
    seen.until("all interactive are in", |seen| seen.calls() == 5)
        .await;
    let interactive = with_metadata("x-criticality", "critical", "interactive");
    let status = client.clone().get(interactive).await.unwrap_err();
    assert_eq!(shed(&status).0, "interactive");
    latch.open();
    for result in calls.join_all().await {
        result.unwrap();
    }
    let measured = lanes.measured();
    assert_eq!((measured[0].admitted, measured[0].shed), (3, 1));
    assert_eq!((measured[1].admitted, measured[1].shed), (2, 50));
    assert_eq!(seen.calls(), 5, "nothing of the others reached the handler");
}

/// LA6: nobody waits in a lane: a call that finds it full ends at once, whatever its deadline, and
/// nothing of it is sent.
#[tokio::test(start_paused = true)]
async fn la6_no_wait() {
    let lanes = one_lane(fixed(1));
    let replicas = [InMemory::start("a", by_id)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = client_behind(&lanes, &channel);
    let mut other = client.clone();
    tokio::spawn(async move { other.get(request("stuck")).await });
    replicas[0]
        .seen
        .until("it is in", |it| it.calls() == 1)
        .await;
    let started = Instant::now();
    let mut call = Request::new(request("shed"));
    call.set_timeout(ms(50));
    shed(&client.get(call).await.unwrap_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(replicas[0].seen.calls(), 1);
}

/// What a shed call is told: a status alone, with the retry time in both places; and its request is
/// not even looked at.
#[tokio::test]
async fn a_shed_call() {
    /// Whoever reads it has taken a buffer.
    struct Untouched;
    impl http_body::Body for Untouched {
        type Data = bytes::Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
            unreachable!("the body of a shed call");
        }
    }
    #[derive(Clone)]
    struct Unused;
    impl Service<http::Request<Untouched>> for Unused {
        type Response = http::Response<String>;
        type Error = Infallible;
        type Future = std::future::Pending<Result<http::Response<String>, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Pending
        }
        fn call(&mut self, _: http::Request<Untouched>) -> Self::Future {
            unreachable!("it is never ready");
        }
    }
    let lanes = one_lane(fixed(1));
    let mut service = lanes.client_layer().layer(Unused);
    // Waiting for a service that is not ready is a part of the call, in its lane.
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let _waiting = service.call(http::Request::new(Untouched));
    assert_eq!(in_flight(&lanes), 1);
    let mut times = Vec::new();
    for _ in 0..100 {
        poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let mut request = http::Request::new(Untouched);
        let grpc = "application/grpc+proto".parse().unwrap();
        request.headers_mut().insert(CONTENT_TYPE, grpc);
        let mut call = pin!(service.call(request));
        let Poll::Ready(response) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("a shed call waits");
        };
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        assert!(http_body::Body::is_end_stream(response.body()));
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.message(), "the lane all has no place");
        let (lane, pushback) = shed(&status);
        assert_eq!(lane, "all");
        let delay = retry_info(&status);
        assert!(delay <= pushback && pushback < delay + ms(1), "{delay:?}");
        assert!((ms(100)..=ms(200)).contains(&delay), "{delay:?}");
        times.push(delay);
    }
    times.sort();
    assert!(times[99] - times[0] > ms(30), "they come back together");
    // What is not gRPC gets HTTP's words.
    let response = service.call(http::Request::new(Untouched)).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    assert_eq!(response.headers()["x-lane-shed"], "all");
}

/// A flood that is shed costs no connection: the calls on it that were let in go on.
#[tokio::test]
async fn a_flood_on_one_connection() {
    let lanes = one_lane(fixed(1));
    let latch = Latch::closed();
    let held = latch.clone();
    let (uri, seen, _server) = loopback_behind(&lanes, move |arrival| {
        let held = held.clone();
        async move {
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let client = client_to(&uri).await;
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.get(request("first")).await });
    seen.until("it is in", |seen| seen.calls() == 1).await;
    let mut flood = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        flood.spawn(async move {
            for _ in 0..150 {
                shed(&client.clone().get(request("shed")).await.unwrap_err());
            }
        });
    }
    flood.join_all().await;
    latch.open();
    first.await.unwrap().unwrap();
    assert_eq!(lane(&lanes, "all").shed, 3_000);
}

/// A request that stays open is not waited for.
#[tokio::test(start_paused = true)]
async fn an_open_request_is_shed() {
    let lanes = one_lane(fixed(1));
    let (channel, seen) = server_behind(&lanes, by_id);
    let mut client = ProbeClient::new(channel);
    let mut other = client.clone();
    tokio::spawn(async move { other.get(request("stuck")).await });
    seen.until("it is in", |seen| seen.calls() == 1).await;
    let started = Instant::now();
    let open =
        tokio_stream::StreamExt::chain(tokio_stream::once(request("one")), tokio_stream::pending());
    shed(&client.upload(open).await.unwrap_err());
    assert_eq!(started.elapsed(), ms(50));
    // One that is longer than is read, and whose rest never comes.
    let started = Instant::now();
    let big = ProbeRequest {
        payload: vec![7; 100_000],
        ..request("big")
    };
    let open = tokio_stream::StreamExt::chain(tokio_stream::once(big), tokio_stream::pending());
    shed(&client.upload(open).await.unwrap_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// A service that becomes ready later: the call waits in its lane, and is made then.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready() {
    #[derive(Clone)]
    struct Later(Latch);
    impl Service<http::Request<String>> for Later {
        type Response = http::Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<http::Response<String>, Infallible>>;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            let mut passed = Box::pin(self.0.passed());
            match passed.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => {
                    let (latch, waker) = (self.0.clone(), cx.waker().clone());
                    tokio::spawn(async move {
                        latch.passed().await;
                        waker.wake();
                    });
                    Poll::Pending
                }
            }
        }
        fn call(&mut self, _: http::Request<String>) -> Self::Future {
            std::future::ready(Ok(http::Response::new(String::new())))
        }
    }
    let lanes = one_lane(fixed(1));
    let latch = Latch::closed();
    let mut service = lanes.client_layer().layer(Later(latch.clone()));
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let call = tokio::spawn(service.call(http::Request::new(String::new())));
    tokio::time::sleep(ms(500)).await;
    assert!(!call.is_finished());
    assert_eq!(in_flight(&lanes), 1);
    latch.open();
    call.await.unwrap().unwrap();
    assert_eq!(in_flight(&lanes), 0, "an empty body is the end");
    assert!(lane(&lanes, "all").held.unwrap() >= ms(500));
}

/// A channel that retries comes again when the lane said, and gets in.
#[tokio::test(start_paused = true)]
async fn a_hedged_channel_honours_the_retry_time() {
    let lanes = one_lane(fixed(1));
    let (one, seen) = server_behind(&lanes, uniform);
    let spec = tonic_hedge::EndpointSpec::channel("a", one);
    let channel = HedgedChannel::builder()
        .discover(tokio_stream::iter([duplex::inserted(0, spec)]))
        .descriptors(support::probe::FILE_DESCRIPTOR_SET)
        .retry(Retry::default())
        .max_attempts(5)
        .build()
        .unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let mut client = ProbeClient::new(channel.clone());
        calls.spawn(async move { client.get(asked(90, Code::Ok)).await.unwrap() });
    }
    let mut retried = 0;
    for response in calls.join_all().await {
        let log = response.call_log().unwrap();
        for attempts in log.attempts().windows(2) {
            let wait = attempts[1].start() - (attempts[0].start() + attempts[0].duration());
            assert!(wait >= ms(100), "sooner than the lane said: {log}");
            retried += 1;
        }
    }
    assert!(retried >= 2);
    assert_eq!(seen.calls(), 3, "each got in once");
    assert_eq!(u64::from(lane(&lanes, "all").shed), retried);
}

/// LA12: a call that is shed before the channel is none of the channel's, nor of its breaker's.
#[tokio::test(start_paused = true)]
async fn la12_local_shed() {
    let lanes = one_lane(fixed(1));
    let replicas = [InMemory::start("a", by_id)];
    let channel = builder(&replicas).build().unwrap();
    let mut client = client_behind(&lanes, &channel);
    let mut other = client.clone();
    tokio::spawn(async move { other.get(request("stuck")).await });
    replicas[0]
        .seen
        .until("it is in", |it| it.calls() == 1)
        .await;
    for _ in 0..100 {
        assert_eq!(
            shed(&client.get(request("shed")).await.unwrap_err()).0,
            "all"
        );
    }
    let measured = channel.measured();
    assert_eq!(measured.breakers[0].state, BreakerState::Closed);
    assert_eq!(measured.breakers[0].baseline, None, "no outcome at all");
    assert_eq!(duplex::get(&channel).calls, 1);
    assert_eq!(replicas[0].seen.calls(), 1);
}

/// The lane of a call: the user's function, else the request's own criticality, its metadata,
/// the scope, the default.
#[tokio::test(start_paused = true)]
async fn the_lane_of_a_call() {
    use Criticality::{Critical, Default, Sheddable};
    let replicas = [InMemory::start("a", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let admitted = |lanes: &Lanes| -> Vec<u64> {
        let measured = lanes.measured();
        measured.iter().map(|lane| lane.admitted).collect()
    };
    for (names, critical, default, batch) in [
        (&["a"][..], 0, 0, 0),
        (&["a", "b"], 0, 0, 1),
        (&["a", "b", "c"], 0, 1, 2),
        (&["a", "b", "c", "d"], 0, 1, 3),
    ] {
        let lanes = names
            .iter()
            .fold(Lanes::builder(), |lanes, name| lanes.lane(*name, fixed(9)))
            .build()
            .unwrap();
        let mut client = client_behind(&lanes, &channel);
        let plain = || asked(0, Code::Ok);
        let metadata = |word| with_metadata("x-criticality", word, "asked");
        let mut expected = vec![0; names.len()];
        let mut goes_to = |lanes: &Lanes, lane: usize, what: &str| {
            expected[lane] += 1;
            assert_eq!(admitted(lanes), expected, "{what} of {names:?}");
        };
        client.get(plain()).await.unwrap();
        goes_to(&lanes, default, "nothing said");
        client.get(plain().criticality(Critical)).await.unwrap();
        goes_to(&lanes, critical, "critical");
        client.get(plain().criticality(Sheddable)).await.unwrap();
        goes_to(&lanes, batch, "sheddable");
        client.get(metadata("sheddable")).await.unwrap();
        goes_to(&lanes, batch, "metadata");
        client.get(metadata("urgent")).await.unwrap();
        goes_to(&lanes, default, "unknown metadata");
        let both = metadata("sheddable").criticality(Critical);
        client.get(both).await.unwrap();
        goes_to(&lanes, critical, "the request's own");
        Sheddable.scope(client.get(plain())).await.unwrap();
        goes_to(&lanes, batch, "the scope");
        let inner = plain().criticality(Default);
        Sheddable.scope(client.get(inner)).await.unwrap();
        goes_to(&lanes, default, "default, said");
    }
    let lanes = two_lanes(9, 9)
        .lane_of(|head| head.headers.get("x-lane")?.to_str().ok())
        .build()
        .unwrap();
    let mut client = client_behind(&lanes, &channel);
    client
        .get(with_metadata("x-lane", "batch", "asked"))
        .await
        .unwrap();
    assert_eq!(admitted(&lanes), [0, 1]);
    client
        .get(with_metadata("x-lane", "nonsense", "asked"))
        .await
        .unwrap();
    assert_eq!(admitted(&lanes), [1, 1]);
    let unknown = with_metadata("x-lane", "nonsense", "asked").criticality(Sheddable);
    client.get(unknown).await.unwrap();
    assert_eq!(admitted(&lanes), [1, 2]);
}

/// The first message is what is measured where it is asked for; the place is held to the end.
#[tokio::test(start_paused = true)]
async fn a_first_message() {
    for (measure, at_first, at_end) in [
        (LaneMeasure::FirstMessage, 3, 3),
        (LaneMeasure::Answer, 2, 1), // floor(1.5): three messages are too slow
    ] {
        let policy = LanePolicy::default()
            .initial(2)
            .target(ms(500))
            .measure(measure);
        let lanes = one_lane(policy);
        let (channel, _) = server_behind(&lanes, |arrival| async move { arrival.ok() });
        let mut client = ProbeClient::new(channel);
        let watch = ProbeRequest {
            messages: 3,
            delay_ms: 400,
            only_replica: "a".to_owned(),
            ..request("stream")
        };
        let mut replies = client.watch(watch).await.unwrap().into_inner();
        assert_eq!(lane(&lanes, "all").limit, 2, "the head is no message");
        replies.message().await.unwrap().unwrap();
        assert_eq!(lane(&lanes, "all").limit, at_first, "{measure:?}");
        assert_eq!(in_flight(&lanes), 1);
        while replies.message().await.unwrap().is_some() {}
        assert_eq!(in_flight(&lanes), 0);
        assert_eq!(lane(&lanes, "all").limit, at_end, "{measure:?}");
    }
}

/// Two tenants of a server, one of which floods batch: the other's batch, and everybody's
/// interactive calls, keep their share.
#[tokio::test(start_paused = true)]
async fn tenants() {
    let lanes = two_lanes(40, 20).tenant_key("x-tenant").build().unwrap();
    let (channel, _) = server_behind(&lanes, uniform);
    let client = ProbeClient::new(channel);
    let mut loads = JoinSet::new();
    for (tenant, word, pause, count) in [
        ("flood", "sheddable", 1, 3_000),
        ("calm", "sheddable", 12, 250),
        ("flood", "critical", 10, 300),
        ("calm", "critical", 10, 300),
    ] {
        let client = client.clone();
        loads.spawn(async move {
            let mut calls = JoinSet::new();
            let mut ticks = tokio::time::interval(ms(pause));
            for _ in 0..count {
                ticks.tick().await;
                let mut request = asked(100, Code::Ok);
                let metadata = request.metadata_mut();
                metadata.insert("x-tenant", tenant.parse().unwrap());
                metadata.insert("x-criticality", word.parse().unwrap());
                let mut client = client.clone();
                calls.spawn(async move { client.get(request).await.is_ok() });
            }
            let results = calls.join_all().await;
            let done = results.iter().filter(|ok| **ok).count();
            (tenant, word, done)
        });
    }
    for (tenant, word, done) in loads.join_all().await {
        let expected = match (tenant, word) {
            // Ten places, ten times a second.
            ("flood", "sheddable") => 270..=330,
            ("calm", "sheddable") => 225..=250,
            _ => 300..=300,
        };
        assert!(expected.contains(&done), "{tenant} {word}: {done}");
    }
    let batch = lane(&lanes, "batch");
    let names: Vec<_> = batch.tenants.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["calm", "flood"]);
    let sum: u64 = batch.tenants.iter().map(|it| it.shed).sum();
    assert_eq!(sum, batch.shed);
    assert!(batch.tenants[1].shed > 2_500);
}

/// The ways to name a tenant, and how many are known.
#[tokio::test(start_paused = true)]
async fn the_tenant_of_a_call() {
    let replicas = [InMemory::start("a", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let names = |lanes: &Lanes| -> Vec<String> {
        let lane = lane(lanes, "all");
        lane.tenants.iter().map(|it| it.name.to_string()).collect()
    };
    let lanes = || Lanes::builder().lane("all", fixed(9));
    let by_key = lanes()
        .tenant_key("x-tenant")
        .tenants(TenantPolicy::default().most(2))
        .build()
        .unwrap();
    let by_function = lanes()
        .tenant_of(|head| {
            head.headers
                .get("authorization")?
                .to_str()
                .ok()?
                .strip_prefix("key ")
        })
        .build()
        .unwrap();
    for name in ["b", "a", "b", "c", "d"] {
        let call = with_metadata("x-tenant", name, "asked");
        client_behind(&by_key, &channel).get(call).await.unwrap();
        let call = with_metadata("authorization", &format!("key {name}"), "asked");
        client_behind(&by_function, &channel)
            .get(call)
            .await
            .unwrap();
    }
    let none = || request("asked");
    client_behind(&by_function, &channel)
        .get(none())
        .await
        .unwrap();
    assert_eq!(names(&by_key), ["a", "b", "other"]);
    assert_eq!(names(&by_function), ["a", "b", "c", "d", "other"]);
    let without = lanes().build().unwrap();
    client_behind(&without, &channel).get(none()).await.unwrap();
    assert_eq!(names(&without), [""; 0]);
}

/// LA8: what a hedge asks is in the request's extensions, and gives places of the call's lane.
#[tokio::test]
async fn la8_the_room_of_a_call() {
    let lanes = one_lane(fixed(2));
    let (rooms, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<String>| {
        rooms
            .send(request.extensions().get::<Room>().unwrap().clone())
            .unwrap();
        std::future::pending::<Result<http::Response<String>, Infallible>>()
    });
    let mut service = lanes.client_layer().layer(service);
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let call = service.call(http::Request::new(String::new()));
    let room = asked.recv().await.unwrap();
    let hedge = room.try_extra().unwrap();
    assert_eq!(in_flight(&lanes), 2);
    assert!(room.try_extra().is_none(), "full");
    drop(hedge);
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let other = service.call(http::Request::new(String::new()));
    assert!(room.try_extra().is_none(), "a call has the last place");
    assert_eq!(
        lane(&lanes, "all").shed,
        0,
        "a hedge that is held is no shed call"
    );
    drop((call, other));
    assert_eq!(in_flight(&lanes), 0, "a room holds nothing");
}

/// LA14: mistakes are errors of `build`, and say what and where.
#[test]
fn la14_errors() {
    let policy = LanePolicy::default;
    let lanes = Lanes::builder;
    for (builder, text) in [
        (
            lanes().lane("a", policy().minimum(9).maximum(8)),
            r#"Lanes.lane: "a": Lane.minimum: 9 is not at most Lane.maximum"#,
        ),
        (
            lanes().lane("a", policy().minimum(0)),
            r#"Lanes.lane: "a": Lane.minimum: 0 is not at least 1"#,
        ),
        (
            lanes().lane("a", policy()).lane("a", policy()),
            r#"Lanes.lane: "a" is given twice"#,
        ),
        (
            lanes().lane("", policy()),
            r#"Lanes.lane: "" is not visible ASCII"#,
        ),
        (
            lanes().lane("a b", policy()),
            r#"Lanes.lane: "a b" is not visible ASCII"#,
        ),
        (
            lanes().tenant_key("x tenant"),
            r#"Lanes.tenant_key: "x tenant" is not a metadata key"#,
        ),
        (
            lanes().tenant_key("x").tenant_of(|_| None),
            "Lanes: both tenant_key and tenant_of given: one of them",
        ),
        (
            lanes().tenants(TenantPolicy::default().most(0)),
            "Lanes.tenants: Tenant.most: 0 is not in [1, 65536]",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), text);
    }
    let names = |lanes: Lanes| format!("{lanes:?}");
    assert_eq!(
        names(lanes().build().unwrap()),
        r#"["interactive", "batch"]"#
    );
    assert!(lanes().lane("a", fixed(3)).build().is_ok());
}

/// Limits that were learnt before, an algorithm of choice, and a snapshot that is serialized.
#[test]
fn resumed_and_serialized() {
    let lanes = Lanes::builder()
        .lane("interactive", LanePolicy::default().maximum(500))
        .lane(
            "batch",
            LanePolicy::default().algorithm(LaneAlgorithm::Gradient),
        )
        .build()
        .unwrap();
    assert!(lanes.resume("interactive", 900) && lanes.resume("batch", 77));
    assert!(!lanes.resume("nobody", 1));
    let json = serde_json::to_value(lanes.measured()).unwrap();
    assert_eq!(json[0]["name"], "interactive");
    assert_eq!(json[0]["limit"], 500);
    assert_eq!(json[1]["limit"], 77);
    assert_eq!(json[1]["held"], serde_json::Value::Null);
}
