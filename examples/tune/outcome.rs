//! What a policy came to.

use std::time::Duration;

use crate::policy::{self, Policy};

/// Of one policy, over all calls of the replay.
pub(crate) struct Outcome {
    pub(crate) policy: Policy,
    /// How long calls took, ascending.
    pub(crate) took: Vec<Duration>,
    /// When hedges were due, at the median; `None` where none was.
    pub(crate) delay: Option<Duration>,
    /// Attempts beyond one a call, as a share of calls.
    pub(crate) extra_load: f64,
    /// Calls that a hedge answered, as a share of hedges; `None` without a hedge.
    pub(crate) wins: Option<f64>,
}

/// Quantiles around the target, as shares of its tail. A tail with a cliff has its quantile on one
/// side or the other by chance: a policy is judged by its neighbourhood, as the planner does.
const TAILS: [f64; 5] = [0.7, 0.85, 1.0, 1.15, 1.3];

impl Outcome {
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        policy::at(&self.took, quantile)
    }

    /// What is compared: the geometric mean of the quantiles around the target, in seconds.
    pub(crate) fn score(&self, quantile: f64) -> f64 {
        let logs = TAILS.map(|tail| {
            let around = (1.0 - tail * (1.0 - quantile)).max(0.0);
            // A latency below the clock's grain has a logarithm too.
            self.quantile(around).as_secs_f64().max(1e-9).ln()
        });
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    }

    /// The quantiles next to the target, where they differ by half or more: it is on an edge.
    pub(crate) fn edge(&self, quantile: f64) -> Option<[(f64, Duration); 2]> {
        let near = [1.3, 0.7].map(|tail| {
            let near = (1.0 - tail * (1.0 - quantile)).max(0.0);
            (near, self.quantile(near))
        });
        (near[1].1 > near[0].1 * 3 / 2).then_some(near)
    }
}
