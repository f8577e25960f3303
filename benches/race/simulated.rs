//! The race under virtual time: each policy on each model, with several seeds.

use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use tonic_hedge::Hedge;
use tonic_hedge_models::{History, Model, QueueModel, Summary, World};

use crate::{
    Outcome,
    args::Race,
    search::{self, Fixed},
};

/// Hedges per call that policies may cost which are told so: what p95 costs, and what it takes to
/// get over a bimodal latency's tenth that is slow.
pub(crate) const LOADS: [f64; 2] = [0.05, 0.12];

/// What races.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Policy {
    /// No hedges.
    None,
    /// At a live quantile.
    At(f64),
    /// At the fixed delay that has turned out best of those within the load: the best that
    /// hindsight can do without leaving hedges to chance.
    BestFixed(f64),
    /// By the plan for that load.
    Within(f64),
}

impl Policy {
    /// All, in the order of their rows.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::None];
        for load in LOADS {
            all.extend([
                Self::At(1.0 - load),
                Self::Within(load),
                Self::BestFixed(load),
            ]);
        }
        all
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::At(quantile) => format!("at({quantile})"),
            Self::BestFixed(load) => format!("best after(..) for {load}"),
            Self::Within(load) => format!("within({load})"),
        }
    }
}

/// A model at a rate.
pub(crate) struct Case {
    pub(crate) model: Model,
    /// Calls in a second.
    pub(crate) rate: f64,
    pub(crate) runs: Vec<Run>,
}

/// One seed of a case: one for each of [`Policy::all`].
pub(crate) struct Run {
    pub(crate) policies: Vec<Measured>,
}

/// What a policy came to.
pub(crate) struct Measured {
    pub(crate) summary: Summary,
    /// The last plan's, or the best one; `None` where it moves with the window.
    pub(crate) delay: Option<Duration>,
}

pub(crate) fn all(race: Race) -> Outcome<Vec<Case>> {
    let mut cases: Vec<_> = cases()
        .map(|(model, rate)| Case {
            model,
            rate,
            runs: Vec::new(),
        })
        .collect();
    let mut runs = in_parallel(cases.len() * race.seeds as usize, |job| {
        let case = &cases[job / race.seeds as usize];
        run(&World {
            rate: case.rate,
            calls: race.calls,
            seed: 1 + job as u64 % race.seeds,
            ..World::new(case.model.clone())
        })
    })?
    .into_iter();
    for case in &mut cases {
        case.runs.extend(runs.by_ref().take(race.seeds as usize));
    }
    Ok(cases)
}

/// All models at their usual rates, and a queue that has hardly anything left.
fn cases() -> impl Iterator<Item = (Model, f64)> {
    let usual = Model::ALL.into_iter().map(|model| {
        let rate = model.usual_rate();
        (model, rate)
    });
    let busy = QueueModel::USUAL;
    usual.chain([(Model::Queue(busy), 0.95 * busy.capacity())])
}

fn run(world: &World) -> Run {
    let without = world.clone().run();
    let fixed = search::all(world, &without);
    let policies = Policy::all().into_iter().map(|policy| {
        let hedged = |hedge| {
            let hedge = Some(hedge);
            World {
                hedge,
                ..world.clone()
            }
            .run()
        };
        let (summary, delay) = match policy {
            Policy::None => (without.summary(), None),
            Policy::At(quantile) => (hedged(Hedge::at(quantile)).summary(), None),
            Policy::Within(load) => {
                let history = hedged(Hedge::within(load));
                (history.summary(), planned(&history))
            }
            Policy::BestFixed(load) => match search::best(&fixed, load) {
                Some(Fixed { delay, summary }) => (*summary, Some(*delay)),
                // Where nothing is within the load, nothing is hedged.
                None => (without.summary(), None),
            },
        };
        Measured { summary, delay }
    });
    Run {
        policies: policies.collect(),
    }
}

fn planned(history: &History) -> Option<Duration> {
    let (_, last) = history.plans.last()?;
    last.delay
}

/// The results of `jobs`, in their order, on as many threads as there are cores.
fn in_parallel<T: Send>(jobs: usize, run: impl Fn(usize) -> T + Sync) -> Outcome<Vec<T>> {
    let next = AtomicUsize::new(0);
    let work = || {
        // Relaxed: a ticket, which guards nothing else.
        let tickets = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = tickets.take_while(|job| *job < jobs);
        mine.map(|job| (job, run(job))).collect::<Vec<_>>()
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let done: Result<Vec<_>, _> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut done: Vec<_> = done
        .map_err(|_| "a simulation panicked")?
        .into_iter()
        .flatten()
        .collect();
    done.sort_unstable_by_key(|(job, _)| *job);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
