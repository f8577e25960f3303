//! The alternative estimator: `quantiles`' CKMS summary, folded off the call's path.

use std::{
    mem,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use quantiles::ckms::CKMS;

use super::{
    LatencyEstimator,
    cell::{Cell, Seen, State, period},
    micros, nanos,
};

/// The summary's target. At 0.005 the p99 was measured up to 42 % off.
const ERROR: f64 = 0.001;

/// Samples that a generation takes in. An insertion slows down as the summary grows, from 0.4
/// us at a thousand samples to 3 us at a million.
const GENERATION: u64 = 20_000;

/// Samples that wait for a fold: 250 ms at 65,000 calls a second. More overwrite the oldest.
const PENDING: usize = 16_384;

/// Bytes of a stored sample: value, gap and uncertainty, 32 bits each.
const STORED: usize = 12;

/// `quantiles` 0.7.1's CKMS as a [`LatencyEstimator`]; [`Ring`](super::Ring) is the default.
///
/// An insertion into the summary takes 350 to 3,000 ns, a query scans it, and adding two
/// summaries forgets their weights (p99 off by 37 % over ten windows). So a call only appends to
/// a list, and [`LatencyEstimator::fold`] does the rest off the calls' path: it fills two
/// summaries that start half a window apart, drops each after a whole window, and asks the older
/// one. Summaries are never merged. The estimate thus covers between half a window and a whole
/// one.
///
/// **Without folds there is no threshold.** The engine starts no task: the owner folds every
/// estimator about every 250 ms. A threshold can therefore appear up to that long after the
/// sample that completes the minimum.
///
/// Above 20,000 samples in a window a fold takes every nth, by the rate since the last fold: each
/// second then counts the same, however many calls it had. Memory is bounded by 540 KiB: twice
/// 20,000 samples, and 16,384 that wait.
///
/// It hands nothing on to another process ([`LatencyEstimator::export`]) and takes nothing over: the
/// summary does not tell what it keeps. A process that starts with it learns anew.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::measure::{Ckms, LatencyEstimator};
///
/// let ckms = Ckms::new(0.95, Duration::from_secs(30), 20);
/// for ms in 1..=100 {
///     ckms.record(Duration::from_millis(ms), Duration::from_millis(ms));
/// }
/// let now = Duration::from_millis(250);
/// assert_eq!(ckms.threshold(now), None, "not folded yet");
/// ckms.fold(now);
/// let threshold = ckms.threshold(now).unwrap();
/// assert!(threshold.abs_diff(Duration::from_millis(95)) <= Duration::from_millis(1));
/// ```
#[derive(Debug)]
pub struct Ckms {
    quantile: f64,
    minimum_samples: u64,
    window: Duration,
    cached: Cell,
    /// Calls that the older generation stands for, when it was last folded.
    samples: AtomicU64,
    pending: Mutex<Pending>,
    summary: Mutex<Summary>,
}

#[derive(Debug, Default)]
struct Pending {
    micros: Vec<u32>,
    /// Samples since the last fold; beyond [`PENDING`] they have overwritten others.
    count: u64,
    /// When the newest was recorded.
    newest: Duration,
    /// When the first was.
    oldest: Duration,
}

#[derive(Debug)]
struct Summary {
    /// The half window in which the younger generation started.
    half: u64,
    older: Generation,
    younger: Generation,
    folded: Option<Duration>,
}

#[derive(Debug)]
struct Generation {
    ckms: CKMS<u32>,
    /// Samples taken in.
    taken: u64,
    /// Calls that they stand for.
    calls: u64,
}

impl Ckms {
    /// Follows `quantile` over `window` once it holds `minimum_samples` (0 means 1), like
    /// [`Ring::new`](super::Ring::new).
    pub fn new(quantile: f64, window: Duration, minimum_samples: u64) -> Self {
        Self {
            quantile,
            minimum_samples: minimum_samples.max(1),
            window: window.max(Duration::from_millis(1)),
            cached: Cell::new(),
            samples: AtomicU64::new(0),
            pending: Mutex::default(),
            summary: Mutex::new(Summary {
                half: 0,
                older: Generation::new(),
                younger: Generation::new(),
                folded: None,
            }),
        }
    }

    /// Whether what was folded at `at` is outside the window.
    fn is_old(&self, at: u32, now: Duration) -> bool {
        period(now).saturating_sub(at) >= period(self.window).max(1)
    }
}

impl LatencyEstimator for Ckms {
    fn record(&self, now: Duration, latency: Duration) {
        let micros = micros(latency);
        let mut pending = self.pending.lock();
        if pending.micros.is_empty() {
            pending.oldest = now;
        }
        if pending.micros.len() < PENDING {
            pending.micros.push(micros);
        } else {
            let place = (pending.count % PENDING as u64) as usize;
            pending.micros[place] = micros;
        }
        pending.count += 1;
        pending.newest = pending.newest.max(now);
    }

    #[inline]
    fn threshold(&self, now: Duration) -> Option<Duration> {
        let seen = self.cached.load();
        if self.is_old(seen.at, now) {
            return None;
        }
        seen.state.threshold()
    }

    fn quantile(&self, now: Duration, q: f64) -> Option<Duration> {
        let seen = self.cached.load();
        if self.is_old(seen.at, now) {
            return None;
        }
        let micros = self.summary.lock().older.quantile(q)?;
        Some(Duration::from_micros(micros.into()))
    }

    fn samples(&self, now: Duration) -> u64 {
        if self.is_old(self.cached.load().at, now) {
            return 0;
        }
        // Relaxed: for snapshots; a fold may be between the two words.
        self.samples.load(Ordering::Relaxed)
    }

    fn memory(&self) -> usize {
        let pending = self.pending.lock().micros.capacity() * size_of::<u32>();
        let summary = self.summary.lock();
        // The summary does not tell what it keeps; it is never more than it was given.
        let taken = (summary.older.taken + summary.younger.taken) as usize;
        size_of::<Self>() + pending + taken * STORED
    }

    fn fold(&self, now: Duration) {
        // Folds exclude each other; calls only meet the short lock on the list.
        let mut summary = self.summary.lock();
        let pending = mem::take(&mut *self.pending.lock());
        summary.turn(nanos(now) / (nanos(self.window) / 2));
        if now.saturating_sub(pending.newest) < self.window {
            let since = summary.folded.unwrap_or(pending.oldest);
            summary.take_in(&pending, now.saturating_sub(since), self.window);
        }
        summary.folded = Some(now);
        let calls = summary.older.calls;
        let state = match summary.older.quantile(self.quantile) {
            _ if calls < self.minimum_samples => State::Sparse,
            None => State::Withheld,
            Some(micros) => State::Is(micros),
        };
        self.samples.store(calls, Ordering::Relaxed);
        let at = period(now);
        self.cached.store(Seen { at, state });
    }
}

impl Summary {
    /// Drops what is too old at the half window `half`.
    fn turn(&mut self, half: u64) {
        let passed = half.saturating_sub(self.half);
        if passed == 0 {
            return;
        }
        self.half = half;
        let younger = mem::replace(&mut self.younger, Generation::new());
        self.older = if passed == 1 {
            younger
        } else {
            Generation::new()
        };
    }

    fn take_in(&mut self, pending: &Pending, elapsed: Duration, window: Duration) {
        // A fold right after another one sees no rate: 250 ms of a window of 30 s are the least.
        let elapsed = elapsed.max(window / 120);
        let windows = elapsed.as_secs_f64() / window.as_secs_f64();
        let per_window = pending.micros.len() as f64 / windows;
        let stride = (per_window / GENERATION as f64).ceil().max(1.0) as usize;
        for generation in [&mut self.older, &mut self.younger] {
            for &micros in pending.micros.iter().step_by(stride) {
                generation.insert(micros);
            }
            generation.calls += pending.count;
        }
    }
}

impl Generation {
    fn new() -> Self {
        Self {
            ckms: CKMS::new(ERROR),
            taken: 0,
            calls: 0,
        }
    }

    fn insert(&mut self, micros: u32) {
        if self.taken < GENERATION {
            self.taken += 1;
            self.ckms.insert(micros);
        }
    }

    /// In microseconds, at least 1. `None` without samples, or when it is the clamp.
    fn quantile(&self, q: f64) -> Option<u32> {
        let (_, micros) = self.ckms.query(q.clamp(0.0, 1.0))?;
        (micros < u32::MAX).then_some(micros.max(1))
    }
}
