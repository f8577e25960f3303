//! Connections: made, refused, lost, made again.

use super::*;

#[tokio::test]
async fn ec9_a_dead_endpoint_is_not_picked_and_returns() {
    let live = Server::start().await;
    let dead = refused().await;
    let set = EndpointSet::list([spec(dead), live.spec()]);
    let (first, _) = picked(&set).await;
    assert_eq!(**first.name(), live.name());
    until(&set, || {
        endpoint(&set, &dead.to_string()).last_error().is_some()
    })
    .await;
    for _ in 0..1_000 {
        let (endpoint, _) = picked(&set).await;
        assert_eq!(**endpoint.name(), live.name());
    }
    assert!(!set.has_ready(&[first], Purpose::Hedge));

    let revived = Server::start_at(dead).await;
    all_ready(&set).await;
    let tried = [endpoint(&set, &live.name())];
    assert!(set.has_ready(&tried, Purpose::Hedge));
    match set.pick(NOW, &tried, Purpose::Hedge) {
        Picked::Endpoint(endpoint, line) => {
            assert_eq!(**endpoint.name(), revived.name());
            call(line.channel).await.unwrap();
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn fa18_a_listener_that_never_speaks_is_not_ready() {
    // The kernel accepts for it; no SETTINGS come.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (silent.local_addr().unwrap(), silent);
    let alone = EndpointSet::list([spec(silent.0)]);
    alone.ensure_started();
    // A connection to it is under way.
    silent.1.accept().await.unwrap();
    assert!(matches!(
        alone.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));

    let live = Server::start().await;
    let set = EndpointSet::list([spec(silent.0), live.spec()]);
    for _ in 0..100 {
        assert_eq!(**picked(&set).await.0.name(), live.name());
    }

    let limited = TonicEndpoint::from_shared(format!("http://{}", silent.0)).unwrap();
    let limited = limited.connect_timeout(Duration::from_millis(20));
    let set = EndpointSet::list([EndpointSpec::new(limited)]);
    let text = unavailable(&set).await;
    assert!(text.contains("no connection within 20ms"), "{text}");
}

#[tokio::test]
async fn all_endpoints_down_is_unavailable_with_the_reason() {
    let (a, b) = (refused().await, refused().await);
    let set = EndpointSet::list([spec(a), spec(b)]);
    let text = unavailable(&set).await;
    assert!(text.contains(&a.to_string()), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(text.ends_with("(and 1 more)"), "{text}");
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Hedge),
        Picked::None(Unavailable::NoOther)
    ));
}

#[tokio::test]
async fn a_lost_connection_is_noticed_without_a_call() {
    let server = Server::start().await;
    let address = server.address;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, channel) = picked(&set).await;
    call(channel).await.unwrap();
    endpoint.answered(NOW);
    server.stop().await;
    until(&set, || endpoint.line().is_none()).await;
    let text = unavailable(&set).await;
    assert!(text.contains(&address.to_string()), "{text}");

    let _revived = Server::start_at(address).await;
    let (again, channel) = picked(&set).await;
    assert!(Arc::ptr_eq(&again, &endpoint));
    call(channel).await.unwrap();
}

#[tokio::test]
async fn calls_left_on_a_lost_connection_fail_at_once_as_never_sent() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, channel) = picked(&set).await;
    let address = server.address;
    server.stop().await;
    until(&set, || endpoint.line().is_none()).await;
    for _ in 0..3 {
        let error = soon(call(channel.clone())).await.unwrap_err();
        let mut cause: &dyn std::error::Error = &error;
        while !cause.is::<tonic::ConnectError>() {
            cause = cause.source().expect("a connect error");
        }
    }
    // Not even a server that is back makes it dial again: against a black hole each call that is still
    // queued would wait for a time-out.
    let _revived = Server::start_at(address).await;
    soon(call(channel)).await.unwrap_err();
}

#[tokio::test]
async fn a_resolved_endpoint_dials_its_address_and_not_its_name() {
    let server = Server::start().await;
    let name = TonicEndpoint::from_static("http://nowhere.invalid:50051");
    let set = EndpointSet::list([EndpointSpec::resolved(Arc::new(name), server.address)]);
    let (_, channel) = picked(&set).await;
    let response = call(channel).await.unwrap();
    assert_eq!(
        response.headers()["seen-authority"],
        "nowhere.invalid:50051"
    );
}

/// The connection drains and closes after a GOAWAY; no call is lost, and each new one has a connection.
#[tokio::test]
async fn fa4_a_graceful_goaway_costs_no_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                let mut served = 0;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let response = Response::builder().header("grpc-status", "0");
                    let _gone = respond.send_response(response.body(()).unwrap(), true);
                    served += 1;
                    if served == 3 {
                        connection.graceful_shutdown();
                    }
                }
            });
        }
    });
    let set = EndpointSet::list([spec(address)]);
    for _ in 0..100 {
        let (endpoint, channel) = picked(&set).await;
        soon(call(channel)).await.unwrap();
        endpoint.answered(NOW);
    }
    server.abort();
}

#[tokio::test]
async fn fa19_a_server_that_hangs_up_is_not_connected_in_a_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hang_up = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            // Speaks HTTP/2 first, so that it counts as connected.
            let _shut = h2::server::handshake(socket).await;
        }
    });
    let set = EndpointSet::list([spec(address)]);
    set.ensure_started();
    until(&set, || {
        endpoint(&set, &address.to_string()).state() == EndpointState::Backoff
    })
    .await;
    hang_up.abort();
}

#[tokio::test]
async fn a_name_becomes_its_addresses() {
    let server = Server::start().await;
    let name = format!("http://localhost:{}", server.address.port());
    let name = TonicEndpoint::from_shared(name).unwrap();
    let set = EndpointSet::dns(name, RESOLVE_INTERVAL).unwrap();
    let (endpoint, channel) = picked(&set).await;
    assert_eq!(**endpoint.name(), server.name());
    assert_eq!(&**endpoint.server_address(), "localhost");
    assert_eq!(endpoint.server_port(), Some(server.address.port()));
    let response = call(channel).await.unwrap();
    let authority = format!("localhost:{}", server.address.port());
    assert_eq!(response.headers()["seen-authority"], authority);
}

#[tokio::test]
async fn a_name_without_addresses_is_named() {
    let name = TonicEndpoint::from_static("http://nowhere.invalid:50051");
    let set = EndpointSet::dns(name, RESOLVE_INTERVAL).unwrap();
    let text = unavailable(&set).await;
    assert!(text.contains("cannot resolve nowhere.invalid"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_that_a_call_could_not_reach_is_connected_again() {
    let path = std::env::temp_dir().join(format!("tonic-hedge-{}.sock", std::process::id()));
    let _none = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while connection.accept().await.is_some() {}
            });
        }
    });
    let uds = TonicEndpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let set = EndpointSet::list([uds.into()]);
    let (endpoint, _) = picked(&set).await;
    assert_eq!(&**endpoint.name(), "unix#0");
    set.report_unreachable(&endpoint, "broken pipe");
    assert!(endpoint.line().is_none());
    picked(&set).await;
    server.abort();
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_report_about_an_earlier_connection_leaves_the_present_one() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, _) = picked(&set).await;
    set.report_unreachable(&endpoint, "connection refused");
    assert!(endpoint.line().is_some());
}
