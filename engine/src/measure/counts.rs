//! Outcomes over a sliding window: how many, and how many of them failures.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::wheel::Wheel;

/// Sub-windows: an outcome stays for 90 to 100 % of the window.
const SLOTS: usize = 10;

/// A failure in a slot's word; the low half counts the calls.
const FAILURE: u64 = 1 << 32;

/// Calls and failures of a window.
#[derive(Debug)]
pub(super) struct Counts {
    wheel: Wheel<SLOTS>,
    /// Both counts of a slot in one word, so that failures never exceed calls.
    slots: [AtomicU64; SLOTS],
}

/// What a window held at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) failures: u64,
}

impl Counts {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            wheel: Wheel::new(window),
            slots: [const { AtomicU64::new(0) }; SLOTS],
        }
    }

    pub(super) fn record(&self, now: Duration, failed: bool) {
        // Relaxed, here and below: the wheel orders the emptying, the rest is counting.
        let empty = |slot: usize| self.slots[slot].store(0, Ordering::Relaxed);
        if let Some(slot) = self.wheel.slot(now, empty) {
            let one = if failed { 1 + FAILURE } else { 1 };
            self.slots[slot].fetch_add(one, Ordering::Relaxed);
        }
    }

    pub(super) fn tally(&self, now: Duration) -> Tally {
        self.wheel.live(now).fold(Tally::default(), |sum, slot| {
            let word = self.slots[slot].load(Ordering::Relaxed);
            Tally {
                calls: sum.calls + word % FAILURE,
                failures: sum.failures + word / FAILURE,
            }
        })
    }

    pub(super) fn clear(&self) {
        self.wheel.clear();
    }
}

impl Tally {
    /// Failures per call; `None` without calls.
    ///
    /// One division, correctly rounded, so that 6 of 20 is the same number as the literal 0.3.
    pub(super) fn rate(self) -> Option<f64> {
        (self.calls > 0).then(|| self.failures as f64 / self.calls as f64)
    }

    /// What is left without a part of it.
    pub(super) fn without(self, part: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(part.calls),
            failures: self.failures.saturating_sub(part.failures),
        }
    }
}
