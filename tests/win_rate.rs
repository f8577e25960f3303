//! The win-rate hold, through whole channels in virtual time; and what a win is.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duplex::{InMemory, asked, builder, get, tail, uniform};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use support::{Arrival, ProbeClient};
use tonic::{Code, Status};
use tonic_hedge::{BudgetPolicy, Hedge, HedgedChannel, MethodMeasured, WinRate};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten calls a second, all slow: each is a would-be hedge.
const CALLS_A_QUARTER: u64 = 150;

struct World {
    client: ProbeClient<HedgedChannel>,
    channel: HedgedChannel,
    ticks: tokio::time::Interval,
    replicas: [InMemory; 2],
    /// Whether a hedge is as slow as its original.
    uniform: Arc<AtomicBool>,
    before: u64,
}

impl World {
    fn new(win_rate: WinRate, exporter: Option<&InMemorySpanExporter>) -> Self {
        let slow = Arc::new(AtomicBool::new(true));
        let script = {
            let slow = Arc::clone(&slow);
            move |arrival| {
                let slow = slow.load(Ordering::Relaxed);
                async move {
                    match slow {
                        true => uniform(arrival).await,
                        false => tail(arrival).await,
                    }
                }
            }
        };
        let replicas = ["a", "b"].map(|name| InMemory::start(name, script.clone()));
        let mut builder = builder(&replicas)
            .hedge(Hedge::after(ms(20)).win_rate(win_rate))
            .budget(BudgetPolicy::default().ratio(1.0).initial(100.0));
        if let Some(exporter) = exporter {
            let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
            builder = builder.tracer_provider(&provider.build());
        }
        let channel = builder.build().unwrap();
        Self {
            client: ProbeClient::new(channel.clone()),
            channel,
            ticks: tokio::time::interval(ms(100)),
            replicas,
            uniform: slow,
            before: 0,
        }
    }

    /// 15 s of calls; how many hedges started.
    async fn quarter(&mut self) -> u64 {
        for _ in 0..CALLS_A_QUARTER {
            self.ticks.tick().await;
            self.client.get(asked(90, Code::Ok)).await.unwrap();
        }
        let get = get(&self.channel);
        let held: u64 = get.suppressed.iter().map(|(_, count)| count).sum();
        assert!(
            get.suppressed
                .iter()
                .all(|(reason, _)| *reason == "win_rate")
        );
        assert_eq!(get.hedges + held, get.calls, "each call is asked once");
        get.hedges - std::mem::replace(&mut self.before, get.hedges)
    }
}

/// WR1, WR4: uniform slowness: the share of would-be hedges that start falls 1, 1/2, 1/4, ... to
/// the floor, each decision; it comes back by quarters within a minute of the tail becoming
/// independent.
#[tokio::test(start_paused = true)]
async fn wr1_uniform_slowness() {
    let mut world = World::new(WinRate::at_least(0.2), None);
    for allowance in [1.0, 0.5, 0.25, 0.125, 0.0625, 0.05, 0.05, 0.05] {
        let started = world.quarter().await as f64;
        assert_eq!(get_allowance(&world), Some(allowance));
        let owed = allowance * CALLS_A_QUARTER as f64;
        assert!((started - owed).abs() <= 1.0, "{started} of {owed}");
    }
    assert_eq!(get(&world.channel).hedges_won, 0);
    assert_eq!(get(&world.channel).win_rate(), Some(0.0));

    world.uniform.store(false, Ordering::Relaxed);
    let mut seconds = 0;
    for allowance in [0.05, 0.3, 0.55, 0.8, 1.0, 1.0] {
        let started = world.quarter().await as f64;
        let owed = allowance * CALLS_A_QUARTER as f64;
        assert!((started - owed).abs() <= 1.0, "{started} of {owed}");
        assert_eq!(get_allowance(&world), Some(allowance));
        seconds += 15 * u32::from(allowance < 1.0);
    }
    assert_eq!(seconds, 60);
    // The last losers run out.
    tokio::time::sleep(ms(200)).await;
    assert_eq!(
        world
            .replicas
            .iter()
            .map(|it| it.seen.running())
            .sum::<usize>(),
        0
    );
}

fn get_allowance(world: &World) -> Option<f64> {
    let measured = world.channel.measured();
    let method = measured.method("hedge.testing.v1.Probe/Get")?;
    method.win_rate_allowance
}

/// The hold is in the span with what was observed, after seven gates that hold.
#[tokio::test(start_paused = true)]
async fn the_hold_is_told() {
    let exporter = InMemorySpanExporter::default();
    let mut world = World::new(WinRate::at_least(0.2), Some(&exporter));
    world.quarter().await;
    exporter.reset();
    world.ticks.tick().await;
    world.client.get(asked(90, Code::Ok)).await.unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let call = spans
        .iter()
        .find(|it| it.name.starts_with("Sent."))
        .unwrap();
    let told = |name: &str| -> Vec<String> {
        let events = call.events.iter().filter(|it| it.name == name);
        let line = |it: &opentelemetry::KeyValue| format!("{}={}", it.key, it.value);
        events
            .map(|it| it.attributes.iter().map(line).collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(
        told("hedge.hold"),
        [
            "hedge.hold.name=win_rate hedge.hold.holds=false hedge.hold.observed=0.5 hedge.hold.limit=1",
            "hedge.hold.name=other_endpoint hedge.hold.holds=true hedge.hold.observed=true hedge.hold.limit=true",
        ]
    );
    let gates = told("hedge.gate");
    assert_eq!(gates.len(), 7);
    assert!(gates.iter().all(|it| it.contains("hedge.gate.holds=true")));
    assert_eq!(
        told("hedge.suppressed"),
        ["hedge.reason=win_rate hedge.threshold=20"]
    );
}

/// An original and a hedge that do different things.
async fn once(
    original: impl Fn(Arrival) -> (u64, Result<(), Code>) + Clone + Send + Sync + 'static,
    timeout: Option<Duration>,
) -> MethodMeasured {
    let script = move |arrival: Arrival| {
        let (delay, result) = original(arrival.clone());
        async move {
            tokio::time::sleep(ms(delay)).await;
            match result {
                Ok(()) => arrival.ok(),
                Err(code) => Err(Status::new(code, "scripted")),
            }
        }
    };
    let replicas = ["a", "b"].map(|name| InMemory::start(name, script.clone()));
    let hedge = Hedge::after(ms(20)).win_rate(WinRate::at_least(0.5));
    let channel = builder(&replicas)
        .hedge(hedge)
        .max_attempts(2)
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let call = async move { client.get(asked(0, Code::Ok)).await };
    match timeout {
        None => drop(call.await),
        Some(timeout) => assert!(tokio::time::timeout(timeout, call).await.is_err()),
    }
    get(&channel)
}

fn ends(get: &MethodMeasured) -> [u64; 4] {
    [
        get.hedges_won,
        get.hedges_lost,
        get.hedges_failed,
        get.hedges_abandoned,
    ]
}

fn is_hedge(arrival: &Arrival) -> bool {
    arrival.metadata.contains_key("grpc-previous-rpc-attempts")
}

/// WR3: a hedge wins when its OK becomes the call's, whatever became of the original.
#[tokio::test(start_paused = true)]
async fn wr3_what_a_win_is() {
    type Script = fn(Arrival) -> (u64, Result<(), Code>);
    let rows: [(&str, Script, Option<Duration>, [u64; 4]); 7] = [
        (
            "the hedge is first",
            |it| (if is_hedge(&it) { 0 } else { 100 }, Ok(())),
            None,
            [1, 0, 0, 0],
        ),
        (
            "the original is first",
            |_| (100, Ok(())),
            None,
            [0, 1, 0, 0],
        ),
        (
            "the hedge errs first and ends the call",
            |it| match is_hedge(&it) {
                true => (0, Err(Code::InvalidArgument)),
                false => (100, Ok(())),
            },
            None,
            [0, 0, 1, 0],
        ),
        (
            "the hedge fails first and the original answers",
            |it| match is_hedge(&it) {
                true => (0, Err(Code::Unavailable)),
                false => (100, Ok(())),
            },
            None,
            [0, 0, 1, 0],
        ),
        (
            "the original fails and the hedge answers",
            |it| match is_hedge(&it) {
                true => (50, Ok(())),
                false => (40, Err(Code::Unavailable)),
            },
            None,
            [1, 0, 0, 0],
        ),
        (
            "both fail",
            |_| (100, Err(Code::Unavailable)),
            None,
            [0, 0, 1, 0],
        ),
        (
            "the caller goes",
            |_| (100, Ok(())),
            Some(ms(50)),
            [0, 0, 0, 1],
        ),
    ];
    for (name, script, timeout, expected) in rows {
        let get = once(script, timeout).await;
        assert_eq!(get.hedges, 1, "{name}");
        assert_eq!(ends(&get), expected, "{name}");
    }
}

/// WR5: of a random run each hedge that was sent has won, lost, failed or was abandoned.
#[tokio::test(start_paused = true)]
async fn wr5_conservation() {
    for seed in 0..8 {
        let script = move |arrival: Arrival| {
            // By the call's id and the attempt, so that a run repeats.
            let attempt = u64::from(is_hedge(&arrival));
            let id: u64 = arrival.request.delay_ms.into();
            let mut random = fastrand::Rng::with_seed(seed << 32 | id << 1 | attempt);
            async move {
                tokio::time::sleep(ms(random.u64(0..60))).await;
                match random.u8(0..10) {
                    0..=6 => arrival.ok(),
                    7..=8 => Err(Status::unavailable("scripted")),
                    _ => Err(Status::not_found("scripted")),
                }
            }
        };
        let replicas = ["a", "b", "c"].map(|name| InMemory::start(name, script));
        let channel = builder(&replicas)
            .hedge(
                Hedge::after(ms(15))
                    .max_concurrent(3)
                    .win_rate(WinRate::at_least(0.01)),
            )
            .budget(BudgetPolicy::default().ratio(1.0).initial(100.0))
            .without_breaker()
            .build()
            .unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let calls: Vec<_> = (0..200)
            .map(|id| {
                let mut client = ProbeClient::new(channel.clone());
                let (start, patience) = (random.u64(0..500), random.u64(10..150));
                let mut request = asked(id, Code::Ok);
                if random.bool() {
                    request.set_timeout(ms(random.u64(10..100)));
                }
                tokio::spawn(async move {
                    tokio::time::sleep(ms(start)).await;
                    let _result = tokio::time::timeout(ms(patience), client.get(request)).await;
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let get = get(&channel);
        assert!(get.hedges > 50, "{get:?}");
        assert_eq!(get.hedges, ends(&get).iter().sum::<u64>(), "{get:?}");
        assert!(ends(&get).iter().all(|count| *count > 0), "{get:?}");
        tokio::time::sleep(ms(60_000)).await;
        let in_flight = channel
            .measured()
            .endpoints
            .iter()
            .map(|it| it.in_flight)
            .sum::<u32>();
        assert_eq!(in_flight, 0);
    }
}
