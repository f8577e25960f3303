//! Endpoints that come, go, die, hang and return: where attempts and hedges land.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use support::{
    Arrival, Fleet, Latch, ProbeClient, ProbeRequest, Replica, connected, probe, proxy::Proxy,
    request, settled, until_measured,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Code, Request, Status,
    transport::{Endpoint, Server},
};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BudgetPolicy, Builder, EndpointState, Hedge, HedgedChannel,
    ResponseExt,
};
use tower::discover::Change;

const NEVER: Duration = Duration::from_secs(3600);

fn rich() -> BudgetPolicy {
    BudgetPolicy::default()
        .ratio(1.0)
        .capacity(1e6)
        .initial(1e6)
}

fn over(uris: impl IntoIterator<Item = String>) -> Builder {
    HedgedChannel::builder()
        .endpoints(uris)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .budget(rich())
}

/// A port where nobody listens.
async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn within(id: &str, timeout: Duration) -> Request<ProbeRequest> {
    let mut request = Request::new(request(id));
    request.set_timeout(timeout);
    request
}

/// EC1: ten thousand hedges over two to five endpoints, and never two attempts in one place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ec1_different_endpoint() {
    for (count, calls) in [(2, 2_500), (3, 1_250), (4, 840), (5, 630)] {
        let fleet = Fleet::start(count, |arrival: Arrival| async move { arrival.ok() }).await;
        let hedge = Hedge::immediately().max_concurrent(u32::from(count));
        let builder = fleet.builder().hedge(hedge).budget(rich());
        let channel = fleet.channel(builder.max_attempts(u32::from(count))).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let mut client = ProbeClient::new(channel.clone());
            tasks.spawn(async move {
                let mut hedges = 0;
                for _ in 0..calls / 10 {
                    let response = client.get(request("1")).await.unwrap();
                    let log = response.call_log().unwrap();
                    let mut endpoints: Vec<_> =
                        log.attempts().iter().map(|a| a.endpoint()).collect();
                    hedges += endpoints.len() - 1;
                    endpoints.sort_unstable();
                    assert!(endpoints.windows(2).all(|pair| pair[0] != pair[1]), "{log}");
                }
                hedges
            });
        }
        let hedges: usize = tasks.join_all().await.into_iter().sum();
        // All, but in calls that are answered before their last hedge is asked for.
        let measured = channel.measured();
        assert!(
            hedges >= 2_450,
            "{hedges} at {count} endpoints: {measured:#?}"
        );
    }
}

/// EC2, case 1: with one endpoint there is no hedge, one reason, and the original answers.
#[tokio::test]
async fn ec2_single_endpoint() {
    let fleet = Fleet::start(1, |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        arrival.ok()
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(within("1", support::PATIENCE)).await.unwrap();
    assert!(!response.hedged());
    assert_eq!(fleet.seen.calls(), 1);
    let get = channel.measured().methods.remove(0);
    assert_eq!(get.suppressed, [("other_endpoint", 1)]);
    assert_eq!(channel.measured().budget, Some(100.0));
}

/// EC3: one address given twice is one endpoint.
#[tokio::test]
async fn ec3_same_address_twice() {
    let replica = Replica::start("a", |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        arrival.ok()
    })
    .await;
    let channel = over([replica.uri(), replica.uri()]).build().unwrap();
    connected(&channel, 1).await;
    assert_eq!(channel.measured().endpoints.len(), 1);
    let response = ProbeClient::new(channel).get(request("1")).await.unwrap();
    assert!(!response.hedged());
}

/// Case 3: a hedge's target refuses connections: the original answers, and nobody sees an
/// UNAVAILABLE; with a third endpoint the hedge goes there.
#[tokio::test]
async fn case_3_target_refuses() {
    let script = |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(80)).await;
        arrival.ok()
    };
    let a = Replica::start("a", script).await;
    let b = Replica::start("b", script).await;
    let dead = refusing().await;

    let channel = over([a.uri(), dead.clone()]).build().unwrap();
    connected(&channel, 1).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..5 {
        let response = client.get(request("1")).await.unwrap();
        assert!(!response.hedged());
    }
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.error_rate.unwrap_or_default(), 0.0);

    let channel = over([a.uri(), dead, b.uri()]).build().unwrap();
    connected(&channel, 2).await;
    let mut client = ProbeClient::new(channel);
    for _ in 0..5 {
        let response = client.get(request("1")).await.unwrap();
        let log = response.call_log().unwrap();
        let kinds: Vec<_> = log.attempts().iter().map(|a| a.kind()).collect();
        assert_eq!(kinds, [AttemptKind::Original, AttemptKind::Hedge], "{log}");
    }
}

/// The only endpoint refuses: UNAVAILABLE that names it, whatever the method.
#[tokio::test]
async fn only_endpoint_refuses() {
    let dead = refusing().await;
    let channel = over([dead.clone()]).build().unwrap();
    let mut client = ProbeClient::new(channel);
    let name = dead.trim_start_matches("http://");
    for _ in 0..3 {
        let status = client.get(request("1")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains(name), "{status:?}");
        assert!(status.message().contains("refused"), "{status:?}");
        let status = client.put(request("1")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
}

/// EC9: an endpoint that refuses connections gets no originals, and costs no budget.
#[tokio::test]
async fn ec9_dead_endpoint_looks_ready() {
    let a = Replica::fast("a").await;
    let b = Replica::fast("b").await;
    let dead = refusing().await;
    let builder = over([a.uri(), dead, b.uri()]).hedge(Hedge::after(NEVER));
    let builder = builder.budget(BudgetPolicy::default().ratio(0.0).initial(5.0));
    let channel = builder.build().unwrap();
    connected(&channel, 2).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..300 {
        // Put, so that a retry cannot hide a failure.
        let response = client.put(request("1")).await.unwrap();
        assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    }
    assert_eq!(channel.measured().budget, Some(5.0));
    let set_aside = channel.measured().endpoints.remove(1);
    assert_ne!(set_aside.state, EndpointState::Ready);
    assert!(set_aside.last_error.unwrap().contains("refused"));
}

/// An endpoint that accepts and never answers is never ready: no original, no hedge goes there.
#[tokio::test]
async fn accepts_and_never_answers() {
    let a = Replica::start("a", |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        arrival.ok()
    })
    .await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let black_hole = format!("http://{}", silent.local_addr().unwrap());
    let channel = over([black_hole, a.uri()]).build().unwrap();
    connected(&channel, 1).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..10 {
        let response = client.get(request("1")).await.unwrap();
        assert!(!response.hedged());
        assert_eq!(response.get_ref().replica, "a");
    }
    assert_eq!(channel.measured().endpoints[0].in_flight, 0);
}

/// EC10: an endpoint that fails at once does not attract load by being fast.
#[tokio::test]
async fn ec10_fast_failer() {
    let bad = Replica::failing("bad", Status::unavailable("down")).await;
    let script = |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        arrival.ok()
    };
    let a = Replica::start("a", script).await;
    let b = Replica::start("b", script).await;
    let builder = over([bad.uri(), a.uri(), b.uri()]).hedge(Hedge::after(NEVER));
    let channel = builder.without_breaker().build().unwrap();
    connected(&channel, 3).await;
    let mut client = ProbeClient::new(channel);
    for _ in 0..300 {
        // Retried elsewhere where the original met the bad one.
        client.get(request("1")).await.unwrap();
    }
    let share = bad.seen.calls() as f64 / 300.0;
    assert!(share < 0.34, "{share}");
}

type Changes = tokio::sync::mpsc::UnboundedSender<Result<Change<u32, Endpoint>, Infallible>>;

fn discovered() -> (Changes, HedgedChannel) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let channel = HedgedChannel::builder()
        .discover(UnboundedReceiverStream::new(receiver))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .budget(rich())
        .build()
        .unwrap();
    (sender, channel)
}

fn insert(changes: &Changes, key: u32, replica: &Replica) {
    let endpoint = Endpoint::new(replica.uri()).unwrap();
    changes.send(Ok(Change::Insert(key, endpoint))).unwrap();
}

/// EC4: an endpoint is removed while it serves: its call finishes, and is counted out.
#[tokio::test]
async fn ec4_removed_while_running() {
    let release = Latch::closed();
    let held = release.clone();
    let a = Replica::start("a", move |arrival: Arrival| {
        let held = held.clone();
        async move {
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let b = Replica::fast("b").await;
    let (changes, channel) = discovered();
    insert(&changes, 0, &a);
    connected(&channel, 1).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.put(request("1")).await }
    });
    a.seen.until("it arrives", |seen| seen.calls() == 1).await;
    changes.send(Ok(Change::Remove(0))).unwrap();
    insert(&changes, 1, &b);
    until_measured(&channel, "b replaced a", |measured| {
        measured.endpoints.len() == 1 && *measured.endpoints[0].name == *b.addr.to_string()
    })
    .await;
    let response = client.put(request("2")).await.unwrap();
    assert_eq!(response.get_ref().replica, "b");
    release.open();
    assert_eq!(call.await.unwrap().unwrap().get_ref().replica, "a");
    settled(&channel).await;
}

/// EC5, EC6: endpoints are added and removed all the time under load: no call fails, and no
/// task, endpoint or attempt is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ec6_churn() {
    let stays = Replica::fast("stays").await;
    let mut churned = Vec::new();
    for index in 0..4 {
        churned.push(Replica::fast(&index.to_string()).await);
    }
    let (changes, channel) = discovered();
    insert(&changes, 100, &stays);
    connected(&channel, 1).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (mut client, done) = (ProbeClient::new(channel.clone()), Arc::clone(&done));
        tasks.spawn(async move {
            let mut calls = 0;
            while !done.load(Ordering::Relaxed) {
                let own = Request::new(request("1"));
                let own = tonic_hedge::RequestExt::hedge(own, Hedge::immediately());
                client.get(own).await.unwrap();
                calls += 1;
            }
            calls
        });
    }
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..5_000 {
        let key = random.u32(0..4);
        match random.bool() {
            true => insert(&changes, key, &churned[key as usize]),
            false => changes.send(Ok(Change::Remove(key))).unwrap(),
        }
        if step % 25 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for key in 0..4 {
        changes.send(Ok(Change::Remove(key))).unwrap();
    }
    until_measured(&channel, "only one is left", |m| m.endpoints.len() == 1).await;
    done.store(true, Ordering::Relaxed);
    let calls: u32 = tasks.join_all().await.into_iter().sum();
    assert!(calls > 0);
    settled(&channel).await;
    // Keepers and connections of those that left are gone: what runs is the test's servers.
    let metrics = tokio::runtime::Handle::current().metrics();
    let wait = async {
        // The supervisor, one keeper, one connection at both ends and its buffer; five servers.
        while metrics.num_alive_tasks() > 16 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(support::PATIENCE, wait).await;
    assert!(ended.is_ok(), "{} tasks", metrics.num_alive_tasks());
}

/// EC7: two thousand updates while no call is made; the first call uses the newest list.
#[tokio::test]
async fn ec7_update_without_traffic() {
    let a = Replica::fast("a").await;
    let b = Replica::fast("b").await;
    let (changes, channel) = discovered();
    for _ in 0..1_000 {
        insert(&changes, 0, &a);
        changes.send(Ok(Change::Remove(0))).unwrap();
    }
    insert(&changes, 1, &b);
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(within("1", support::PATIENCE)).await.unwrap();
    assert_eq!(response.get_ref().replica, "b");
    assert_eq!(a.seen.calls(), 0);

    // And once more when its background work runs.
    for _ in 0..1_000 {
        insert(&changes, 0, &a);
        changes.send(Ok(Change::Remove(1))).unwrap();
        insert(&changes, 1, &b);
        changes.send(Ok(Change::Remove(0))).unwrap();
    }
    changes.send(Ok(Change::Remove(1))).unwrap();
    insert(&changes, 0, &a);
    until_measured(&channel, "a replaced b", |measured| {
        measured.endpoints.len() == 1 && *measured.endpoints[0].name == *a.addr.to_string()
    })
    .await;
    let response = client.get(within("2", support::PATIENCE)).await.unwrap();
    assert_eq!(response.get_ref().replica, "a");
}

/// EC8: an empty list fails calls at once; a refilled one serves them.
#[tokio::test]
async fn ec8_empty_then_refilled() {
    let a = Replica::fast("a").await;
    let (changes, channel) = discovered();
    insert(&changes, 0, &a);
    connected(&channel, 1).await;
    let mut client = ProbeClient::new(channel.clone());
    client.get(request("1")).await.unwrap();
    changes.send(Ok(Change::Remove(0))).unwrap();
    until_measured(&channel, "it is empty", |m| m.endpoints.is_empty()).await;
    let call = tokio::time::timeout(support::PATIENCE, client.get(request("2")));
    let status = call.await.expect("it does not wait").unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "the channel has no endpoint");
    insert(&changes, 0, &a);
    until_measured(&channel, "it is refilled", |m| m.endpoints.len() == 1).await;
    client.get(within("3", support::PATIENCE)).await.unwrap();
}

/// Case 10: a replica dies under load and returns: no caller of an idempotent method sees it, no
/// hedge goes there while it is down, and it serves again after its return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_endpoint_dies_and_returns() {
    let script = |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        arrival.ok()
    };
    let a = Replica::start("a", script).await;
    let b = Replica::start("b", script).await;
    let c = Replica::start("c", script).await;
    let proxy = Proxy::to(c.addr).await;
    let address = proxy.addr;
    let channel = over([a.uri(), b.uri(), proxy.uri()]).build().unwrap();
    connected(&channel, 3).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (mut client, done) = (ProbeClient::new(channel.clone()), Arc::clone(&done));
        tasks.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                client.get(within("1", support::PATIENCE)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    c.seen.until("c serves", |seen| seen.calls() > 3).await;
    // It dies with its connections and its port.
    drop(proxy);
    until_measured(&channel, "c is set aside", |measured| {
        measured.endpoints[2].last_error.is_some()
    })
    .await;
    settle_calls(&c).await;
    let before = c.seen.calls();
    a.seen
        .until("others serve", |seen| seen.calls() > 100)
        .await;
    assert_eq!(c.seen.calls(), before);
    // It returns under its address.
    let returned = TcpListener::bind(address).await.unwrap();
    let again = Replica::serve("c", returned, Server::builder(), script);
    again
        .seen
        .until("c serves again", |seen| seen.calls() > 3)
        .await;
    done.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    settled(&channel).await;
}

/// Its handlers have all ended.
async fn settle_calls(replica: &Replica) {
    let ended = |seen: &support::Seen| seen.running() == 0;
    replica.seen.until("its handlers end", ended).await;
}

/// Case 10, the black hole: a replica that accepts and says nothing is out until it speaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_black_hole() {
    let a = Replica::fast("a").await;
    let b = Replica::fast("b").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    // The pause between two tries to connect follows a handshake that is given up soon.
    let hole = Endpoint::new(format!("http://{address}")).unwrap();
    let hole = hole.connect_timeout(Duration::from_millis(100));
    let channel = HedgedChannel::builder()
        .endpoints([
            Endpoint::new(a.uri()).unwrap(),
            Endpoint::new(b.uri()).unwrap(),
            hole,
        ])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(rich())
        .build()
        .unwrap();
    connected(&channel, 2).await;
    until_measured(&channel, "the hole is set aside", |measured| {
        measured.endpoints[2].last_error.is_some()
    })
    .await;
    let mut client = ProbeClient::new(channel.clone());
    let name = address.to_string();
    for _ in 0..200 {
        let response = client.get(request("1")).await.unwrap();
        let log = response.call_log().unwrap();
        assert!(log.attempts().iter().all(|a| a.endpoint() != name), "{log}");
    }
    // It begins to speak.
    let c = Replica::serve(
        "c",
        silent,
        Server::builder(),
        |arrival: Arrival| async move { arrival.ok() },
    );
    until_measured(&channel, "the hole serves", |measured| {
        measured.endpoints[2].state == EndpointState::Ready
    })
    .await;
    while c.seen.calls() == 0 {
        client.get(request("1")).await.unwrap();
    }
}

/// FA6: a replica whose connection goes silent in the middle: the hedge answers.
#[tokio::test]
async fn fa6_connection_goes_silent() {
    let stuck = Latch::closed();
    let hole = stuck.clone();
    let script = move |arrival: Arrival| {
        let stuck = stuck.clone();
        async move {
            if arrival.previous() == 0 {
                stuck.passed().await;
            }
            arrival.ok()
        }
    };
    let a = Replica::start("a", script.clone()).await;
    let b = Replica::start("b", script).await;
    let channel = over([a.uri(), b.uri()]).build().unwrap();
    connected(&channel, 2).await;
    let mut client = ProbeClient::new(channel);
    for _ in 0..10 {
        let response = client.get(request("1")).await.unwrap();
        assert!(response.call_log().unwrap().hedge_won());
    }
    hole.open();
}

/// A connection that is lost under a call: a repeatable one is tried elsewhere, another fails
/// with UNAVAILABLE, once.
#[tokio::test]
async fn connection_lost_under_a_call() {
    let held = Replica::stuck("held").await;
    let proxy = Proxy::to(held.addr).await;
    let b = Replica::fast("b").await;
    let (changes, channel) = discovered();
    let endpoint = Endpoint::new(proxy.uri()).unwrap();
    changes.send(Ok(Change::Insert(0, endpoint))).unwrap();
    connected(&channel, 1).await;
    let call = |method: &'static str| {
        let mut client = ProbeClient::new(channel.clone());
        tokio::spawn(async move {
            let off = tonic_hedge::RequestExt::without_hedging(Request::new(request(method)));
            match method {
                "get" => client.get(off).await,
                _ => client.put(off).await,
            }
        })
    };
    let (get, put) = (call("get"), call("put"));
    held.seen
        .until("both arrive", |seen| seen.calls() == 2)
        .await;
    insert(&changes, 1, &b);
    until_measured(&channel, "b is connected", |measured| {
        let ready = |e: &&tonic_hedge::EndpointMeasured| e.state == EndpointState::Ready;
        measured.endpoints.iter().filter(ready).count() == 2
    })
    .await;
    drop(proxy);
    let response = get.await.unwrap().unwrap();
    assert_eq!(response.get_ref().replica, "b");
    let log = response.call_log().unwrap();
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    assert_eq!(log.attempts()[0].outcome(), failed);
    let status = put.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(b.seen.of("put").len(), 0);
    assert_eq!(held.seen.of("put").len(), 1);
}

/// Calls that come while the first connection is made wait for it, and none misses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_calls_wait_for_the_first_connection() {
    let a = Replica::fast("a").await;
    for _ in 0..100 {
        let channel = over([a.uri()]).build().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut client = ProbeClient::new(channel.clone());
            tasks.spawn(async move {
                let call = tokio::time::timeout(support::PATIENCE, client.get(request("1")));
                call.await.expect("it is woken").unwrap();
            });
        }
        tasks.join_all().await;
    }
}

/// Ahead of the first call, which then finds a connection.
#[tokio::test]
async fn connect_comes_before_the_first_call() {
    let (a, b) = (Replica::fast("a").await, Replica::fast("b").await);
    let channel = over([a.uri(), b.uri()]).build().unwrap();
    let ready = || {
        let endpoints = channel.measured().endpoints;
        let ready = |it: &&_| matches!(it, EndpointState::Ready);
        endpoints.iter().map(|it| &it.state).filter(ready).count()
    };
    assert_eq!(ready(), 0);
    channel.connect().await.unwrap();
    assert!(ready() >= 1);
    support::eventually("the other too", || ready() == 2).await;
    // Once more changes nothing.
    channel.connect().await.unwrap();
    assert_eq!(a.seen.calls() + b.seen.calls(), 0);
}

/// One of two is enough; none says why, and is tried again.
#[tokio::test]
async fn connect_says_why_not() {
    let a = Replica::fast("a").await;
    let channel = over([refusing().await, a.uri()]).build().unwrap();
    channel.connect().await.unwrap();

    let uri = refusing().await;
    let channel = over([uri.clone()]).build().unwrap();
    let status = channel.connect().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let name = uri.trim_start_matches("http://");
    assert!(status.message().contains(name), "{status}");
    let listener = TcpListener::bind(name).await.unwrap();
    let _late = Replica::serve("late", listener, Server::builder(), |arrival| async move {
        arrival.ok()
    });
    support::eventually("tried again", || {
        channel.measured().endpoints[0].state == EndpointState::Ready
    })
    .await;
    channel.connect().await.unwrap();
}

/// A ready-made channel hides its connections.
#[tokio::test]
async fn connect_knows_nothing_of_a_ready_made_channel() {
    let channel = Endpoint::from_shared(refusing().await)
        .unwrap()
        .connect_lazy();
    let channel = HedgedChannel::builder().channel(channel).build().unwrap();
    channel.connect().await.unwrap();
}

#[test]
fn connect_needs_a_runtime() {
    let channel = over(["http://127.0.0.1:1".to_owned()]).build().unwrap();
    let connecting = channel.connect();
    let status = futures_util::FutureExt::now_or_never(connecting);
    assert_eq!(status.unwrap().unwrap_err().code(), Code::Internal);
}
