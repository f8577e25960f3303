//! Recorded latencies, in bounded memory however many they are.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;

/// Of a histogram's values: one in a thousand is less than what a p99 varies by.
pub(crate) const DIGITS: u8 = 3;

/// In nanoseconds, an hour: what a file may hold.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies of one RPC.
pub(crate) struct Latencies {
    /// All of them, to three digits, in nanoseconds.
    all: Histogram<u64>,
    /// The first ones, exact and in their order.
    first: Vec<Duration>,
}

impl Latencies {
    /// With fewer no policy hedges at all (`Hedge::minimum_samples`).
    pub(crate) const LEAST: u64 = 20;

    /// So many are kept exact, 1.6 MB. Their p99.9 has a hundred beyond it.
    pub(crate) const EXACT: usize = 100_000;

    pub(crate) fn new() -> Result<Self, String> {
        let all = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Ok(Self {
            all: all.map_err(|error| error.to_string())?,
            first: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        if self.first.len() < Self::EXACT {
            self.first.push(latency);
        }
        self.add_many(latency, 1);
    }

    /// As a histogram has them: without an order.
    pub(crate) fn add_many(&mut self, latency: Duration, count: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST);
        self.all.saturating_record_n(ns, count);
    }

    pub(crate) fn count(&self) -> u64 {
        self.all.len()
    }

    /// Whether [`Latencies::values`] are what was recorded.
    pub(crate) fn is_exact(&self) -> bool {
        self.first.len() as u64 == self.count()
    }

    /// At most [`Latencies::EXACT`] values that stand for all, ascending: what was recorded, or
    /// quantiles at even distances.
    pub(crate) fn values(&self) -> Vec<Duration> {
        if self.is_exact() {
            let mut values = self.first.clone();
            values.sort_unstable();
            return values;
        }
        let count = self.count().min(Self::EXACT as u64);
        let step = self.count() as f64 / count as f64;
        let mut values = Vec::with_capacity(count as usize);
        let mut seen = 0.0;
        for value in self.all.iter_recorded() {
            seen += value.count_at_value() as f64;
            let ns = self.all.median_equivalent(value.value_iterated_to());
            while values.len() < count as usize && (values.len() as f64 + 0.5) * step <= seen {
                values.push(Duration::from_nanos(ns));
            }
        }
        values
    }

    /// How much likelier a call is among the slowest twentieth if the one recorded before it was.
    /// `None` where the order is unknown, or chance would explain it.
    pub(crate) fn clumping(&self) -> Option<f64> {
        let mut sorted = self.first.clone();
        sorted.sort_unstable();
        let slow = *sorted.get(sorted.len() * 19 / 20)?;
        let calls = self.first.len() as f64;
        let share = self.first.iter().filter(|it| **it >= slow).count() as f64 / calls;
        let pairs = self.first.windows(2);
        let both = pairs.filter(|pair| pair.iter().all(|it| *it >= slow));
        let (both, expected) = (both.count() as f64, share * share * calls);
        // Four standard deviations of a count; and what is not twice is no matter.
        let is_more = both > expected + 4.0 * expected.sqrt() && both > 2.0 * expected;
        (is_more && share < 0.5).then(|| both / expected)
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latencies({})", self.count())
    }
}
