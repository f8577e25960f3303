//! What moves a limit: whole answers, first messages, statuses, deadlines.

use super::*;

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

/// LA3: a call that an open breaker refuses, or whose time is over before it begins, has met
/// nobody: however many there are, the limit stays.
#[tokio::test(start_paused = true)]
async fn la3_what_is_never_sent() {
    let lanes = one_lane(LanePolicy::default().initial(100));
    let replicas = [InMemory::start("a", uniform)];
    let channel = builder(&replicas).max_attempts(1).build().unwrap();
    let mut client = client_behind(&lanes, &channel);
    while channel
        .measured()
        .breakers
        .iter()
        .all(|it| it.state == BreakerState::Closed)
    {
        client.get(asked(10, Code::Unavailable)).await.unwrap_err();
    }
    let (learnt, sent) = (lane(&lanes, "all").limit, replicas[0].seen.calls());
    for _ in 0..20 {
        tokio::time::sleep(ms(150)).await;
        let refused = client.get(asked(10, Code::Ok)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        let mut late = asked(10, Code::Ok);
        late.set_timeout(Duration::ZERO);
        let late = client.get(late).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded);
    }
    assert_eq!(replicas[0].seen.calls(), sent);
    assert_eq!((in_flight(&lanes), lane(&lanes, "all").limit), (0, learnt));
}

/// The first message is what is measured where it is asked for; the place is held to the end.
#[tokio::test(start_paused = true)]
async fn a_first_message() {
    for (round_trip, at_first, at_end) in [
        (RoundTrip::FirstMessage, 3, 3),
        (RoundTrip::Answer, 2, 1), // floor(1.5): three messages are too slow
    ] {
        let policy = LanePolicy::default()
            .initial(2)
            .target(ms(500))
            .round_trip(round_trip);
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
        assert_eq!(lane(&lanes, "all").limit, at_first, "{round_trip:?}");
        assert_eq!(in_flight(&lanes), 1);
        while replies.message().await.unwrap().is_some() {}
        assert_eq!(in_flight(&lanes), 0);
        assert_eq!(lane(&lanes, "all").limit, at_end, "{round_trip:?}");
    }
}
