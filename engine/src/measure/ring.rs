//! The default estimator: a ring of sub-windows over one log-linear histogram.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    Latencies, LatencyEstimator, Survival,
    buckets::{self, Counts, PAGES, SUB, Spot},
    cell::{Cell, Seen, State, period},
    micros,
    page::Page,
    wheel::Wheel,
};

/// Sub-windows: a sample stays for six sevenths of the window to all of it.
///
/// Seven 16-bit counts and a mean place make a bucket 16 bytes, so that a record touches one cache
/// line of them.
const SLOTS: usize = 7;

/// Buckets of an octave in which cuts are counted. They too have a mean place each.
const CUT_SUB: usize = 8;

/// A ring of seven sub-windows over one histogram with buckets at most 1.6 % wide: a sample stays
/// for six sevenths of the window to all of it.
///
/// A record is a few relaxed atomic operations and no lock; the first record of a sub-window empties
/// the slot that it reuses, under a lock. The threshold is one atomic word, recomputed in at most
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
/// Counters for an octave of latencies are allocated with its first sample: 1 KiB for each octave that
/// was ever seen (12 KiB for 1 ms to 1 s), 29 KiB at most with everything from 0 to 71.6 minutes.
/// An octave in which calls were cut off takes a seventh more, and one of which a bucket gets 32,768
/// calls in a sub-window 1.8 KiB more: counts are exact. Longer latencies count as the longest.
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
    octaves: [OnceLock<Box<Octave>>; PAGES],
}

/// The counters of an octave of latencies.
#[derive(Debug)]
struct Octave {
    ended: Page<SUB, SLOTS>,
    /// What was cut off.
    cut: OnceLock<Box<Page<CUT_SUB, SLOTS>>>,
}

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
            octaves: [const { OnceLock::new() }; PAGES],
        }
    }

    fn empty(&self, slot: usize) {
        // Relaxed: the wheel publishes the slot when all of it is empty.
        for octave in self.octaves.iter().filter_map(OnceLock::get) {
            octave.ended.empty(slot);
            if let Some(cut) = octave.cut.get() {
                cut.empty(slot);
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
            self.find(&counts, self.quantile)
                .map_or(State::Withheld, State::Is)
        }
    }

    fn counts(&self, now: Duration) -> Counts {
        let mut counts = Counts::new();
        let sums = counts.ended.chunks_exact_mut(SUB);
        let sums = sums.zip(counts.cut.chunks_exact_mut(SUB));
        for (octave, (ended, cut)) in self.octaves.iter().zip(sums) {
            let Some(octave) = octave.get() else { continue };
            for slot in self.wheel.live(now) {
                octave.add_to(slot, ended, cut);
            }
        }
        counts
    }

    fn find(&self, counts: &Counts, q: f64) -> Option<u32> {
        counts.quantile(q, |bucket| {
            let octave = self.octaves[bucket / SUB].get();
            octave.map_or(0.5, |octave| octave.ended.place(bucket % SUB))
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
        self.add(now, latency, |slot, Spot { page, sub, place }| {
            let octave = self.octaves[page].get_or_init(Octave::boxed);
            octave.ended.add(sub, slot, place);
        });
    }

    fn record_cut(&self, now: Duration, ran: Duration) {
        self.add(now, ran, |slot, spot| {
            let Spot { page, sub, place } = spot.among(CUT_SUB);
            let octave = self.octaves[page].get_or_init(Octave::boxed);
            let cut = octave.cut.get_or_init(|| Box::new(Page::new()));
            cut.add(sub, slot, place);
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
        let micros = self.find(&self.counts(now), q)?;
        Some(Duration::from_micros(micros.into()))
    }

    fn export(&self, now: Duration) -> Option<Latencies> {
        let (mut ended, mut cut) = (Vec::new(), Vec::new());
        for (number, octave) in self.octaves.iter().enumerate() {
            let Some(octave) = octave.get() else { continue };
            let live = || self.wheel.live(now);
            for bucket in 0..SUB {
                let count: u64 = live().map(|slot| octave.ended.count(bucket, slot)).sum();
                let place = octave.ended.place(bucket);
                let micros = buckets::micros_at(number * SUB + bucket, place);
                ended.extend((count > 0).then_some((micros, count)));
            }
            let Some(cuts) = octave.cut.get() else {
                continue;
            };
            for bucket in 0..CUT_SUB {
                let count: u64 = live().map(|slot| cuts.count(bucket, slot)).sum();
                let place = narrow(bucket, cuts.place(bucket));
                let micros = buckets::micros_at(number * SUB + place as usize, place.fract());
                cut.extend((count > 0).then_some((micros, count)));
            }
        }
        Some(Latencies::of(ended, cut))
    }

    fn import(&self, now: Duration, latencies: &Latencies) -> bool {
        if !latencies.is_sound() {
            return false;
        }
        // What is sound is less.
        let count = u32::try_from(latencies.samples()).unwrap_or(u32::MAX);
        if count == 0 {
            return false;
        }
        let Some(slot) = self.wheel.slot(now, |slot| self.empty(slot)) else {
            return false;
        };
        for &(micros, count) in latencies.ended() {
            let Spot { page, sub, place } = buckets::locate(micros);
            let octave = self.octaves[page].get_or_init(Octave::boxed);
            octave.ended.add_many(sub, slot, place, count);
        }
        for &(micros, count) in latencies.cut() {
            let Spot { page, sub, place } = buckets::locate(micros).among(CUT_SUB);
            let octave = self.octaves[page].get_or_init(Octave::boxed);
            let cut = octave.cut.get_or_init(|| Box::new(Page::new()));
            cut.add_many(sub, slot, place, count);
        }
        // Release: as in `add`.
        self.samples[slot].fetch_add(count, Ordering::Release);
        true
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
        let octaves = self.octaves.iter().filter_map(OnceLock::get);
        size_of::<Self>() + octaves.map(|octave| octave.memory()).sum::<usize>()
    }
}

/// A place in one of an octave's wide buckets, in narrow ones.
fn narrow(bucket: usize, place: f64) -> f64 {
    (bucket as f64 + place) * (SUB / CUT_SUB) as f64
}

impl Octave {
    fn boxed() -> Box<Self> {
        Box::new(Self {
            ended: Page::new(),
            cut: OnceLock::new(),
        })
    }

    /// Adds what `slot` has counted to the sums of the octave's buckets.
    fn add_to(&self, slot: usize, ended: &mut [u64], cut: &mut [u64]) {
        for (bucket, sum) in ended.iter_mut().enumerate() {
            *sum += self.ended.count(bucket, slot);
        }
        let Some(cuts) = self.cut.get() else { return };
        for bucket in 0..CUT_SUB {
            // All of a wide bucket are in the narrow one where they lie on average.
            let place = narrow(bucket, cuts.place(bucket));
            cut[place as usize] += cuts.count(bucket, slot);
        }
    }

    /// Bytes on the heap.
    fn memory(&self) -> usize {
        let cut = self.cut.get();
        let cut = cut.map_or(0, |cut| size_of_val(&**cut) + cut.beyond());
        size_of::<Self>() + self.ended.beyond() + cut
    }
}
