//! `Hedge::within` through whole channels in virtual time: its plan is made off the calls' path, times
//! their hedges, keeps to its load, and is told. That the plans are good is `engine/tests/plan*.rs`.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, get, uniform};
use support::{Answer, Arrival, ProbeClient};
use tonic::Code;
use tonic_hedge::{
    Builder, Hedge, HedgedChannel, MethodMeasured, PlanMeasured, PlanState, RequestExt, ResponseExt,
};

/// As `tail`, but a hedge takes its time too.
async fn slow_tail(arrival: Arrival) -> Answer {
    match arrival.previous() {
        0 => uniform(arrival).await,
        _ => {
            tokio::time::sleep(ms(10)).await;
            arrival.ok()
        }
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Twenty calls in a second, one in ten of them slow.
async fn calls(channel: &HedgedChannel, count: u32) -> Vec<Duration> {
    let mut ticks = tokio::time::interval(ms(50));
    let mut under_way = tokio::task::JoinSet::new();
    for call in 0..count {
        ticks.tick().await;
        let mut client = ProbeClient::new(channel.clone());
        let delay = match call % 10 {
            9 => 300,
            n => 20 + n * 2,
        };
        under_way.spawn(async move {
            let response = client.get(asked(delay, Code::Ok)).await.unwrap();
            response.call_log().unwrap().duration()
        });
    }
    under_way.join_all().await
}

fn plan(measured: &MethodMeasured) -> PlanMeasured {
    measured.plan.clone().unwrap()
}

fn suppressed(measured: &MethodMeasured, by: &str) -> u64 {
    let mut all = measured.suppressed.iter();
    all.find(|(reason, _)| *reason == by)
        .map_or(0, |(_, count)| *count)
}

fn within(replicas: &[InMemory], hedge: Hedge) -> Builder {
    builder(replicas).hedge(hedge.target_quantile(0.95))
}

/// The plan appears without a word from any call, hedges the slow ones right after the fast ones, and
/// says what it chose, expects and got.
#[tokio::test(start_paused = true)]
async fn a_plan_is_made_and_told() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, slow_tail));
    // At p99 each slow call counts; at p95 hedging most of them a little earlier is as good.
    let hedge = Hedge::within(0.15).target_quantile(0.99);
    let channel = builder(&replicas).hedge(hedge).build().unwrap();
    calls(&channel, 400).await;
    tokio::time::sleep(ms(1500)).await;
    let before = get(&channel);
    let took = calls(&channel, 400).await;
    let measured = get(&channel);

    let plan = plan(&measured);
    assert_eq!(
        (plan.load, plan.state),
        (0.15, PlanState::Planned),
        "{plan:?}"
    );
    assert!((plan.target_quantile - 0.99).abs() < 1e-9);
    let delay = plan.delay.unwrap();
    assert!((ms(36)..ms(60)).contains(&delay), "{plan:?}");
    assert_eq!(measured.threshold, Some(delay));
    assert!(plan.unhedged.unwrap() > ms(200), "{plan:?}");
    assert!(plan.expected.unwrap() < ms(100), "{plan:?}");
    assert!(plan.got.unwrap() < ms(100), "{plan:?}");
    assert!(plan.expected_load.unwrap() <= 0.15, "{plan:?}");
    assert!(plan.got_load.unwrap() <= 0.165, "{plan:?}");

    let hedges = measured.hedges - before.hedges;
    assert!((38..=42).contains(&hedges), "each slow call: {hedges}");
    assert!(took.iter().all(|took| *took < ms(100)), "{took:?}");
}

/// What the load does not pay for is held back, and `load` is the reason.
#[tokio::test(start_paused = true)]
async fn the_load_is_kept_and_the_hold_told() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, slow_tail));
    let channel = within(&replicas, Hedge::within(0.08)).build().unwrap();
    calls(&channel, 1_000).await;
    let measured = get(&channel);
    let rate = measured.hedge_rate().unwrap();
    assert!((0.06..=0.088).contains(&rate), "{rate}");
    assert!(suppressed(&measured, "load") > 0, "{measured:?}");
    assert!(plan(&measured).probability <= 1.0);
}

/// Where both replicas are slow together a hedge gains nothing: the plan rests, and hedges a tenth of
/// its load to see when that changes.
#[tokio::test(start_paused = true)]
async fn a_plan_rests_where_hedges_gain_nothing() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
    let channel = within(&replicas, Hedge::within(0.1)).build().unwrap();
    calls(&channel, 1_000).await;
    let before = get(&channel);
    calls(&channel, 1_000).await;
    let measured = get(&channel);
    assert_eq!(plan(&measured).state, PlanState::Resting, "{measured:?}");
    let hedges = measured.hedges - before.hedges;
    assert!((1..=20).contains(&hedges), "{hedges} of 1000 calls");
}

/// One call that brings `within` has no window of its own to plan for: the quantile it stands for, and
/// no plan of the method's.
#[tokio::test(start_paused = true)]
async fn a_request_of_its_own_takes_the_quantile() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, slow_tail));
    let channel = builder(&replicas).hedge(Hedge::at(0.99)).build().unwrap();
    calls(&channel, 100).await;
    let mut client = ProbeClient::new(channel.clone());
    let slow = asked(300, Code::Ok).hedge(Hedge::within(0.2));
    let response = client.get(slow).await.unwrap();
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts().len(), 2, "{log}");
    assert!(log.duration() < ms(60), "{log}");
    assert!(get(&channel).plan.is_none());
}

/// A hedge that is granted and not started, since its call ends while the observer is awaited, costs no
/// load.
#[tokio::test(start_paused = true)]
async fn what_an_observer_outwaits_costs_no_load() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, slow_tail));
    let channel = within(&replicas, Hedge::within(0.15))
        .on_hedge(|_| async {
            tokio::time::sleep(ms(50)).await;
            Ok::<_, std::convert::Infallible>(())
        })
        .build()
        .unwrap();
    calls(&channel, 400).await;
    tokio::time::sleep(ms(1500)).await;
    let measured = get(&channel);
    let got = plan(&measured).got_load.unwrap() * 400.0;
    assert!((got - measured.hedges as f64).abs() < 1.0, "{measured:?}");
    assert!(measured.hedges > 0, "{measured:?}");
}
