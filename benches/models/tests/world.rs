//! Every policy meets the same luck, and a seed repeats exactly.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tonic_hedge_engine::{
    policy::{BudgetPolicy, Hedge, WinRate},
    race::{End, Kind, Pushback, Verdict},
};
use tonic_hedge_models::{Fate, History, Latency, Model, QueueModel, World};

/// Enough for the window to fill and the models' spells to come.
const CALLS: usize = 10_000;

fn world(model: Model) -> World {
    World {
        calls: CALLS,
        ..World::new(model)
    }
}

#[test]
fn every_model_has_a_name_and_ends() {
    let mut names = HashSet::new();
    for model in Model::ALL {
        assert!(names.insert(model.name()));
        let history = world(model).run();
        assert_eq!(history.fates.len(), CALLS);
    }
}

#[test]
fn a_seed_repeats_exactly_and_another_does_not() {
    for model in Model::ALL {
        let run = |seed| {
            let hedge = Some(Hedge::at(0.9));
            let world = World {
                seed,
                hedge,
                calls: 3_000,
                ..world(model.clone())
            };
            world.run().fates
        };
        let once = run(1);
        assert_eq!(once, run(1), "{}", model.name());
        assert_ne!(once, run(2), "{}", model.name());
    }
}

/// Calls come at the same times, and what is not raced takes as long under any policy.
#[test]
fn policies_meet_the_same_luck() {
    for latency in Latency::ALL {
        let without = world(Model::Independent(latency)).run();
        let policies = [
            Hedge::at(0.9),
            Hedge::at(0.6),
            Hedge::after(Duration::from_millis(30)),
        ];
        for policy in policies {
            let with = World {
                hedge: Some(policy),
                budget: None,
                ..world(Model::Independent(latency))
            };
            let with = with.run();
            let mut won = 0;
            for (with, without) in with.fates.iter().zip(&without.fates) {
                assert_eq!(with.arrived, without.arrived);
                match with.end {
                    End::Answer(0) => assert_eq!(with.took, without.took),
                    End::Answer(_) => won += u32::from(with.took < without.took),
                    other => panic!("{other:?}"),
                }
            }
            // Where nothing takes under 20 ms, none that starts 24 ms before the end wins.
            assert!(won > 0 || latency == Latency::Uniform);
        }
    }
}

/// Two policies that hedge the same call ask the same of its hedge.
#[test]
fn hedges_meet_the_same_luck() {
    let hedges = |policy| {
        let seen = Arc::new(zeros(CALLS));
        let model = {
            let seen = Arc::clone(&seen);
            Model::scripted(move |attempt, draws| {
                let took = Latency::LogNormal.draw(draws);
                if attempt.number == 1 {
                    let nanos = took.as_nanos() as u64;
                    seen[attempt.call as usize].store(nanos, Ordering::Relaxed);
                }
                (took, Verdict::Answer)
            })
        };
        World {
            hedge: Some(policy),
            budget: None,
            ..world(model)
        }
        .run();
        seen
    };
    let (early, late) = (hedges(Hedge::at(0.5)), hedges(Hedge::at(0.9)));
    let mut both = 0;
    for (early, late) in early.iter().zip(late.iter()) {
        let (early, late) = (early.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
        if early > 0 && late > 0 {
            both += 1;
            assert_eq!(early, late);
        }
    }
    assert!(both > 500, "{both}");
}

fn zeros(calls: usize) -> Vec<AtomicU64> {
    (0..calls).map(|_| AtomicU64::new(0)).collect()
}

/// A call's attempts go to different replicas, and a hedge stays out where there is no other.
#[test]
fn a_hedge_goes_elsewhere() {
    let hedged = |replicas| {
        let queue = QueueModel {
            replicas,
            servers: 100,
            ..QueueModel::USUAL
        };
        World {
            hedge: Some(Hedge::at(0.5)),
            budget: None,
            rate: 100.0,
            ..world(Model::Queue(queue))
        }
        .run()
        .summary()
        .extra_load
    };
    assert_eq!(hedged(1), 0.0);
    assert!(hedged(2) > 0.4);

    let first = Arc::new(zeros(CALLS));
    let model = Model::scripted(move |attempt, _| {
        let first = &first[attempt.call as usize];
        match attempt.number {
            0 => first.store(attempt.replica as u64, Ordering::Relaxed),
            _ => assert_ne!(first.load(Ordering::Relaxed), attempt.replica as u64),
        }
        (Duration::from_millis(80), Verdict::Answer)
    });
    let hedged = World {
        hedge: Some(Hedge::after(Duration::from_millis(50))),
        budget: None,
        ..world(model)
    };
    assert_eq!(hedged.run().summary().extra_load, 1.0);
}

/// What the gates and holds of a channel say, a world says.
#[test]
fn gates_and_holds_are_asked() {
    let run = |hedge: Hedge, budget| {
        let world = World {
            hedge: Some(hedge),
            budget,
            ..world(Model::Independent(Latency::BIMODAL))
        };
        world.run()
    };
    let hedges = |history: &History| {
        history
            .fates
            .iter()
            .map(|fate| fate.hedges())
            .sum::<usize>()
    };

    let cold = run(Hedge::at(0.9).minimum_samples(1_000), None);
    let first = cold.fates.iter().position(|fate| fate.hedges() > 0);
    assert!(first.unwrap() >= 990, "{first:?}");

    let budget = BudgetPolicy::default().ratio(0.01).initial(0.0);
    let poor = run(Hedge::at(0.9), Some(budget));
    assert_eq!(hedges(&poor), poor.granted);
    assert!((95..=100).contains(&poor.granted), "{}", poor.granted);

    let floor = run(Hedge::at(0.5).minimum_delay(Duration::from_secs(1)), None);
    assert_eq!(hedges(&floor), 0);

    // Most hedges win, but never 99 % of them.
    let all = hedges(&run(Hedge::at(0.9), None));
    let win_rate = WinRate::at_least(0.99).window(Duration::from_secs(4));
    let few = hedges(&run(Hedge::at(0.9).win_rate(win_rate), None));
    assert!(few < all / 4, "{few} of {all}");
}

/// As a channel's: a plan's share of load is for slow calls.
#[test]
fn a_plan_is_not_asked_after_a_failure() {
    let model = Model::scripted(|attempt, draws| match attempt.number {
        1 => (Duration::from_millis(1), Verdict::Failure(Pushback::None)),
        _ => (Latency::LogNormal.draw(draws), Verdict::Answer),
    });
    let history = World {
        hedge: Some(Hedge::within(0.05)),
        budget: None,
        ..world(model)
    }
    .run();
    let hedged: Vec<_> = history.fates.iter().map(Fate::hedges).collect();
    let second = hedged.iter().filter(|hedges| **hedges == 2).count();
    // But where the original answered while the first hedge ran.
    let first = hedged.iter().filter(|hedges| **hedges == 1).count();
    assert!(second > 100, "{second}");
    assert!(first < second / 10, "{first} of {second}");
}

/// Of the calls' attempts, only originals are recorded, each once.
#[test]
fn each_original_is_recorded_once() {
    for model in Model::ALL {
        let has_queue = model.queue().is_some();
        let history = World {
            hedge: Some(Hedge::at(0.9)),
            ..world(model)
        }
        .run();
        let mut seen = HashSet::new();
        for sample in &history.samples {
            assert!(seen.insert(sample.call));
            let fate = &history.fates[sample.call];
            assert_eq!(fate.launches[0], Kind::Original);
            assert!(sample.ran <= fate.took);
        }
        // What a full queue refuses has no latency.
        assert!(seen.len() == CALLS || has_queue, "{} recorded", seen.len());
    }
}
