//! Limits on the number of streams: what waits for one, and what a server does that changes its mind.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::{
    support::raw::{MAX_CONCURRENT_STREAMS, script as scripted},
    *,
};

/// A server that takes `streams` at once, and answers by `steps`.
async fn limited(streams: u32, steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Raw {
    let manner = Manner {
        streams: Some(streams),
        ..Manner::default()
    };
    Raw::with(manner, scripted(steps)).await
}

/// FA17: B takes one stream at a time and does not end it. What waits behind it holds no call:
/// each has its answer from A, and B is of use again once it moves.
#[tokio::test]
async fn fa17_a_stream_at_a_time() {
    let (stuck, slow) = (Latch::closed(), Latch::closed());
    let holds = Arc::new(AtomicBool::new(false));
    let b = limited(1, {
        let (stuck, holds) = (stuck.clone(), Arc::clone(&holds));
        move |_| match holds.load(Ordering::SeqCst) {
            true => [vec![Step::Wait(stuck.clone())], ok("b")].concat(),
            false => ok("b"),
        }
    })
    .await;
    let a = Replica::start("a", {
        let slow = slow.clone();
        move |arrival: support::Arrival| {
            let slow = slow.clone();
            async move {
                match (arrival.method, arrival.request.id.as_str()) {
                    (_, "after") => std::future::pending().await,
                    ("Get", _) => slow.passed().await,
                    _ => {}
                }
                arrival.ok()
            }
        }
    })
    .await;
    let channel = racing(&a, &b);
    let mut client = ProbeClient::new(channel.clone());
    client.put(request("warm")).await.unwrap();
    connected(&channel).await;
    holds.store(true, Ordering::SeqCst);
    let mut calls = JoinSet::new();
    for id in 0..30 {
        let mut client = client.clone();
        calls.spawn(async move { client.get(request(&id.to_string())).await });
    }
    let gets = |seen: &support::Seen| {
        let arrivals = seen.arrivals();
        let gets = arrivals.iter().filter(|arrival| arrival.method == "Get");
        gets.count()
    };
    a.seen.until("all are there", |seen| gets(seen) == 30).await;
    slow.open();
    for call in calls.join_all().await {
        assert_eq!(call.unwrap().get_ref().replica, "a");
    }
    holds.store(false, Ordering::SeqCst);
    stuck.open();
    support::settled(&channel).await;
    // A holds these.
    for _ in 0..20 {
        let response = client.get(request("after")).await.unwrap();
        assert_eq!(response.get_ref().replica, "b");
    }
    assert_eq!(b.log(|log| log.most_open), 1);
    assert_eq!(b.log(|log| log.connections), 1);
}

/// Every call to both at once.
fn racing(a: &Replica, b: &Raw) -> HedgedChannel {
    HedgedChannel::builder()
        .endpoints([a.uri(), b.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default().ratio(1.0).initial(100.0))
        .without_breaker()
        .build()
        .unwrap()
}

/// FA17: a limit that is lowered under load, with refusals of what was under way, ends no call.
#[tokio::test]
async fn fa17_lowered_in_mid_flight() {
    let steps = |number: usize| match number {
        40 => [
            vec![Step::Setting(MAX_CONCURRENT_STREAMS, 1)],
            ok("lowered"),
        ]
        .concat(),
        41..=50 => vec![Step::Reset(REFUSED_STREAM)],
        _ => ok("b"),
    };
    let b = limited(100, steps).await;
    let a = Replica::fast("a").await;
    let channel = racing(&a, &b);
    let mut client = ProbeClient::new(channel.clone());
    client.put(request("warm")).await.unwrap();
    connected(&channel).await;
    for round in 0..10 {
        let mut calls = JoinSet::new();
        for id in 0..40 {
            let mut client = ProbeClient::new(channel.clone());
            let id = format!("{round}-{id}");
            calls.spawn(async move {
                match id.ends_with('1') {
                    true => client.put(request(&id)).await.map(drop),
                    false => client.get(request(&id)).await.map(drop),
                }
            });
        }
        for call in calls.join_all().await {
            call.unwrap();
        }
    }
    assert!(b.log(|log| log.streams) > 51, "{:?}", b.log(|l| l.streams));
    support::settled(&channel).await;
}

/// A connection told to go away while a request waits for a stream of it: that is a lost connection.
/// What may be repeated is tried again; the rest is UNAVAILABLE, or was never sent, and is nowhere
/// twice.
#[tokio::test]
async fn goaway_while_a_stream_is_waited_for() {
    for round in 0..50 {
        let go = Latch::closed();
        let steps = {
            let go = go.clone();
            move |number| match number {
                1 => vec![
                    Step::Wait(go.clone()),
                    Step::GoAway(Last::This, NO_ERROR),
                    Step::Head,
                    reply("b"),
                    status("0"),
                    Step::Close,
                ],
                _ => ok("b"),
            }
        };
        let b = limited(1, steps).await;
        let channel = channel([b.uri()]);
        let mut client = ProbeClient::new(channel.clone());
        client.put(request("warm")).await.unwrap();
        let call = |id: &'static str| {
            let mut client = client.clone();
            tokio::spawn(async move {
                match id {
                    "get" => client.get(request(id)).await,
                    _ => client.put(request(id)).await,
                }
            })
        };
        let first = call("first");
        b.until("it has the stream", |log| log.streams == 2).await;
        let waiting = call(if round % 2 == 0 { "get" } else { "put" });
        support::until_measured(&channel, "it waits", |measured| {
            measured.endpoints[0].in_flight == 2
        })
        .await;
        go.open();
        first.await.unwrap().unwrap();
        match waiting.await.unwrap() {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(round % 2, 1, "{error:?}");
                assert_eq!(error.code(), Code::Unavailable, "{error:?}");
            }
        }
        assert!(ids(&[&b], "put") <= 1);
    }
}
