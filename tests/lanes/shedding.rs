//! What is shed, how, and what it costs nobody else.

use super::*;

/// A client whose channel is behind a lane of one place, which a call has.
async fn behind_a_full_lane() -> (
    HedgedChannel,
    InMemory,
    ProbeClient<LaneService<HedgedChannel>>,
) {
    let lanes = one_lane(fixed(1));
    let replica = InMemory::start("a", by_id);
    let channel = builder([&replica]).build().unwrap();
    let client = client_behind(&lanes, &channel);
    let mut other = client.clone();
    tokio::spawn(async move { other.get(request("stuck")).await });
    replica.seen.until("it is in", |it| it.calls() == 1).await;
    (channel, replica, client)
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
    let (_channel, replica, mut client) = behind_a_full_lane().await;
    let started = Instant::now();
    let mut call = Request::new(request("shed"));
    call.set_timeout(ms(50));
    shed(&client.get(call).await.unwrap_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(replica.seen.calls(), 1);
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
    for (asked, answered) in [
        ("application/grpc+proto", Some("application/grpc")),
        ("application/grpc; a=b", Some("application/grpc")),
        (
            "application/grpc-web+proto",
            Some("application/grpc-web+proto"),
        ),
        (
            "application/grpc-web-text",
            Some("application/grpc-web-text"),
        ),
        ("application/grpcx", None),
        ("application/json", None),
    ] {
        let request = http::Request::builder().header(CONTENT_TYPE, asked);
        let response = service
            .call(request.body(Untouched).unwrap())
            .await
            .unwrap();
        let content_type = response.headers().get(CONTENT_TYPE);
        assert_eq!(content_type.map(|it| it.to_str().unwrap()), answered);
        assert_eq!(response.status() == 429, answered.is_none(), "{asked}");
        let status = response.headers().get("grpc-status");
        assert_eq!(status.is_some(), answered.is_some(), "{asked}");
    }
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
    // All at once, so that the requests follow their heads late.
    for _ in 0..5_000 {
        let mut client = client.clone();
        flood.spawn(async move { shed(&client.get(request("shed")).await.unwrap_err()) });
    }
    flood.join_all().await;
    latch.open();
    first.await.unwrap().unwrap();
    assert_eq!(lane(&lanes, "all").shed, 5_000);
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

/// A service that stands in a line where it is asked whether it is ready: the call has the place in
/// it, and who is shed, or has only asked, keeps none.
#[tokio::test(start_paused = true)]
async fn a_service_with_a_line() {
    let lanes = one_lane(fixed(2));
    let inner = tower::service_fn(|_: http::Request<String>| async {
        tokio::time::sleep(ms(10)).await;
        Ok::<_, Infallible>(http::Response::new(String::new()))
    });
    let inner = tower::limit::ConcurrencyLimit::new(inner, 1);
    let mut services = [(); 3].map(|()| lanes.client_layer().layer(inner.clone()));
    let request = || http::Request::new(String::new());
    for round in 0..3 {
        let mut calls = Vec::new();
        for service in &mut services {
            poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
            calls.push(service.call(request()));
        }
        let shed = calls.pop().unwrap().await.unwrap();
        assert_eq!(shed.status(), http::StatusCode::TOO_MANY_REQUESTS);
        for call in calls {
            let answer = tokio::time::timeout(ms(1_000), call).await;
            let answer = answer.unwrap_or_else(|_| panic!("round {round}: never"));
            assert_eq!(answer.unwrap().status(), http::StatusCode::OK);
        }
        services.rotate_left(1);
    }
    assert_eq!(in_flight(&lanes), 0);
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
    assert_eq!(lane(&lanes, "all").shed, retried);
}

/// LA12: a call that is shed before the channel is none of the channel's, nor of its breaker's.
#[tokio::test(start_paused = true)]
async fn la12_local_shed() {
    let (channel, replica, mut client) = behind_a_full_lane().await;
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
    assert_eq!(replica.seen.calls(), 1);
}

/// A channel to these replicas that comes again by itself for nobody.
fn one_attempt_over<const N: usize>(replicas: [Channel; N]) -> HedgedChannel {
    let specs = replicas.into_iter().enumerate().map(|(key, channel)| {
        let name = format!("replica-{key}");
        duplex::inserted(key, tonic_hedge::EndpointSpec::channel(name, channel))
    });
    HedgedChannel::builder()
        .discover(tokio_stream::iter(specs.collect::<Vec<_>>()))
        .descriptors(support::probe::FILE_DESCRIPTOR_SET)
        .max_attempts(1)
        .build()
        .unwrap()
}

/// A server whose batch lane is full is a failure to nobody: the users of the same channel go on, its
/// replicas look no slower, and nothing is hedged or held on account of it.
#[tokio::test(start_paused = true)]
async fn a_shed_is_no_failure_of_the_server() {
    let lanes = two_lanes(10, 1).build().unwrap();
    let (one, seen) = server_behind(&lanes, by_id);
    let channel = one_attempt_over([one]);
    let client = ProbeClient::new(channel.clone());
    let sheddable = |id| Request::new(request(id)).criticality(Criticality::Sheddable);
    let mut stuck = client.clone();
    let stuck = tokio::spawn(async move { stuck.get(sheddable("stuck")).await });
    seen.until("it is in", |seen| seen.calls() == 1).await;
    let mut user = client.clone();
    user.get(asked(20, Code::Ok)).await.unwrap();
    for _ in 0..100 {
        let status = client.clone().get(sheddable("shed")).await.unwrap_err();
        assert_eq!(status.shed_by(), Some("batch"));
        assert!(status.retry_after().unwrap() >= ms(50), "{status:?}");
        user.get(asked(20, Code::Ok)).await.unwrap();
    }
    let measured = channel.measured();
    assert_eq!(measured.breakers[0].state, BreakerState::Closed);
    assert_eq!(measured.breakers[0].baseline, Some(0.0));
    let latency = measured.endpoints[0].latency.unwrap();
    assert!(latency <= ms(40), "{latency:?}");
    stuck.abort();
}

/// A replica that sheds is idle, and fast in its way: it does not draw the calls for which another has
/// room, and keeps those that it does not shed.
#[tokio::test(start_paused = true)]
async fn a_replica_that_sheds_draws_no_calls() {
    let (full, free) = (two_lanes(10, 1).build().unwrap(), two_lanes(10, 10));
    let free = free.build().unwrap();
    let (one, seen) = server_behind(&full, by_id);
    let (other, _) = server_behind(&free, by_id);
    let mut outsider = ProbeClient::new(one.clone());
    let stuck = tokio::spawn(async move {
        let request = with_metadata("x-criticality", "sheddable", "stuck");
        outsider.get(request).await
    });
    seen.until("it is in", |seen| seen.calls() == 1).await;
    let channel = one_attempt_over([one, other]);
    let mut client = ProbeClient::new(channel.clone());
    let mut shed = 0;
    for _ in 0..1_000 {
        let batch = asked(20, Code::Ok).criticality(Criticality::Sheddable);
        shed += u32::from(client.get(batch).await.is_err());
    }
    // In 20 s: once whenever the time is over that it has said.
    assert!((10..250).contains(&shed), "{shed}");
    let before = lane(&full, "interactive").admitted;
    for _ in 0..100 {
        client.get(asked(20, Code::Ok)).await.unwrap();
    }
    let users = lane(&full, "interactive").admitted - before;
    assert!((20..=80).contains(&users), "{users}");
    stuck.abort();
}

/// A handler that passes on what a lane further in has said, after its stream has begun.
#[tokio::test]
async fn a_shed_in_trailers_is_no_failure_either() {
    use support::raw::{Raw, Step, script};
    let trailers = |lane: bool| {
        let mut trailers = vec![("grpc-status", b"8".to_vec())];
        trailers.extend(lane.then(|| ("x-lane-shed", b"batch".to_vec())));
        vec![Step::Head, Step::Trailers(trailers)]
    };
    for (sheds, state) in [(true, BreakerState::Closed), (false, BreakerState::Open)] {
        let server = Raw::start(script(move |_| trailers(sheds))).await;
        let channel = HedgedChannel::builder()
            .endpoints([server.uri()])
            .descriptors(support::probe::FILE_DESCRIPTOR_SET)
            .build()
            .unwrap();
        for _ in 0..5 {
            let mut client = ProbeClient::new(channel.clone());
            let mut replies = client.watch(request("it")).await.unwrap().into_inner();
            let status = replies.message().await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
        }
        assert_eq!(channel.measured().breakers[0].state, state);
    }
}

/// Nobody learns from a shed whether the handlers behind the lane work: the next call is the probe.
#[tokio::test(start_paused = true)]
async fn a_shed_probe_says_nothing() {
    let lanes = two_lanes(10, 1).build().unwrap();
    let (one, seen) = server_behind(&lanes, by_id);
    let channel = one_attempt_over([one]);
    let mut client = ProbeClient::new(channel.clone());
    let mut stuck = ProbeClient::new(channel.clone());
    let request = Request::new(request("stuck")).criticality(Criticality::Sheddable);
    let stuck = tokio::spawn(async move { stuck.get(request).await });
    seen.until("it is in", |seen| seen.calls() == 1).await;
    for _ in 0..5 {
        client.get(asked(0, Code::Unavailable)).await.unwrap_err();
    }
    let state = || channel.measured().breakers[0].state;
    assert_eq!(state(), BreakerState::Open);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let batch = asked(0, Code::Ok).criticality(Criticality::Sheddable);
    shed(&client.get(batch).await.unwrap_err());
    assert_eq!(state(), BreakerState::HalfOpen);
    client.get(asked(0, Code::Ok)).await.unwrap();
    assert_eq!(state(), BreakerState::Closed);
    stuck.abort();
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
