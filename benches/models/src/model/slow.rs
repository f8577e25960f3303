//! One of the replicas is slow: hedges, which go elsewhere, are not as unlucky as their originals.

use std::time::Duration;

use fastrand::Rng;

use super::{Attempt, Spells};
use crate::latency::Latency;

/// Replicas of which the first is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowReplica {
    /// What a replica takes that is not slow.
    pub latency: Latency,
    /// Replicas in all.
    pub replicas: usize,
    /// How many times as long the slow one takes.
    pub factor: u32,
    /// When it is slow; `None` is always.
    pub spells: Option<Spells>,
}

impl SlowReplica {
    /// One of five takes ten times as long.
    pub const ALWAYS: Self = Self {
        latency: Latency::LogNormal,
        replicas: 5,
        factor: 10,
        spells: None,
    };

    /// The same for two seconds in ten: a neighbour's batch job.
    pub const FOR_A_WHILE: Self = Self {
        spells: Some(Spells {
            from: Duration::from_secs(5),
            every: Duration::from_secs(10),
            last: Duration::from_secs(2),
        }),
        ..Self::ALWAYS
    };

    pub(super) fn name(&self) -> &'static str {
        match self.spells {
            None => "slow_replica",
            Some(_) => "slow_for_a_while",
        }
    }

    /// By what it is when the attempt comes.
    pub(super) fn draw(&self, attempt: &Attempt, draws: &mut Rng) -> Duration {
        let slow = self.spells.is_none_or(|it| it.are_on(attempt.clock));
        let factor = if slow && attempt.replica == 0 {
            self.factor
        } else {
            1
        };
        self.latency.draw(draws) * factor
    }
}
