//! The user's own functions: what they are told, and that they harm no call.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
#[path = "support/logged.rs"]
mod logged;
mod support;

use std::{
    future::pending,
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

use duplex::{InMemory, asked, builder, get, tail};
use logged::Logged;
use parking_lot::{Condvar, Mutex};
use support::{Arrival, ProbeClient};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_hedge::{
    Builder, Hedge, HedgeEvent, HedgeEventKind, HedgeStart, HedgedChannel, ResponseExt as _,
};

const MS: Duration = Duration::from_millis(1);

/// However slow the machine: nothing waits for it unless the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// An error that nobody can print.
#[derive(Debug)]
struct Loud;

impl std::fmt::Display for Loud {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a panic of the error")
    }
}

impl std::error::Error for Loud {}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic of the drop")
    }
}

/// Panics with what panics when it is dropped.
fn panic_with_a_bomb() {
    std::panic::panic_any(Bomb);
}

struct World {
    client: ProbeClient<HedgedChannel>,
    channel: HedgedChannel,
    _replicas: [InMemory; 2],
}

fn world(with: impl FnOnce(Builder) -> Builder) -> World {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, tail));
    let channel = with(builder(&replicas).hedge(Hedge::after(20 * MS)));
    let channel = channel.build().unwrap();
    World {
        client: ProbeClient::new(channel.clone()),
        channel,
        _replicas: replicas,
    }
}

/// A slow call: whether its hedge won, and when that had started.
async fn slow(world: &mut World) -> (bool, Duration) {
    let response = world.client.get(asked(500, Code::Ok)).await.unwrap();
    let log = response.call_log().unwrap();
    (log.hedge_won(), log.attempts().last().unwrap().start())
}

#[tokio::test(start_paused = true)]
async fn on_hedge_is_awaited_before_the_launch() {
    let (seen, starts) = mpsc::channel();
    let mut world = world(|builder| {
        builder.on_hedge(move |start: HedgeStart| {
            seen.send(start).unwrap();
            async {
                tokio::time::sleep(30 * MS).await;
                Ok::<(), io::Error>(())
            }
        })
    });
    assert_eq!(slow(&mut world).await, (true, 50 * MS));
    let start = starts.try_recv().unwrap();
    assert_eq!(&*start.method, "hedge.testing.v1.Probe/Get");
    assert_eq!(start.attempts, 1);
    assert_eq!(start.threshold, Some(20 * MS));
    assert_eq!(start.elapsed, 20 * MS);
    // A call that is not hedged has nothing to tell.
    world.client.get(asked(1, Code::Ok)).await.unwrap();
    assert!(starts.try_recv().is_err());
}

/// The original answers meanwhile: no hedge starts, and its token goes back.
#[tokio::test(start_paused = true)]
async fn on_hedge_holds_no_answer_up() {
    let mut world = world(|builder| {
        builder.on_hedge(|_| async {
            tokio::time::sleep(50 * MS).await;
            Ok::<(), io::Error>(())
        })
    });
    let before = Instant::now();
    let response = world.client.get(asked(30, Code::Ok)).await.unwrap();
    assert_eq!(before.elapsed(), 30 * MS);
    assert!(!response.hedged());
    assert_eq!(get(&world.channel).hedges, 0);
    assert_eq!(world.channel.measured().budget, Some(10.2));
}

/// The first hedge's server stops the race while the second is held up: the second's token goes back
/// then, however long the original runs on.
#[tokio::test(start_paused = true)]
async fn on_hedge_keeps_no_token_of_a_race_that_was_stopped() {
    let stops = |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            tokio::time::sleep(1_000 * MS).await;
            return arrival.ok();
        }
        tokio::time::sleep(40 * MS).await;
        let mut status = Status::unavailable("stop");
        let pushback = "-1".parse().unwrap();
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", pushback);
        Err(status)
    };
    let replicas = ["a", "b", "c"].map(|name| InMemory::start(name, stops));
    let channel = builder(&replicas)
        .hedge(Hedge::after(20 * MS).max_concurrent(3))
        .on_hedge(|_| async {
            tokio::time::sleep(30 * MS).await;
            Ok::<(), io::Error>(())
        })
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(asked(0, Code::Ok)).await });
    // Asked at 70 ms, stopped at 90.
    tokio::time::sleep(80 * MS).await;
    let budget = || channel.measured().budget.unwrap();
    let reserved = budget();
    tokio::time::sleep(20 * MS).await;
    assert_eq!(budget(), reserved + 1.0);
    assert!(!call.await.unwrap().unwrap().hedge_won());
    assert_eq!(get(&channel).hedges, 1);
}

#[tokio::test(start_paused = true)]
async fn on_hedge_that_fails_panics_or_stalls_is_reported_and_harms_nothing() {
    type Case = (fn(Builder) -> Builder, Duration, &'static str);
    let cases: [Case; 7] = [
        (
            |builder| builder.on_hedge(|_| async { Err(io::Error::other("no pager")) }),
            20 * MS,
            "no pager",
        ),
        (
            |builder| {
                builder.on_hedge(|start| {
                    assert_eq!(start.attempts, 0, "a panic of the closure");
                    async { Ok::<(), io::Error>(()) }
                })
            },
            20 * MS,
            "it panicked",
        ),
        (
            |builder| {
                builder.on_hedge(|start| async move {
                    tokio::task::yield_now().await;
                    assert_eq!(start.attempts, 0, "a panic of the future");
                    Ok::<(), io::Error>(())
                })
            },
            20 * MS,
            "it panicked",
        ),
        (
            |builder| {
                builder.on_hedge(|_| {
                    panic_with_a_bomb();
                    async { Ok::<(), io::Error>(()) }
                })
            },
            20 * MS,
            "it panicked",
        ),
        (
            |builder| {
                builder.on_hedge(|_| async {
                    panic_with_a_bomb();
                    Ok::<(), io::Error>(())
                })
            },
            20 * MS,
            "it panicked",
        ),
        (
            |builder| builder.on_hedge(|_| async { Err::<(), _>(Loud) }),
            20 * MS,
            "it panicked",
        ),
        (
            |builder| builder.on_hedge(|_| pending::<Result<(), io::Error>>()),
            120 * MS,
            "it was not ready in 100ms",
        ),
    ];
    for (with, started, reported) in cases {
        let mut world = world(with);
        let logged = Logged::here();
        assert_eq!(slow(&mut world).await, (true, started), "{reported}");
        assert_eq!(slow(&mut world).await, (true, started), "{reported}");
        let of_observers = logged.of("hook failed");
        let levels: Vec<_> = of_observers.iter().map(|line| line.level).collect();
        let [warn, debug] = [tracing::Level::WARN, tracing::Level::DEBUG];
        assert_eq!(levels, [warn, debug], "once aloud: {of_observers:?}");
        assert!(of_observers[0].text.contains(reported), "{of_observers:?}");
    }
}

/// The race drops it, with the answer in its hands.
#[tokio::test(start_paused = true)]
async fn on_hedge_that_panics_when_dropped_loses_no_answer() {
    let mut world = world(|builder| {
        builder.on_hedge(|_| async {
            let bomb = Bomb;
            tokio::time::sleep(50 * MS).await;
            std::mem::forget(bomb);
            Ok::<(), io::Error>(())
        })
    });
    world.client.get(asked(30, Code::Ok)).await.unwrap();
}

/// A hedge that a failure makes due has outrun nothing.
#[tokio::test(start_paused = true)]
async fn on_hedge_after_a_failure_has_no_threshold() {
    let (seen, starts) = mpsc::channel();
    let script = |arrival: support::Arrival| async move {
        match arrival.previous() {
            0 => tokio::time::sleep(500 * MS).await,
            1 => {
                tokio::time::sleep(MS).await;
                return Err(tonic::Status::unavailable("the first hedge"));
            }
            _ => {}
        }
        arrival.ok()
    };
    let replicas = ["a", "b", "c"].map(|name| InMemory::start(name, script));
    let channel = builder(&replicas)
        .hedge(Hedge::after(20 * MS))
        .on_hedge(move |start: HedgeStart| {
            seen.send((start.attempts, start.threshold)).unwrap();
            async { Ok::<(), io::Error>(()) }
        })
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel);
    assert!(client.get(asked(0, Code::Ok)).await.unwrap().hedge_won());
    let told: Vec<_> = starts.try_iter().collect();
    assert_eq!(told, [(1, Some(20 * MS)), (2, None)]);
}

#[tokio::test(start_paused = true)]
async fn on_event_is_told_of_the_four_in_order() {
    let (seen, events) = mpsc::channel();
    let mut world = world(|builder| {
        builder.on_event(move |event: &HedgeEvent| seen.send(event.clone()).unwrap())
    });
    slow(&mut world).await;
    world.client.put(asked(50, Code::Ok)).await.unwrap();
    let told: Vec<HedgeEvent> = (0..4)
        .map(|_| events.recv_timeout(PATIENCE).unwrap())
        .collect();
    let rows: Vec<_> = told
        .iter()
        .map(|event| {
            let kind = format!("{:?}", event.kind);
            (kind, &*event.method, event.threshold, event.elapsed)
        })
        .collect();
    let (get, put) = ("hedge.testing.v1.Probe/Get", "hedge.testing.v1.Probe/Put");
    let of_get = |kind: &str| (kind.to_owned(), get, Some(20 * MS), 20 * MS);
    let suppressed = "Suppressed { reason: \"repeatable\" }".to_owned();
    assert_eq!(
        rows,
        [
            of_get("Started { attempt: 1 }"),
            of_get("Discarded { attempt: 0 }"),
            of_get("Won { attempt: 1 }"),
            (suppressed, put, None, Duration::ZERO),
        ]
    );
    // The observer's thread ends with the channel.
    drop(world);
    assert_eq!(
        events.recv_timeout(PATIENCE),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
}

#[tokio::test(start_paused = true)]
async fn on_event_that_panics_goes_on() {
    let (seen, events) = mpsc::channel();
    let mut world = world(|builder| {
        builder.on_event(move |event: &HedgeEvent| {
            seen.send(event.kind).unwrap();
            match event.kind {
                HedgeEventKind::Won { .. } => {}
                HedgeEventKind::Started { .. } => panic_with_a_bomb(),
                _ => panic!("a panic"),
            }
        })
    });
    slow(&mut world).await;
    for _ in 0..3 {
        events.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(slow(&mut world).await, (true, 20 * MS));
}

/// Each is reported aloud: one that fails does not hide the other.
#[tokio::test(start_paused = true)]
async fn each_observer_is_reported_for_itself() {
    // While there is one subscriber, tracing asks only the thread that comes first by a line whether
    // it wants it, and here that is the observer's own.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let logged = Logged::here();
    let (seen, events) = mpsc::channel();
    let mut world = world(|builder| {
        builder
            .on_event(move |_: &HedgeEvent| {
                seen.send(()).unwrap();
                panic!("a panic");
            })
            .on_hedge(|_| async { Err(io::Error::other("no pager")) })
    });
    // By the second event, the first one's panic is reported.
    for _ in 0..2 {
        world.client.put(asked(0, Code::Ok)).await.unwrap();
        events.recv_timeout(PATIENCE).unwrap();
    }
    slow(&mut world).await;
    let of_on_hedge = logged.of("no pager");
    assert_eq!(of_on_hedge[0].level, tracing::Level::WARN);
}

/// While it stalls, calls go on; what its queue can't hold is counted, and logged ever more rarely.
#[tokio::test(start_paused = true)]
async fn on_event_that_stalls_holds_no_call_up() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (seen, events) = mpsc::channel();
    let mut world = {
        let gate = Arc::clone(&gate);
        world(|builder| {
            builder.on_event(move |event: &HedgeEvent| {
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
                seen.send(event.kind).unwrap();
            })
        })
    };
    let logged = Logged::here();
    // Each has one event.
    for _ in 0..4_200 {
        world.client.put(asked(0, Code::Ok)).await.unwrap();
    }
    let lost = world.channel.measured().events_lost;
    assert!((103..=104).contains(&lost), "{lost}");
    let lines = logged.of("on_event does not keep up");
    assert_eq!(lines.len(), 7, "1, 2, 4, ... 64");
    *gate.0.lock() = true;
    gate.1.notify_all();
    drop(world);
    let told = events.iter().count() as u64;
    assert_eq!(told, 4_200 - lost, "all that was queued");
}
