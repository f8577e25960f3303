//! Servers that say nothing, or nothing more.

use tokio::{io::AsyncWriteExt as _, net::TcpListener, sync::Notify};
use tonic::transport::{ClientTlsConfig, Endpoint};
use tonic_hedge::{EndpointMeasured, EndpointState};

use super::*;

/// A.5: a head and then silence is beaten, and its server sees the reset.
#[tokio::test]
async fn a5_head_then_silence() {
    let (a, b, mut client) = two(|number| match number {
        0 => vec![Step::Head],
        _ => ok("good"),
    })
    .await;
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.get_ref().replica, "good");
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Discarded);
    let silent = match log.attempts()[0].endpoint() == a.addr.to_string() {
        true => &a,
        false => &b,
    };
    silent
        .until("the reset", |log| log.resets == [CANCEL])
        .await;
}

/// A.5, FA7: with everyone silent the deadline ends the call, and nothing of it is left.
#[tokio::test]
async fn fa7_a5_all_silent() {
    for steps in [vec![Step::Head], vec![]] {
        let (a, b, mut client) = two(move |_| steps.clone()).await;
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let mut request = Request::new(request("1"));
        request.set_timeout(Duration::from_millis(200));
        let error = client.get(request).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        // Both attempts' streams are reset, and the tasks of both clients and servers go.
        for raw in [&a, &b] {
            raw.until("the reset", |log| log.resets == [CANCEL]).await;
        }
        support::eventually("no task is left", || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
                <= tasks
        })
        .await;
    }
}

/// FA18, FA6: an endpoint that accepts and never speaks takes no call; alone, the deadline ends
/// the call.
#[tokio::test]
async fn fa18_mute_endpoint() {
    let mute = Raw::with(
        Manner {
            mute: true,
            ..Manner::default()
        },
        script(|_| vec![]),
    )
    .await;
    let mut alone = client([mute.uri()]);
    let mut timed = Request::new(request("1"));
    timed.set_timeout(Duration::from_millis(200));
    assert_eq!(
        alone.get(timed).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );

    let good = Replica::fast("good").await;
    let mut client = client([mute.uri(), good.uri()]);
    for _ in 0..20 {
        assert_eq!(
            client.put(request("2")).await.unwrap().get_ref().replica,
            "good"
        );
    }
}

/// FA6: an endpoint that was up and then swallows everything is beaten by a hedge, or by the
/// deadline.
#[tokio::test]
async fn fa6_black_hole() {
    let (_a, _b, mut client) = two(|number| match number {
        0 | 2 | 3 => vec![],
        _ => ok("good"),
    })
    .await;
    assert_eq!(
        client.get(request("1")).await.unwrap().get_ref().replica,
        "good"
    );
    let mut timed = Request::new(request("2"));
    timed.set_timeout(Duration::from_millis(200));
    assert_eq!(
        client.put(timed).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
}

/// A server whose own timer for the deadline is a moment earlier says CANCELLED, as tonic's does:
/// to the caller it is the deadline. Far from it, it is what the server says.
#[tokio::test]
async fn cancelled_at_the_deadline() {
    let server = Replica::start("a", |arrival| async move {
        tokio::time::sleep(Duration::from_millis(arrival.request.delay_ms.into())).await;
        Err(Status::cancelled("Timeout expired"))
    })
    .await;
    let mut client = client([server.uri()]);
    for (delay_ms, timeout, code) in [
        (78, Duration::from_millis(80), Code::DeadlineExceeded),
        (0, Duration::from_secs(60), Code::Cancelled),
    ] {
        let timed = || {
            let mut request = Request::new(ProbeRequest {
                delay_ms,
                ..request("1")
            });
            request.set_timeout(timeout);
            request
        };
        assert_eq!(client.off(timed()).await.unwrap_err().code(), code);
        assert_eq!(client.put(timed()).await.unwrap_err().code(), code);
    }
}

/// FA18: a TLS handshake that never comes is given up at the connect time limit, and hedges go
/// elsewhere meanwhile.
#[tokio::test]
async fn fa18_tls_never_comes() {
    let manner = Manner {
        mute: true,
        ..Manner::default()
    };
    let mute = Raw::with(manner, script(|_| vec![])).await;
    let tls = |limit| {
        let endpoint = Endpoint::new(format!("https://{}", mute.addr)).unwrap();
        let endpoint = endpoint.connect_timeout(limit);
        endpoint.tls_config(ClientTlsConfig::new()).unwrap()
    };
    // Alone: no call waits longer than that.
    let alone = HedgedChannel::builder().endpoints([tls(Duration::from_millis(50))]);
    let mut client = ProbeClient::new(alone.build().unwrap());
    let error = client.put(request("1")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(
        error.message().contains("no connection within 50ms"),
        "{error}"
    );

    let slow = Latch::closed();
    let script = {
        let slow = slow.clone();
        move |arrival: support::Arrival| {
            let slow = slow.clone();
            async move {
                if arrival.previous() == 0 {
                    slow.passed().await;
                }
                arrival.ok()
            }
        }
    };
    let a = Replica::start("a", script.clone()).await;
    let b = Replica::start("b", script).await;
    let plain = |replica: &Replica| Endpoint::new(replica.uri()).unwrap();
    let channel = HedgedChannel::builder()
        .endpoints([tls(Duration::from_secs(60)), plain(&a), plain(&b)])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(5)))
        .build()
        .unwrap();
    support::connected(&channel, 2).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..10 {
        let response = client.get(request("1")).await.unwrap();
        assert!(response.hedge_won());
    }
    assert_eq!(
        channel.measured().endpoints[0].state,
        EndpointState::Connecting
    );
    slow.open();
}

/// FA6: a connection whose other side is gone without a word is given up by the endpoint's own
/// keepalive, and what hangs on it fails as what it is: a lost connection.
#[tokio::test]
async fn fa6_evicted_by_keepalive() {
    // Accepts, answers the first call, and then neither reads nor writes.
    let gone = Arc::new(Notify::new());
    let server = Replica::fast("a").await;
    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hole.local_addr().unwrap();
    let vanish = Arc::clone(&gone);
    let target = server.addr;
    let relay = tokio::spawn(async move {
        let (mut client, _) = hole.accept().await.unwrap();
        let mut behind = tokio::net::TcpStream::connect(target).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut behind) => {}
            () = vanish.notified() => {}
        }
        drop(behind);
        // The listener goes, its connection stays.
        drop(hole);
        std::future::pending::<()>().await;
        client.shutdown().await.unwrap();
    });
    let endpoint = Endpoint::new(format!("http://{address}"))
        .unwrap()
        .http2_keep_alive_interval(Duration::from_millis(100))
        .keep_alive_timeout(Duration::from_millis(100))
        .keep_alive_while_idle(true);
    let channel = HedgedChannel::builder()
        .endpoints([endpoint])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    client.put(request("warm")).await.unwrap();
    gone.notify_one();
    // No deadline: the keepalive ends them.
    let mut puts = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut client = client.clone();
        puts.spawn(async move { client.put(request("put")).await.unwrap_err() });
    }
    for put in puts.join_all().await {
        assert_eq!(put.code(), Code::Unavailable, "{put:?}");
    }
    // BR12: one connection is one failure, however it is lost.
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, tonic_hedge::BreakerState::Closed);
    let out = |endpoint: &EndpointMeasured| endpoint.state != EndpointState::Ready;
    support::until_measured(&channel, "it is out", |measured| {
        measured.endpoints.iter().all(out)
    })
    .await;
    relay.abort();
}

/// FA20: bytes that come one at a time hold nobody beyond the deadline, and a hedge does better.
#[tokio::test]
async fn fa20_one_byte_at_a_time() {
    let trickle = || {
        let reply = match reply("slow") {
            Step::Data(bytes) => bytes,
            _ => vec![],
        };
        vec![
            Step::Body,
            Step::Head,
            Step::Trickle(reply, Duration::from_secs(1)),
            status("0"),
        ]
    };
    let (a, b, mut client) = two(move |number| match number {
        // The first call's attempts, and the first of the last call.
        0..=3 => trickle(),
        _ => ok("good"),
    })
    .await;
    let timed = |id| {
        let mut timed = Request::new(request(id));
        timed.set_timeout(Duration::from_millis(300));
        timed
    };
    let error = client.get(timed("1")).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let error = client.put(timed("2")).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    for raw in [&a, &b] {
        raw.until("the resets", |log| !log.resets.is_empty()).await;
    }
    let response = client.get(request("3")).await.unwrap();
    assert_eq!(response.get_ref().replica, "good");
    assert!(response.hedge_won());
}

/// FA5: whatever keeps B from being connected, A serves as if there were no B: no call fails, none
/// is hedged, and nothing is charged.
#[tokio::test]
async fn fa5_unreachable_neighbour() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let neighbours = [
        ("refused", refused.as_str()),
        // TEST-NET-1 (RFC 5737): no route, or no answer.
        ("unreachable", "http://192.0.2.1:50051"),
        ("no such name", "http://nowhere.invalid:50051"),
    ];
    for (what, uri) in neighbours {
        let a = Replica::start("a", |arrival| async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            arrival.ok()
        })
        .await;
        let channel = HedgedChannel::builder()
            .endpoints([a.uri(), uri.to_owned()])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::after(Duration::from_millis(1)))
            .budget(BudgetPolicy::default().ratio(0.0).initial(5.0))
            .build()
            .unwrap();
        support::connected(&channel, 1).await;
        let mut client = ProbeClient::new(channel.clone());
        for _ in 0..50 {
            client.get(request("1")).await.unwrap();
            client.put(request("1")).await.unwrap();
        }
        let measured = channel.measured();
        assert_eq!(a.seen.calls(), 100, "{what}");
        assert_eq!(measured.budget, Some(5.0), "{what}");
        let rates = measured.breakers.iter().filter_map(|b| b.error_rate);
        assert!(rates.into_iter().all(|rate| rate == 0.0), "{what}");
    }
}
