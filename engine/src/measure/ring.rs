//! The default estimator: a ring of sub-windows over one log-linear histogram.

use std::{
    array,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    LatencyEstimator,
    buckets::{self, BUCKETS, PAGES, SUB, Spot},
    cell::{Cell, Seen, State, period},
    micros,
    wheel::Wheel,
};

/// Sub-windows: a sample stays for 90 to 100 % of the window.
const SLOTS: usize = 10;

/// A ring of ten sub-windows over one histogram with buckets at most 1.6 % wide.
///
/// A record is two relaxed additions and no lock; the first record of a sub-window empties the
/// slot that it reuses, under a lock. The threshold is one atomic word, recomputed in at most
/// one call each 100 ms; while there is none it appears with the sample that completes the
/// minimum.
///
/// A bucket keeps the mean of its latencies as well as their number, so that the share of calls
/// that outruns the threshold is right where a bucket holds more of them than the tail beyond
/// it: within a fifth of `1 - q` up to q = 0.99 for uniform, log-normal, bimodal and Pareto
/// latencies, and for normal ones down to a standard deviation of 1 % (2 % at q = 0.99). Latencies
/// that are all the same within 1 % fill a bucket or two: then anything may be hedged, and there
/// is nothing to gain; the budget bounds it.
///
/// Counters for an octave of latencies are allocated with its first sample: 5 KiB for each
/// octave that was ever seen (56 KiB for 1 ms to 1 s), 137 KiB at most with everything from 0
/// to 71.6 minutes. Longer latencies count as the longest.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::measure::{LatencyEstimator, Ring};
///
/// let ring = Ring::new(0.95, Duration::from_secs(30), 20);
/// let now = Duration::ZERO;
/// for ms in 1..20 {
///     ring.record(now, Duration::from_millis(ms));
/// }
/// assert_eq!(ring.threshold(now), None, "19 samples");
/// ring.record(now, Duration::from_millis(20));
/// let threshold = ring.threshold(now).unwrap().as_secs_f64();
/// assert!((threshold / 0.019 - 1.0).abs() < 0.016);
/// assert_eq!(ring.threshold(Duration::from_secs(31)), None, "all are old");
/// ```
#[derive(Debug)]
pub struct Ring {
    quantile: f64,
    minimum_samples: u64,
    /// [`period`]s after which a threshold is old even as a stopgap.
    lifetime: u32,
    cached: Cell,
    wheel: Wheel<SLOTS>,
    /// Samples of each slot.
    samples: [AtomicU32; SLOTS],
    pages: [OnceLock<Box<Page>>; PAGES],
}

/// The words of an octave's buckets, for each slot.
#[derive(Debug)]
struct Page([[AtomicU64; SUB]; SLOTS]);

impl Ring {
    /// Follows `quantile` (see [`Hedge`](crate::policy::Hedge) for the bounds of all three)
    /// over `window`, once the window holds `minimum_samples` (0 means 1).
    pub fn new(quantile: f64, window: Duration, minimum_samples: u64) -> Self {
        Self {
            quantile,
            minimum_samples: minimum_samples.max(1),
            lifetime: period(window).max(1),
            cached: Cell::new(),
            wheel: Wheel::new(window),
            samples: [const { AtomicU32::new(0) }; SLOTS],
            pages: [const { OnceLock::new() }; PAGES],
        }
    }

    fn empty(&self, slot: usize) {
        // Relaxed: the wheel publishes the slot when all of it is empty.
        for page in self.pages.iter().filter_map(OnceLock::get) {
            for word in &page.0[slot] {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.samples[slot].store(0, Ordering::Relaxed);
    }

    /// One call computes; the others go on with what there was, unless it is too old.
    #[cold]
    fn refresh(&self, seen: Seen, now: Duration) -> Option<Duration> {
        let at = period(now).max(seen.at);
        let stopgap = match seen.state {
            State::Is(_) if at - seen.at < self.lifetime => seen.state,
            _ => State::Withheld,
        };
        let claim = Seen { at, state: stopgap };
        if let Err(other) = self.cached.replace(seen, claim) {
            return other.state.threshold();
        }
        let state = self.compute(now);
        // A failure means that a later refresh has overtaken this one: its result stands.
        let _ = self.cached.replace(claim, Seen { at, state });
        state.threshold()
    }

    fn compute(&self, now: Duration) -> State {
        let counts = self.counts(now);
        if counts.iter().sum::<u64>() < self.minimum_samples {
            State::Sparse
        } else {
            self.find(now, &counts, self.quantile)
                .map_or(State::Withheld, State::Is)
        }
    }

    fn counts(&self, now: Duration) -> [u64; BUCKETS] {
        let mut counts = [0; BUCKETS];
        for slot in self.wheel.live(now) {
            for (sums, page) in counts.chunks_exact_mut(SUB).zip(&self.pages) {
                let Some(page) = page.get() else { continue };
                for (sum, word) in sums.iter_mut().zip(&page.0[slot]) {
                    // Relaxed: each count is exact, and a sample more or less changes nothing.
                    *sum += buckets::count(word.load(Ordering::Relaxed));
                }
            }
        }
        counts
    }

    fn find(&self, now: Duration, counts: &[u64; BUCKETS], q: f64) -> Option<u32> {
        buckets::quantile(counts, q, |bucket| {
            let page = self.pages[bucket / SUB].get();
            self.wheel.live(now).filter_map(move |slot| {
                // Relaxed: as in `counts`.
                page.map(|page| page.0[slot][bucket % SUB].load(Ordering::Relaxed))
            })
        })
    }
}

impl LatencyEstimator for Ring {
    #[inline]
    fn record(&self, now: Duration, latency: Duration) {
        let Some(slot) = self.wheel.slot(now, |slot| self.empty(slot)) else {
            return;
        };
        let Spot { page, sub, word } = buckets::locate(micros(latency));
        let page = self.pages[page].get_or_init(Page::boxed);
        page.0[slot][sub].fetch_add(word, Ordering::Relaxed);
        // Release, with the Acquire in `samples`: who counts enough samples finds them.
        self.samples[slot].fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn threshold(&self, now: Duration) -> Option<Duration> {
        let seen = self.cached.load();
        match seen.state {
            State::Sparse if self.samples(now) < self.minimum_samples => None,
            State::Is(_) | State::Withheld if period(now) <= seen.at => seen.state.threshold(),
            _ => self.refresh(seen, now),
        }
    }

    fn quantile(&self, now: Duration, q: f64) -> Option<Duration> {
        let micros = self.find(now, &self.counts(now), q)?;
        Some(Duration::from_micros(micros.into()))
    }

    fn samples(&self, now: Duration) -> u64 {
        self.wheel
            .live(now)
            // Acquire: see `record`.
            .map(|slot| u64::from(self.samples[slot].load(Ordering::Acquire)))
            .sum()
    }

    fn memory(&self) -> usize {
        let pages = self.pages.iter().filter_map(OnceLock::get).count();
        size_of::<Self>() + pages * size_of::<Page>()
    }
}

impl Page {
    fn boxed() -> Box<Self> {
        Box::new(Self(array::from_fn(|_| {
            array::from_fn(|_| AtomicU64::new(0))
        })))
    }
}
