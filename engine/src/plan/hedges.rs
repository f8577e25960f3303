//! How long hedges take that a plan started: what it learns from.

use std::time::Duration;

use crate::measure::{Survival, micros, survival};

/// Buckets of an octave: 4.4 to 6 % wide. Only the time a hedge takes beyond the delay is read from
/// them, and what the plan needs of that is its order.
const OCTAVE: usize = 16;

/// Buckets of the estimate for each of these.
const FINE: usize = survival::OCTAVE / OCTAVE;

const BUCKETS: usize = survival::ALL / FINE;

/// The latencies of hedges, those that ended and those that were cut off, weighed by age: a hedge
/// counts for 1 / e after a window.
///
/// A plan's hedges are the sample that its forecast needs: of calls whose originals outran the
/// delay. Where slow calls come together, or one replica is the slow one, they differ from
/// originals.
#[derive(Clone, Debug)]
pub(super) struct Hedges {
    counts: Box<[Count; BUCKETS]>,
    /// When they were last weighed.
    at: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    ended: f32,
    cut: f32,
}

impl Hedges {
    pub(super) fn new() -> Self {
        Self {
            counts: Box::new([Count::default(); BUCKETS]),
            at: Duration::ZERO,
        }
    }

    pub(super) fn ended(&mut self, took: Duration) {
        self.count(took).ended += 1.0;
    }

    pub(super) fn cut(&mut self, ran: Duration) {
        self.count(ran).cut += 1.0;
    }

    fn count(&mut self, time: Duration) -> &mut Count {
        &mut self.counts[survival::bucket(micros(time)) / FINE]
    }

    /// Weighs all by the time since it last did. What came since counts as old as the rest: a second
    /// of a window.
    pub(super) fn age(&mut self, now: Duration, window: Duration) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let kept = (-passed.as_secs_f64() / window.as_secs_f64()).exp() as f32;
        for count in self.counts.iter_mut() {
            count.ended *= kept;
            count.cut *= kept;
            // A trace of what was is as good as nothing, and cheaper.
            if count.ended + count.cut < 0.01 {
                *count = Count::default();
            }
        }
    }

    pub(super) fn forget(&mut self) {
        *self.counts = [Count::default(); BUCKETS];
    }

    /// The share that outlasts each time, and how many hedges it is made of.
    pub(super) fn survival(&self) -> (Survival, f64) {
        let survival = Survival::new(|bucket| {
            let Count { ended, cut } = self.counts[bucket / FINE];
            let part = 1.0 / FINE as f64;
            (f64::from(ended) * part, f64::from(cut) * part)
        });
        let all = self.counts.iter().map(|it| it.ended + it.cut).sum::<f32>();
        (survival, f64::from(all))
    }

    pub(super) fn memory() -> usize {
        size_of::<[Count; BUCKETS]>()
    }
}
