//! Each replica in turn stops for a while: what it works on, and what comes, waits for the end.

use std::time::Duration;

use fastrand::Rng;

use super::{Attempt, Spells};
use crate::latency::Latency;

/// Replicas that stop in turn, as collectors of garbage make them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    /// What an attempt takes that meets no pause.
    pub latency: Latency,
    /// Replicas in all.
    pub replicas: usize,
    /// From one pause of a replica to its next.
    pub every: Duration,
    /// How long a pause lasts.
    pub last: Duration,
}

impl Pauses {
    /// 300 ms in each 5 s: one attempt in about 16 meets a pause.
    pub const USUAL: Self = Self {
        latency: Latency::Uniform,
        replicas: 5,
        every: Duration::from_secs(5),
        last: Duration::from_millis(300),
    };

    /// The pauses of one replica: evenly between those of the others.
    fn of(&self, replica: usize) -> Spells {
        Spells {
            from: self.every.mul_f64(replica as f64 / self.replicas as f64),
            every: self.every,
            last: self.last,
        }
    }

    pub(super) fn draw(&self, attempt: &Attempt, draws: &mut Rng) -> Duration {
        let pauses = self.of(attempt.replica);
        let mut left = self.latency.draw(draws);
        let mut clock = attempt.clock;
        loop {
            clock = pauses.end(clock).unwrap_or(clock);
            let until = pauses.next(clock) - clock;
            if left <= until {
                return clock + left - attempt.clock;
            }
            left -= until;
            clock += until;
        }
    }
}
