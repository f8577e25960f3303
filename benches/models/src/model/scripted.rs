//! Replicas that do what a test says.

use std::{fmt, sync::Arc, time::Duration};

use fastrand::Rng;
use tonic_hedge_engine::race::Verdict;

use super::Attempt;

/// Replicas by a function of each attempt and its draws.
#[derive(Clone)]
pub struct Scripted {
    pub(super) replicas: usize,
    meets: Arc<Meets>,
}

type Meets = dyn Fn(&Attempt, &mut Rng) -> (Duration, Verdict) + Send + Sync;

impl Scripted {
    /// So many replicas that do what `meets` says.
    pub fn new(
        replicas: usize,
        meets: impl Fn(&Attempt, &mut Rng) -> (Duration, Verdict) + Send + Sync + 'static,
    ) -> Self {
        Self {
            replicas,
            meets: Arc::new(meets),
        }
    }

    pub(super) fn meet(&self, attempt: &Attempt, draws: &mut Rng) -> (Duration, Verdict) {
        (self.meets)(attempt, draws)
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
