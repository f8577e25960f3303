//! Lets policies meet recorded latencies under virtual time: the real race, window, budget and
//! planner, in the world of `tonic-hedge-models`.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tonic_hedge_engine::race::{End, Kind, Verdict};
use tonic_hedge_models::{Fate, Model, World};

use crate::{outcome::Outcome, policy::Policy};

/// Of the order of calls and of what hedges meet; no advice depends on a particular one.
const SEED: u64 = 8;

/// Calls before any count: more than a window of them, so that what is measured has settled.
const WARM_UP: usize = 8_000;

/// Its square is the number of calls that count: 40,000, forty of them beyond the p99.9.
const SIDE: u32 = 200;

/// Recorded latencies, and which of them each attempt of each call meets.
pub(crate) struct Replay {
    values: Arc<[Duration]>,
    side: u32,
    /// Of each call that counts, its cell.
    cells: Arc<[u32]>,
}

impl Replay {
    /// Of ascending values, at least one.
    pub(crate) fn new(values: Vec<Duration>) -> Self {
        Self::of_side(SIDE, values)
    }

    pub(crate) fn of_side(side: u32, values: Vec<Duration>) -> Self {
        let mut cells: Vec<_> = (0..side * side).collect();
        // So that neighbouring cells are no neighbouring calls.
        fastrand::Rng::with_seed(SEED).shuffle(&mut cells);
        Self {
            values: values.into(),
            side,
            cells: cells.into(),
        }
    }

    /// Calls that count.
    pub(crate) fn calls(&self) -> usize {
        self.cells.len()
    }

    /// The outcomes in the order of the policies; all of them meet the same luck.
    pub(crate) fn run(&self, policies: &[Policy]) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    // Relaxed: a number each, in whatever order.
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(policy) = policies.get(number)
                    {
                        let outcome = self.outcome(policy);
                        outcomes.lock().push((number, outcome));
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner();
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn outcome(&self, policy: &Policy) -> Outcome {
        let starts = Arc::new(Mutex::new(Starts::default()));
        let (values, cells) = (Arc::clone(&self.values), Arc::clone(&self.cells));
        let side = self.side;
        let told = Arc::clone(&starts);
        let model = Model::scripted(move |attempt, rng| {
            let call = attempt.call as usize;
            told.lock().note(call, attempt.number, attempt.clock);
            let cell = call.checked_sub(WARM_UP).and_then(|call| cells.get(call));
            let even = cell.and_then(|cell| even(side, *cell, attempt.number));
            let share = even.unwrap_or_else(|| rng.f64());
            let value = values[(share * values.len() as f64) as usize];
            (value, Verdict::Answer)
        });
        let world = World {
            hedge: policy.hedge(),
            calls: WARM_UP + self.calls(),
            // What is asked is what the load buys; a budget would hide it.
            budget: None,
            seed: SEED,
            ..World::new(model)
        };
        let history = world.run();
        let counted = &history.fates[WARM_UP..];
        let mut took: Vec<_> = counted.iter().map(|fate| fate.took).collect();
        took.sort_unstable();
        let hedges: usize = counted.iter().map(Fate::hedges).sum();
        let won = counted.iter().filter(|fate| hedge_won(fate)).count();
        Outcome {
            policy: *policy,
            took,
            delay: starts.lock().median(),
            extra_load: hedges as f64 / self.calls() as f64,
            wins: (hedges > 0).then(|| won as f64 / hedges as f64),
        }
    }
}

/// What an attempt draws from `[0, 1)`, in one of `side` times `side` calls, one for each pair of an
/// original's part of `side` and a hedge's (an orthogonal array: Owen, 1992). Each number by itself
/// comes as often as any other. `None` for a third attempt: that is by chance.
///
/// Draws by chance would have the share of calls whose hedge is slow too off by a twentieth, and
/// that is what decides a p99.
fn even(side: u32, cell: u32, attempt: u32) -> Option<f64> {
    let (row, column) = (cell / side, cell % side);
    // Within a part the place is mixed, so that it says nothing of the other attempt's part. The
    // first factors have no divisor in common with `side`: no place comes twice.
    let (part, place) = match attempt {
        0 => (row, 123 * column + 57 * row),
        1 => (column, 123 * row + 57 * column),
        _ => return None,
    };
    let side = f64::from(side);
    Some((f64::from(part) + (f64::from(place) % side + 0.5) / side) / side)
}

fn hedge_won(fate: &Fate) -> bool {
    match fate.end {
        End::Answer(id) => fate.launches.get(id as usize) == Some(&Kind::Hedge),
        _ => false,
    }
}

/// When attempts started.
#[derive(Default)]
struct Starts {
    /// Of each call, its first.
    first: Vec<Duration>,
    /// Of each second attempt, since its call's first.
    second: Vec<Duration>,
}

impl Starts {
    fn note(&mut self, call: usize, number: u32, clock: Duration) {
        if self.first.len() <= call {
            self.first.resize(call + 1, Duration::ZERO);
        }
        match number {
            0 => self.first[call] = clock,
            1 if call >= WARM_UP => self.second.push(clock - self.first[call]),
            _ => {}
        }
    }

    fn median(&mut self) -> Option<Duration> {
        self.second.sort_unstable();
        self.second.get(self.second.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each attempt's draws are all parts of the whole, and each pair of parts comes once.
    #[test]
    fn draws_are_even() {
        for side in [80, SIDE] {
            let cells = side * side;
            let draws = |attempt| (0..cells).filter_map(move |cell| even(side, cell, attempt));
            for attempt in [0, 1] {
                let mut places: Vec<_> = draws(attempt)
                    .map(|it| (it * f64::from(cells)) as u32)
                    .collect();
                places.sort_unstable();
                assert_eq!(places, (0..cells).collect::<Vec<_>>());
            }
            let part = |draw: f64| (draw * f64::from(side)) as u32;
            let pairs = draws(0).zip(draws(1));
            let mut pairs: Vec<_> = pairs.map(|(one, two)| (part(one), part(two))).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), cells as usize);
        }
    }
}
