//! A ring of sub-windows over time: which slot a moment falls into, and which are still recent.
//!
//! The owner keeps the counters; the wheel says when one must be emptied before its reuse.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use super::nanos;

/// `N` slots, each a `N`th of the window wide.
#[derive(Debug)]
pub(super) struct Wheel<const N: usize> {
    /// Nanoseconds of a slot.
    width: u64,
    /// For each slot one more than the number of the sub-window that it holds; 0 is none.
    marks: [AtomicU64; N],
    /// Held while a slot is emptied: once in each sub-window.
    turning: Mutex<()>,
}

impl<const N: usize> Wheel<N> {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            width: (nanos(window) / N as u64).max(1),
            marks: [const { AtomicU64::new(0) }; N],
            turning: Mutex::new(()),
        }
    }

    /// The slot of `now`. `empty` clears the counters of a slot that held an older sub-window.
    ///
    /// `None` for a moment so late that a newer sub-window has taken its slot: what happened
    /// then is outside the window already.
    ///
    /// A caller that is suspended for a whole window between this and its count adds one old
    /// event to a new sub-window. A lock for every event would cost more than that is worth.
    #[inline]
    pub(super) fn slot(&self, now: Duration, empty: impl FnOnce(usize)) -> Option<usize> {
        let number = nanos(now) / self.width;
        let slot = (number % N as u64) as usize;
        let mark = number.saturating_add(1);
        // Acquire, with the Release in `turn`: who sees the mark sees the emptied counters.
        if self.marks[slot].load(Ordering::Acquire) == mark {
            Some(slot)
        } else {
            self.turn(slot, mark, empty)
        }
    }

    #[cold]
    fn turn(&self, slot: usize, mark: u64, empty: impl FnOnce(usize)) -> Option<usize> {
        let _turning = self.turning.lock();
        // Relaxed: marks are written under this lock only.
        let held = self.marks[slot].load(Ordering::Relaxed);
        if held < mark {
            empty(slot);
            self.marks[slot].store(mark, Ordering::Release);
        }
        (held <= mark).then_some(slot)
    }

    /// The slots that are in the window at `now`.
    ///
    /// The current sub-window is part of it, so it covers between `N - 1` and `N` widths.
    pub(super) fn live(&self, now: Duration) -> impl Iterator<Item = usize> + '_ {
        let number = nanos(now) / self.width;
        (0..N).filter(move |&slot| {
            // Acquire: as in `slot`.
            let mark = self.marks[slot].load(Ordering::Acquire);
            mark != 0 && mark.saturating_add(N as u64) > number.saturating_add(1)
        })
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let _turning = self.turning.lock();
        for mark in &self.marks {
            // Relaxed: the counters are emptied before a mark stands again.
            mark.store(0, Ordering::Relaxed);
        }
    }
}
