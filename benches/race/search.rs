//! The best fixed delay, found by trying them all on the same calls.

use std::time::Duration;

use tonic_hedge::Hedge;
use tonic_hedge_models::{Fate, History, Summary, World};

/// What a fixed delay came to.
pub(crate) struct Fixed {
    pub(crate) delay: Duration,
    pub(crate) summary: Summary,
}

/// From one delay to the next, as a share of calls that outrun it: a load of 0.05 has 20 steps.
const STEP: f64 = 0.0025;

/// The share of calls that outruns the first: more than any load that is asked for. Replicas that
/// hedges make slower cost more than the share that outran the delay without them.
const FIRST: f64 = 0.2;

/// All delays that are worth it: quantiles of what calls take without hedges. Between two calls'
/// latencies a delay has the load of the shorter, and starts its hedges later.
pub(crate) fn all(world: &World, without: &History) -> Vec<Fixed> {
    let calls = without.between(world.warm_up, Duration::MAX);
    let mut took: Vec<_> = calls
        .iter()
        .filter(|fate| fate.is_answered())
        .map(|Fate { took, .. }| *took)
        .collect();
    took.sort_unstable();
    let steps = (FIRST / STEP).round() as u32;
    let ranks = (0..steps).map(|step| 1.0 - FIRST + f64::from(step) * STEP);
    let mut delays: Vec<_> = ranks
        .filter_map(|rank| took.get((rank * took.len() as f64) as usize).copied())
        .collect();
    delays.dedup();
    let fixed = delays.into_iter().map(|delay| {
        let hedged = World {
            hedge: Some(Hedge::after(delay)),
            ..world.clone()
        };
        Fixed {
            delay,
            summary: hedged.run().summary(),
        }
    });
    fixed.collect()
}

/// The one with the lowest p99 of those that cost no more than `load`.
pub(crate) fn best(all: &[Fixed], load: f64) -> Option<&Fixed> {
    let within = all.iter().filter(|it| it.summary.extra_load <= load);
    within.min_by_key(|it| it.summary.p99)
}
