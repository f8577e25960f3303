//! Many calls at once under virtual time: the engine's own race, window, budget, win rate and
//! picker, on simulated replicas.
//!
//! Calls arrive by a Poisson process. The world does what the driver and the channel do in a
//! process: it picks, launches, asks, judges, and records originals only, at the time they had
//! run where another attempt won. It has no breaker, and no function that says when a hedge is
//! due.

mod fleet;
mod hedging;
mod running;

use std::time::Duration;

use tonic_hedge_engine::{
    policy::{BudgetPolicy, Hedge, Timing},
    race::{MAX_UNSENT, Rules},
};

use self::running::Running;
use crate::{history::History, model::Model};

/// A world before its first call.
#[derive(Clone, Debug)]
pub struct World {
    /// What each attempt meets.
    pub model: Model,
    /// What times the hedges; `None` is none. Default none.
    pub hedge: Option<Hedge>,
    /// What each call may do. Default: what a channel lets it do that has the `hedge`, and
    /// otherwise its defaults.
    pub rules: Option<Rules>,
    /// What pays for further attempts; `None` is no limit. Default: a channel's.
    pub budget: Option<BudgetPolicy>,
    /// Arrivals in a second, on average; more than 0. Default: the model's usual rate.
    pub rate: f64,
    /// Calls in all. Default 20,000.
    pub calls: usize,
    /// Of all that is drawn. Default 1.
    pub seed: u64,
    /// What the summary leaves out: the time in which the window fills. Default 30 s, a hedge's
    /// default window.
    pub warm_up: Duration,
    /// How soon an answer has to come to be of use. Default 250 ms.
    pub limit: Duration,
}

/// The attempts of a call by default, in all.
const MAX_ATTEMPTS: u32 = 3;

impl World {
    /// A world without hedges.
    pub fn new(model: Model) -> Self {
        Self {
            rate: model.usual_rate(),
            model,
            hedge: None,
            rules: None,
            budget: Some(BudgetPolicy::default()),
            calls: 20_000,
            seed: 1,
            warm_up: Duration::from_secs(30),
            limit: Duration::from_millis(250),
        }
    }

    /// Lets everything happen.
    ///
    /// # Panics
    /// A policy is not valid.
    pub fn run(self) -> History {
        Running::new(self).run()
    }

    fn rules(&self) -> Rules {
        let hedge = self.hedge.as_ref();
        self.rules.clone().unwrap_or(Rules {
            max_attempts: MAX_ATTEMPTS,
            max_concurrent: hedge.map_or(1, |hedge| hedge.max_concurrent),
            max_hedges: hedge.map_or(0, Hedge::hedges),
            hedging: hedge.is_some(),
            retries: true,
            eager: hedge.is_some_and(|hedge| hedge.timing == Timing::OnFailure),
            max_unsent: MAX_UNSENT,
            deadline: None,
        })
    }
}
