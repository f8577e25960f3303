//! The models draw what they say.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, time::Duration};

use proptest::{prelude::*, proptest};
use tonic_hedge_engine::race::Verdict;
use tonic_hedge_models::{
    Attempt, Brownout, Draws, Latency, Met, Model, Pauses, Purpose, Recorded, SlowReplica,
};

const DRAWS: u64 = 100_000;

/// Standard deviations of a share that chance alone exceeds once in 16,000 checks.
const SIGMAS: f64 = 4.0;

/// Shares, with the standard normal distribution's quantiles.
const NORMAL: [(f64, f64); 7] = [
    (0.05, -1.644_854),
    (0.25, -0.674_490),
    (0.5, 0.0),
    (0.75, 0.674_490),
    (0.95, 1.644_854),
    (0.99, 2.326_348),
    (0.999, 3.090_232),
];

/// The closed form of a quantile, in milliseconds.
fn quantile(latency: Latency, q: f64, normal: f64) -> f64 {
    match latency {
        Latency::Uniform => 20.0 + 24.0 * q,
        Latency::LogNormal => 30.0 * (0.5 * normal).exp(),
        Latency::Bimodal { slow } if q <= 1.0 - slow => 20.0 + 24.0 * q / (1.0 - slow),
        Latency::Bimodal { slow } => 250.0 + 330.0 * (q - (1.0 - slow)) / slow,
        Latency::Pareto => 20.0 / (1.0 - q).sqrt(),
        Latency::Exponential => -50.0 * (1.0 - q).ln(),
    }
}

fn is_near(share: f64, expected: f64, of: u64) -> bool {
    let sigma = (expected * (1.0 - expected) / of as f64).sqrt();
    (share - expected).abs() <= SIGMAS * sigma
}

fn attempt(call: u64, number: u32) -> Attempt {
    Attempt {
        call,
        number,
        replica: 1,
        clock: Duration::ZERO,
    }
}

fn ends(model: &Model, attempt: &Attempt) -> Duration {
    match model.meet(Draws::new(7), attempt) {
        Met::Ends { after, verdict } => {
            assert_eq!(verdict, Verdict::Answer);
            after
        }
        Met::Work(_) => panic!("{} has no queue", model.name()),
    }
}

#[test]
fn latencies_have_their_closed_forms() {
    let all = Latency::ALL.into_iter();
    let other = [Latency::Bimodal { slow: 0.01 }, Latency::Exponential];
    for latency in all.chain(other) {
        let model = Model::Independent(latency);
        let drawn: Vec<_> = (0..DRAWS)
            .map(|call| ends(&model, &attempt(call, 0)).as_secs_f64())
            .collect();
        for (q, normal) in NORMAL {
            let limit = quantile(latency, q, normal) / 1e3;
            let below = drawn.iter().filter(|it| **it <= limit).count();
            let share = below as f64 / DRAWS as f64;
            assert!(is_near(share, q, DRAWS), "{latency:?}: {share} below p{q}");
        }
        let mean = drawn.iter().sum::<f64>() / DRAWS as f64;
        // Pareto's with shape 2 has no variance: its mean comes slowly.
        let off = (mean / latency.mean().as_secs_f64() - 1.0).abs();
        assert!(off < 0.02, "{latency:?}: {mean}");
    }
}

/// What one attempt draws says nothing of what the next one does, or the next call's.
#[test]
fn attempts_and_calls_are_independent() {
    let model = Model::Independent(Latency::BIMODAL);
    let slow = |call, number| ends(&model, &attempt(call, number)) > Duration::from_millis(100);
    let share = |both: &dyn Fn(u64) -> bool| {
        (0..DRAWS).filter(|call| both(*call)).count() as f64 / DRAWS as f64
    };
    for number in 1..3 {
        let share = share(&|call| slow(call, 0) && slow(call, number));
        assert!(is_near(share, 0.01, DRAWS), "attempt {number}: {share}");
    }
    let share = share(&|call| slow(call, 0) && slow(call + 1, 0));
    assert!(is_near(share, 0.01, DRAWS), "the next call: {share}");
}

#[test]
fn purposes_and_seeds_draw_differently() {
    let purposes = [
        Purpose::Arrival,
        Purpose::Work,
        Purpose::Pick,
        Purpose::Backoff,
    ];
    let mut seen = HashSet::new();
    for seed in 0..10 {
        for purpose in purposes {
            for call in 0..10 {
                for attempt in 0..10 {
                    let draw = || Draws::new(seed).of(purpose, call, attempt).u64(..);
                    assert_eq!(draw(), draw());
                    assert!(seen.insert(draw()));
                }
            }
        }
    }
}

#[test]
fn one_replica_is_slow() {
    let model = SlowReplica::FOR_A_WHILE;
    let spells = model.spells.unwrap();
    let at = |replica, clock| {
        let attempt = Attempt {
            replica,
            clock,
            ..attempt(1, 0)
        };
        ends(&Model::SlowReplica(model), &attempt)
    };
    let usual = at(1, Duration::ZERO);
    for turn in 0..3 {
        let start = spells.from + spells.every * turn;
        let (last, end) = (start + spells.last, Duration::from_nanos(1));
        assert_eq!(at(0, start - end), usual);
        assert_eq!(at(0, start), usual * model.factor);
        assert_eq!(at(0, last - end), usual * model.factor);
        assert_eq!(at(0, last), usual);
        assert_eq!(at(4, start), usual);
    }
    let always = Model::SlowReplica(SlowReplica::ALWAYS);
    let first = Attempt {
        replica: 0,
        ..attempt(1, 0)
    };
    assert_eq!(ends(&always, &first), usual * model.factor);
}

#[test]
fn all_replicas_are_slow_in_a_brownout() {
    let Brownout { factor, spells, .. } = Brownout::USUAL;
    let at = |clock| {
        (0..5).map(move |replica| {
            let attempt = Attempt {
                replica,
                clock,
                ..attempt(1, 0)
            };
            ends(&Model::Brownout(Brownout::USUAL), &attempt)
        })
    };
    let usual = at(Duration::ZERO).next().unwrap();
    assert!(at(spells.from).all(|it| it == usual * factor));
    assert!(at(spells.from + spells.last).all(|it| it == usual));
    assert!(at(spells.from + spells.every).all(|it| it == usual * factor));
}

#[test]
fn recorded_latencies_are_equally_likely() {
    let recorded = [1, 2, 3, 4].map(Duration::from_millis);
    let model = Model::Recorded(Recorded::new(recorded).unwrap());
    for latency in recorded {
        let drawn = (0..DRAWS).filter(|call| ends(&model, &attempt(*call, 0)) == latency);
        assert!(is_near(drawn.count() as f64 / DRAWS as f64, 0.25, DRAWS));
    }
    assert!(Recorded::new([]).is_none());
}

proptest! {
    /// An attempt takes its work and all that its replica's pauses have of the time until then.
    #[test]
    fn pauses_add_what_they_last(call in 0_u64..1_000, replica in 0_usize..5, ms in 0_u64..20_000) {
        let pauses = Pauses::USUAL;
        let clock = Duration::from_millis(ms);
        let here = Attempt { replica, clock, ..attempt(call, 0) };
        let took = ends(&Model::Pauses(pauses), &here);
        let work = ends(&Model::Independent(pauses.latency), &here);
        let paused: Duration = (0..10)
            .map(|turn| {
                let start = pauses.every * turn + pauses.every.mul_f64(replica as f64 / 5.0);
                let (from, to) = (clock.max(start), (clock + took).min(start + pauses.last));
                to.saturating_sub(from)
            })
            .sum();
        prop_assert_eq!(took, work + paused);
    }
}
