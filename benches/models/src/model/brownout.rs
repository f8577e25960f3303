//! All replicas are slow for a while: no hedge finds a better one.

use std::time::Duration;

use fastrand::Rng;

use super::{Attempt, Spells};
use crate::latency::Latency;

/// Replicas that are all slow at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Brownout {
    /// What an attempt takes that meets no brownout.
    pub latency: Latency,
    /// How many times as long an attempt takes that comes during one.
    pub factor: u32,
    /// When.
    pub spells: Spells,
}

impl Brownout {
    /// Five times as slow for 10 s in each 60 s.
    pub const USUAL: Self = Self {
        latency: Latency::LogNormal,
        factor: 5,
        spells: Spells {
            from: Duration::from_secs(30),
            every: Duration::from_secs(60),
            last: Duration::from_secs(10),
        },
    };

    pub(super) fn draw(&self, attempt: &Attempt, draws: &mut Rng) -> Duration {
        let factor = if self.spells.are_on(attempt.clock) {
            self.factor
        } else {
            1
        };
        self.latency.draw(draws) * factor
    }
}
