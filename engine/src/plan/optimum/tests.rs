//! The search against brute force.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn survival(samples: &[(f64, f64, u32)]) -> Survival {
    let spread = |&(from, to, calls): &(f64, f64, u32)| {
        (0..calls).map(move |call| from + (to - from) * f64::from(call) / f64::from(calls))
    };
    let times = samples.iter().flat_map(spread);
    Survival::from_samples(times.map(|ms| (Duration::from_secs_f64(ms / 1e3), false)))
}

/// One to four groups of calls, each spread evenly.
fn any_survival() -> impl Strategy<Value = Survival> {
    let group = (1.0..1_000.0_f64, 1.0..3.0_f64, 1..2_000_u32)
        .prop_map(|(from, factor, calls)| (from, from * factor, calls));
    prop::collection::vec(group, 1..5).prop_map(|groups| survival(&groups))
}

fn terms<'a>(originals: &'a Survival, hedges: &'a Survival, tail: f64, load: f64) -> Terms<'a> {
    Terms {
        originals,
        hedges,
        tail,
        load,
        capacity: 30.0,
        drag: 0.0,
        earliest: 1_000,
        latest: u32::MAX,
    }
}

/// The time that the share `tail` outlasts, a microsecond-wise search in the formula as the paper
/// has it.
fn brute_time(terms: &Terms<'_>, plan: Plan, tail: f64) -> f64 {
    let admitted = terms.admitted(plan);
    let share = |time: u32| {
        let alone = terms.originals.outlasting(time);
        match time.checked_sub(plan.delay) {
            None => alone,
            Some(own) => alone * (1.0 - admitted * (1.0 - terms.hedges.outlasting(own))),
        }
    };
    let (mut low, mut high) = (0, terms.alone(tail) as u32);
    while low < high {
        let middle = low + (high - low) / 2;
        match share(middle) > tail {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    f64::from(high.max(1))
}

fn brute_score(terms: &Terms<'_>, delay: u32) -> f64 {
    let plan = terms.plan(delay);
    let logs = TAILS.map(|it| brute_time(terms, plan, it * terms.tail).ln());
    logs.iter().sum::<f64>() / TAILS.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What it finds is within 4 % of the best of all delays, of which it looks at a hundredth; what it
    /// expects is what the formula says; and it keeps the load.
    #[test]
    fn it_finds_what_brute_force_finds(
        originals in any_survival(),
        hedges in any_survival(),
        tail in prop::sample::select(vec![0.05, 0.01, 0.001]),
        load in 0.01..0.5_f64,
    ) {
        let terms = terms(&originals, &hedges, tail, load);
        let search = Search::new(terms);
        let latest = terms.alone(0.7 * tail) as u32;
        let brute = (0..1_500)
            .map(|step| 1_000.0 * (f64::from(step) / 120.0).exp2())
            .take_while(|&delay| delay < f64::from(latest))
            .map(|delay| brute_score(&terms, delay as u32))
            .fold(f64::INFINITY, f64::min);
        let Some(found) = search.choose(None) else {
            prop_assert!(latest <= 1_000);
            return Ok(());
        };
        let score = brute_score(&terms, found.plan.delay);
        prop_assert!((score - found.score).abs() < 0.02, "{} is {}", found.score, score);
        prop_assert!(score <= brute + SAME + 0.03, "{found:?}: {score}, {brute}");
        prop_assert!(found.load <= load * 1.000_001);
        prop_assert!(found.score <= search.unhedged() + 0.02);
    }
}

/// Of plans that are as good the cheapest, and the one in force as long as none is better.
#[test]
fn the_cheapest_of_the_best_and_the_one_in_force() {
    let originals = survival(&[(20.0, 44.0, 900), (250.0, 580.0, 100)]);
    let terms = terms(&originals, &originals, 0.01, 0.3);
    let search = Search::new(terms);
    let chosen = search.choose(None).unwrap();
    let all = terms.plan(terms.alone(0.3) as u32);
    assert!(chosen.load < 0.2, "the rest buys nothing: {chosen:?}");
    assert!(chosen.score <= search.outlook(all).score + SAME);
    let near = Plan {
        delay: chosen.plan.delay + chosen.plan.delay / 100,
        ..chosen.plan
    };
    assert_eq!(search.choose(Some(near)).unwrap().plan, near);
    let far = Plan {
        delay: 200_000,
        probability: 1.0,
    };
    assert_ne!(search.choose(Some(far)).unwrap().plan, far);
    let dear = Plan {
        delay: 21_000,
        probability: 1.0,
    };
    assert_ne!(
        search.choose(Some(dear)).unwrap().plan,
        dear,
        "it no longer fits"
    );
}

/// Where two slow attempts in a row are just the target's share, the target quantile itself jumps from
/// the slow to the fast with one call more or less; what plans are judged by does not.
#[test]
fn a_knife_edge_moves_the_score_a_little() {
    let of = |slow: u32| {
        let originals = survival(&[(20.0, 44.0, 10_000 - slow), (250.0, 580.0, slow)]);
        let mut terms = terms(&originals, &originals, 0.01, 0.12);
        terms.capacity = 1_000.0;
        let search = Search::new(terms);
        let plan = terms.plan(45_000);
        (search.outlook(plan).score, search.time(plan, 0.01).ln())
    };
    let ((score, time), (worse, longer)) = (of(985), of(1_015));
    assert!(longer - time > 0.9, "{time} {longer}");
    assert!(worse - score < 0.3, "{score} {worse}");
}

/// Where load makes all calls slower, a plan that buys little for it is not worth it.
#[test]
fn drag_makes_plans_cheaper() {
    let groups = [
        (20.0, 30.0, 5_000),
        (30.0, 60.0, 3_000),
        (60.0, 120.0, 1_500),
        (120.0, 400.0, 500),
    ];
    let originals = survival(&groups);
    let mut terms = terms(&originals, &originals, 0.01, 0.5);
    let free = Search::new(terms).choose(None).unwrap();
    terms.drag = 3.0;
    let search = Search::new(terms);
    let dear = search.choose(None).unwrap();
    assert!(dear.load < free.load / 2.0, "{free:?} {dear:?}");
}

/// What the walk of the purse misses, by walking it.
#[test]
fn the_purse_admits_what_it_says() {
    let mut draws = fastrand::Rng::with_seed(1);
    let originals = survival(&[(20.0, 44.0, 10_000)]);
    for (load, capacity, outrun) in [
        (0.05, 3.0, 0.05),
        (0.05, 30.0, 0.05),
        (0.1, 5.0, 0.08),
        (0.1, 5.0, 0.15),
    ] {
        let mut terms = terms(&originals, &originals, 0.01, load);
        terms.capacity = capacity;
        let delay = terms.alone(outrun) as u32;
        let expected = terms.admitted(Plan {
            delay,
            probability: 1.0,
        });
        let (mut balance, mut asks, mut starts) = (0.0_f64, 0, 0);
        for _ in 0..2_000_000 {
            balance = (balance + load).min(capacity + 0.5);
            if draws.f64() < outrun {
                asks += 1;
                if balance >= 1.0 {
                    balance -= 1.0;
                    starts += 1;
                }
            }
        }
        let admitted = f64::from(starts) / f64::from(asks);
        assert!(
            (admitted - expected).abs() < 0.06,
            "{load} {capacity} {outrun}: {admitted}, {expected}"
        );
    }
}
