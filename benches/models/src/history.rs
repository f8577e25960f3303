//! What became of a world's calls, and what it comes to.

use std::time::Duration;

use tonic_hedge_engine::{
    plan::PlanReading,
    race::{End, Kind},
};

/// What became of a world.
#[derive(Clone, Debug)]
pub struct History {
    /// All calls, in the order of their arrival.
    pub fates: Vec<Fate>,
    /// All that the window was told, in its order.
    pub samples: Vec<Sample>,
    /// Further attempts that were granted.
    pub granted: usize,
    /// What the planner said, each time that it said something else; empty without one.
    pub plans: Vec<(Duration, PlanReading)>,
    /// The world's: what a summary leaves out.
    pub warm_up: Duration,
    /// The world's: how soon an answer has to come to be of use.
    pub limit: Duration,
}

/// What became of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it came, since the world's start.
    pub arrived: Duration,
    /// How long it took.
    pub took: Duration,
    /// The kinds of its launches, in their order.
    pub launches: Vec<Kind>,
    /// How it ended.
    pub end: End,
}

/// What the window was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The call, an index of [`History::fates`].
    pub call: usize,
    /// How long its original had run.
    pub ran: Duration,
    /// Whether it was cut off then.
    pub cut: bool,
}

/// What many calls come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Calls.
    pub calls: usize,
    /// The least time within which half of the answers came; zero without answers. Calls that
    /// failed are in none of the four.
    pub p50: Duration,
    /// The same for 95 %.
    pub p95: Duration,
    /// The same for 99 %.
    pub p99: Duration,
    /// The same for 99.9 %.
    pub p999: Duration,
    /// Hedges per call.
    pub extra_load: f64,
    /// Attempts per call, retries among them.
    pub attempts: f64,
    /// The share of calls that were answered within the limit.
    pub goodput: f64,
}

impl History {
    /// Of all calls that came after the warm-up.
    pub fn summary(&self) -> Summary {
        self.summary_of(self.warm_up, Duration::MAX)
    }

    /// Of the calls that came in the time.
    pub fn summary_of(&self, from: Duration, to: Duration) -> Summary {
        Summary::of(self.between(from, to), self.limit)
    }

    /// The calls that came in the time.
    pub fn between(&self, from: Duration, to: Duration) -> &[Fate] {
        let start = self.fates.partition_point(|fate| fate.arrived < from);
        let end = self.fates.partition_point(|fate| fate.arrived < to);
        self.fates.get(start..end).unwrap_or_default()
    }
}

impl Fate {
    /// Hedges among its launches.
    pub fn hedges(&self) -> usize {
        let launches = self.launches.iter();
        launches.filter(|kind| **kind == Kind::Hedge).count()
    }

    /// Whether an attempt answered it.
    pub fn is_answered(&self) -> bool {
        matches!(self.end, End::Answer(_))
    }
}

impl Summary {
    /// Of these calls; an answer that takes longer than `limit` is not good.
    pub fn of(fates: &[Fate], limit: Duration) -> Self {
        let answered = fates.iter().filter(|fate| fate.is_answered());
        let mut took: Vec<_> = answered.map(|fate| fate.took).collect();
        took.sort_unstable();
        let per_call = |count: usize| count as f64 / fates.len().max(1) as f64;
        Self {
            calls: fates.len(),
            p50: rank(&took, 0.5),
            p95: rank(&took, 0.95),
            p99: rank(&took, 0.99),
            p999: rank(&took, 0.999),
            extra_load: per_call(fates.iter().map(Fate::hedges).sum()),
            attempts: per_call(fates.iter().map(|fate| fate.launches.len()).sum()),
            goodput: per_call(took.partition_point(|took| *took <= limit)),
        }
    }
}

/// The least of the sorted times that a share `q` of them does not exceed.
fn rank(sorted: &[Duration], q: f64) -> Duration {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let time = sorted.get(rank.saturating_sub(1));
    time.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(ms: u64, launches: &[Kind], end: End) -> Fate {
        Fate {
            arrived: Duration::from_millis(ms),
            took: Duration::from_millis(ms),
            launches: launches.to_vec(),
            end,
        }
    }

    #[test]
    fn a_summary_counts_what_there_was() {
        let mut fates: Vec<_> = (1..=97)
            .map(|ms| fate(ms, &[Kind::Original], End::Answer(0)))
            .collect();
        fates.push(fate(98, &[Kind::Original, Kind::Hedge], End::Answer(1)));
        fates.push(fate(99, &[Kind::Original, Kind::Retry], End::Answer(1)));
        fates.push(fate(100, &[Kind::Original], End::Failed(0)));
        let history = History {
            fates,
            samples: Vec::new(),
            granted: 2,
            plans: Vec::new(),
            warm_up: Duration::ZERO,
            limit: Duration::from_millis(90),
        };
        let summary = history.summary();
        assert_eq!(summary.calls, 100);
        assert_eq!(summary.p50, Duration::from_millis(50));
        assert_eq!(summary.p95, Duration::from_millis(95));
        assert_eq!(
            summary.p99,
            Duration::from_millis(99),
            "the failure is none"
        );
        assert_eq!(summary.extra_load, 0.01);
        assert_eq!(summary.attempts, 1.02);
        assert_eq!(summary.goodput, 0.9);

        let part = history.summary_of(Duration::from_millis(98), Duration::from_millis(99));
        assert_eq!((part.calls, part.extra_load, part.goodput), (1, 1.0, 0.0));
        let none = history.summary_of(Duration::from_secs(1), Duration::ZERO);
        assert_eq!((none.calls, none.p99), (0, Duration::ZERO));
    }
}
