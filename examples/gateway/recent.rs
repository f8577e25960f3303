//! The latencies of the last seconds, by lane: what the page shows.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::quantile::quantile;

/// A number on the page is of so long.
const WINDOW: Duration = Duration::from_secs(10);

/// The calls of one lane, as the gateway's callers see them.
#[derive(Debug)]
pub(crate) struct Recent {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// When each was answered, and what it took to its first and its last token.
    answered: VecDeque<(Instant, Duration, Duration)>,
    calls: u64,
    failed: u64,
    left: u64,
    hedged: u64,
    hedge_won: u64,
}

/// What is known of a lane's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Since the start, as the four that follow.
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) left: u64,
    pub(crate) hedged: u64,
    pub(crate) hedge_won: u64,
    /// In the window, as those that follow.
    pub(crate) answered: u64,
    /// In milliseconds, at p50 and p99; `None` without calls.
    pub(crate) first_ms: Option<[f64; 2]>,
    pub(crate) total_ms: Option<[f64; 2]>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self {
            counts: Mutex::new(Counts::default()),
        }
    }

    pub(crate) fn called(&self) {
        self.counts.lock().calls += 1;
    }

    pub(crate) fn failed(&self) {
        self.counts.lock().failed += 1;
    }

    pub(crate) fn left(&self) {
        self.counts.lock().left += 1;
    }

    pub(crate) fn hedged(&self, won: bool) {
        let mut counts = self.counts.lock();
        counts.hedged += 1;
        counts.hedge_won += u64::from(won);
    }

    pub(crate) fn answered(&self, now: Instant, first: Duration, total: Duration) {
        let mut counts = self.counts.lock();
        counts.answered.push_back((now, first, total));
        counts.forget(now);
    }

    pub(crate) fn seen(&self, now: Instant) -> Seen {
        let mut counts = self.counts.lock();
        counts.forget(now);
        let (first, total): (Vec<_>, Vec<_>) = counts
            .answered
            .iter()
            .map(|(_, first, total)| (*first, *total))
            .unzip();
        let seen = Seen {
            calls: counts.calls,
            failed: counts.failed,
            left: counts.left,
            hedged: counts.hedged,
            hedge_won: counts.hedge_won,
            answered: first.len() as u64,
            ..Seen::default()
        };
        drop(counts);
        let quantiles = |of: Vec<Duration>| {
            (!of.is_empty()).then(|| [quantile(of.clone(), 0.5), quantile(of, 0.99)])
        };
        Seen {
            first_ms: quantiles(first),
            total_ms: quantiles(total),
            ..seen
        }
    }
}

impl Counts {
    fn forget(&mut self, now: Instant) {
        while let Some((at, ..)) = self.answered.front()
            && now.saturating_duration_since(*at) > WINDOW
        {
            self.answered.pop_front();
        }
    }
}
