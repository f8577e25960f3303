//! Whatever ends a call, its place is back.

use super::*;

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
