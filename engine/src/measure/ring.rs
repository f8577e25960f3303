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
    LatencyEstimator, Survival,
    buckets::{self, Counts, PAGES, SUB, Spot},
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
/// to 71.6 minutes; half as much again for the octaves in which calls were cut off. Longer
/// latencies count as the longest.
///
/// What was cut off ([`LatencyEstimator::record_cut`]) is weighed by Kaplan and Meier's
/// estimate, so hedging does not bend what it is timed by.
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
    /// What was cut off, by where; allocated as the pages are.
    cuts: [OnceLock<Box<Cuts>>; PAGES],
}

/// The words of an octave's buckets, for each slot.
#[derive(Debug)]
struct Page([[AtomicU64; SUB]; SLOTS]);

/// The same for what was cut off: numbers only, since a cut's place in its bucket tells nothing.
#[derive(Debug)]
struct Cuts([[AtomicU32; SUB]; SLOTS]);

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
            cuts: [const { OnceLock::new() }; PAGES],
        }
    }

    fn empty(&self, slot: usize) {
        // Relaxed: the wheel publishes the slot when all of it is empty.
        for page in self.pages.iter().filter_map(OnceLock::get) {
            for word in &page.0[slot] {
                word.store(0, Ordering::Relaxed);
            }
        }
        for cuts in self.cuts.iter().filter_map(OnceLock::get) {
            for cut in &cuts.0[slot] {
                cut.store(0, Ordering::Relaxed);
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
        if counts.total() < self.minimum_samples {
            State::Sparse
        } else {
            self.find(now, &counts, self.quantile)
                .map_or(State::Withheld, State::Is)
        }
    }

    fn counts(&self, now: Duration) -> Counts {
        let mut counts = Counts::new();
        for slot in self.wheel.live(now) {
            // Relaxed: each count is exact, and a sample more or less changes nothing.
            for (sums, page) in counts.ended.chunks_exact_mut(SUB).zip(&self.pages) {
                let Some(page) = page.get() else { continue };
                for (sum, word) in sums.iter_mut().zip(&page.0[slot]) {
                    *sum += buckets::count(word.load(Ordering::Relaxed));
                }
            }
            for (sums, cuts) in counts.cut.chunks_exact_mut(SUB).zip(&self.cuts) {
                let Some(cuts) = cuts.get() else { continue };
                for (sum, cut) in sums.iter_mut().zip(&cuts.0[slot]) {
                    *sum += u64::from(cut.load(Ordering::Relaxed));
                }
            }
        }
        counts
    }

    fn find(&self, now: Duration, counts: &Counts, q: f64) -> Option<u32> {
        counts.quantile(q, |bucket| {
            let page = self.pages[bucket / SUB].get();
            self.wheel.live(now).filter_map(move |slot| {
                // Relaxed: as in `counts`.
                page.map(|page| page.0[slot][bucket % SUB].load(Ordering::Relaxed))
            })
        })
    }

    fn add(&self, now: Duration, latency: Duration, count: impl FnOnce(usize, Spot)) {
        let Some(slot) = self.wheel.slot(now, |slot| self.empty(slot)) else {
            return;
        };
        count(slot, buckets::locate(micros(latency)));
        // Release, with the Acquire in `samples`: who counts enough samples finds them.
        self.samples[slot].fetch_add(1, Ordering::Release);
    }
}

impl LatencyEstimator for Ring {
    #[inline]
    fn record(&self, now: Duration, latency: Duration) {
        self.add(now, latency, |slot, Spot { page, sub, word }| {
            let page = self.pages[page].get_or_init(Page::boxed);
            page.0[slot][sub].fetch_add(word, Ordering::Relaxed);
        });
    }

    fn record_cut(&self, now: Duration, ran: Duration) {
        self.add(now, ran, |slot, Spot { page, sub, .. }| {
            let cuts = self.cuts[page].get_or_init(Cuts::boxed);
            cuts.0[slot][sub].fetch_add(1, Ordering::Relaxed);
        });
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

    fn survival(&self, now: Duration) -> Option<Survival> {
        Some(Survival::of(&self.counts(now)))
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
        let cuts = self.cuts.iter().filter_map(OnceLock::get).count();
        size_of::<Self>() + pages * size_of::<Page>() + cuts * size_of::<Cuts>()
    }
}

impl Page {
    fn boxed() -> Box<Self> {
        Box::new(Self(array::from_fn(|_| {
            array::from_fn(|_| AtomicU64::new(0))
        })))
    }
}

impl Cuts {
    fn boxed() -> Box<Self> {
        Box::new(Self(array::from_fn(|_| {
            array::from_fn(|_| AtomicU32::new(0))
        })))
    }
}
