//! The proof of hedging under virtual time: on steady traffic a live quantile `q` hedges
//! `1 - q` of the calls, whatever the latency, and the budget bounds what a shift costs.
//!
//! `cargo test -p tonic-hedge-engine --test simulation -- --nocapture` prints the rates.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, time::Duration};

use tonic_hedge_engine::{
    policy::{BudgetPolicy, Hedge},
    race::{End, Kind, Pushback, Verdict},
};
use tonic_hedge_models::{Fate, History, Latency, Model, SlowReplica, World};

/// Calls in a second.
const RATE: f64 = 200.0;

const WINDOW: Duration = Duration::from_secs(30);

fn world(q: f64, latency: Latency) -> World {
    World {
        hedge: Some(Hedge::at(q)),
        budget: None,
        rate: RATE,
        ..World::new(Model::Independent(latency))
    }
}

fn is_hedged(fate: &Fate) -> bool {
    fate.launches.contains(&Kind::Hedge)
}

/// Of the calls that arrived in the time.
fn hedge_rate(history: &History, from: Duration, to: Duration) -> f64 {
    let fates = history.fates.iter();
    let fates = fates.filter(|fate| (from..to).contains(&fate.arrived));
    let (mut calls, mut hedges) = (0, 0);
    for fate in fates {
        calls += 1;
        hedges += usize::from(is_hedged(fate));
    }
    f64::from(hedges as u32) / f64::from(calls)
}

fn extra_attempts(history: &History) -> usize {
    let fates = history.fates.iter();
    fates.map(|fate| fate.launches.len() - 1).sum()
}

/// From the end of the first window on.
fn steady(latency: Latency) {
    for q in [0.5, 0.8, 0.9, 0.95, 0.99] {
        let history = world(q, latency).run();
        let rate = hedge_rate(&history, WINDOW, Duration::MAX);
        let share = rate / (1.0 - q);
        println!("{latency:?}, q = {q}: {rate:.4} hedged, {share:.2} of 1 - q");
        assert!((0.8..=1.2).contains(&share), "{latency:?} q = {q}: {rate}");
    }
}

#[test]
fn the_hedge_rate_is_1_minus_q_for_uniform_latencies() {
    steady(Latency::Uniform);
}

#[test]
fn the_hedge_rate_is_1_minus_q_for_log_normal_latencies() {
    steady(Latency::LogNormal);
}

#[test]
fn the_hedge_rate_is_1_minus_q_for_bimodal_latencies() {
    steady(Latency::BIMODAL);
}

#[test]
fn the_hedge_rate_is_1_minus_q_for_pareto_latencies() {
    steady(Latency::Pareto);
}

/// All latencies grow tenfold after a minute: within the fifth again one window later, and the
/// budget bounds what the old threshold hedges in the meantime.
#[test]
fn th7_a_tenfold_shift_is_over_within_one_window() {
    let shift = WINDOW * 2;
    let policy = BudgetPolicy::default();
    for latency in Latency::ALL {
        for q in [0.9, 0.95] {
            let history = World {
                budget: Some(policy.clone()),
                model: Model::scripted(move |attempt, draws| {
                    let factor = if attempt.clock < shift { 1 } else { 10 };
                    (latency.draw(draws) * factor, Verdict::Answer)
                }),
                calls: 34_000,
                ..world(q, latency)
            }
            .run();
            let during = hedge_rate(&history, shift, shift + WINDOW);
            let after = hedge_rate(&history, shift + WINDOW, shift + WINDOW * 3);
            println!("{latency:?}, q = {q}: {during:.4} during the shift, then {after:.4}");
            let share = after / (1.0 - q);
            assert!((0.8..=1.2).contains(&share), "{latency:?} q = {q}: {after}");
            let calls = RATE * WINDOW.as_secs_f64();
            // The window's calls vary by their square root.
            let funded = policy.ratio + policy.capacity / calls + 0.01;
            assert!(during <= funded, "{latency:?} q = {q}: {during}");
        }
    }
}

#[test]
fn only_originals_are_recorded_and_each_once() {
    let history = world(0.9, Latency::BIMODAL).run();
    let mut recorded = HashSet::new();
    for sample in &history.samples {
        let fate = &history.fates[sample.call];
        assert!(recorded.insert(sample.call));
        assert_eq!(sample.ran, fate.took, "it ran as long as the call");
        assert_eq!(sample.cut, fate.end != End::Answer(0));
        assert!(!sample.cut || is_hedged(fate));
    }
    assert_eq!(recorded.len(), history.fates.len());
}

/// A call is never slower than the replica that it went to first.
#[test]
fn hedging_shortens_the_tail_of_garbage_collection() {
    // At one in ten, one call in a hundred meets two slow replicas: p99 would be on that edge.
    let latency = Latency::Bimodal { slow: 0.09 };
    let single = World {
        hedge: None,
        ..world(0.88, latency)
    };
    let without = single.run().summary().p99;
    let with = world(0.88, latency).run().summary().p99;
    println!("p99: {without:?} without, {with:?} with hedges at p88");
    assert!(without > Duration::from_millis(500));
    assert!(with < Duration::from_millis(100));
}

/// The sum of attempts less the calls is what the budget granted, and what it had.
#[test]
fn bu11_a_total_outage_is_bounded_by_the_budget() {
    let policy = BudgetPolicy::default();
    for verdict in [
        Verdict::Failure(Pushback::None),
        Verdict::Failure(Pushback::After(Duration::from_millis(100))),
    ] {
        let history = World {
            budget: Some(policy.clone()),
            model: Model::scripted(move |_, draws| (Latency::Uniform.draw(draws), verdict)),
            calls: 10_000,
            ..world(0.95, Latency::Uniform)
        }
        .run();
        let extra = extra_attempts(&history);
        assert_eq!(extra, history.granted);
        let funded = policy.initial + policy.ratio * 10_000.0;
        assert!(extra as f64 <= funded, "{extra} of {funded}");
        assert!(extra as f64 > 0.95 * funded, "and it is used: {extra}");
        let fates = history.fates.iter();
        assert!(fates.clone().all(|it| matches!(it.end, End::Failed(_))));
    }
}

#[test]
fn bu12_attempts_do_not_fund_themselves() {
    let policy = BudgetPolicy::default().ratio(0.1).initial(0.0);
    let history = World {
        budget: Some(policy),
        model: Model::scripted(|_, draws| {
            let verdict = match draws.bool() {
                true => Verdict::Answer,
                false => Verdict::Failure(Pushback::None),
            };
            (Latency::LogNormal.draw(draws), verdict)
        }),
        ..world(0.5, Latency::LogNormal)
    }
    .run();
    let extra = extra_attempts(&history);
    assert_eq!(extra, history.granted);
    assert!((1_900..=2_000).contains(&extra), "{extra} for 20,000 calls");
}

#[test]
fn a_seed_repeats_exactly() {
    let run = || {
        let history = World {
            calls: 2_000,
            ..world(0.9, Latency::Pareto)
        }
        .run();
        history.samples
    };
    assert_eq!(run(), run());
}

/// One replica of five is always slow. Unhedged, the picker learns how slow and leaves it alone; hedged, it
/// sees losers only, and must do so all the same.
#[test]
fn hedging_leaves_a_slow_replica_alone() {
    let p = |hedge: Option<Hedge>| {
        let world = World {
            hedge,
            calls: 14_000,
            ..World::new(Model::SlowReplica(SlowReplica::ALWAYS))
        };
        world.run().summary()
    };
    let (without, with) = (p(None), p(Some(Hedge::at(0.95))));
    println!("without {without:?}\nwith {with:?}");
    // Its own attempts are asked again a little sooner, since nobody knows how long they would have taken.
    assert!(with.p95.as_secs_f64() <= 1.2 * without.p95.as_secs_f64());
    assert!(with.p99.as_secs_f64() <= 1.03 * without.p99.as_secs_f64());
}
