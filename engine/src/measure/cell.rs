//! A threshold as all calls read it: its value and its age in one atomic word.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// What was computed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The threshold, in microseconds.
    Is(u32),
    /// None: too few samples. One more may be enough.
    Sparse,
    /// None until the next refresh: the quantile is in the top bucket, or is being computed.
    Withheld,
}

impl State {
    pub(super) fn threshold(self) -> Option<Duration> {
        match self {
            Self::Is(micros) => Some(Duration::from_micros(micros.into())),
            Self::Sparse | Self::Withheld => None,
        }
    }
}

/// A state, and the period in which it was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// See [`period`].
    pub(super) at: u32,
    pub(super) state: State,
}

/// The number of the 100 ms in which `now` lies: often enough to follow a shift within a
/// window of one second or more, and rare enough to cost nothing per call.
///
/// 32 bits of them last 13 years.
pub(super) fn period(now: Duration) -> u32 {
    let periods = now
        .as_secs()
        .saturating_mul(10)
        .saturating_add(u64::from(now.subsec_millis() / 100));
    u32::try_from(periods).unwrap_or(u32::MAX)
}

/// A [`Seen`] in one word, so that value and age never tear.
#[derive(Debug)]
pub(super) struct Cell(AtomicU64);

/// Values that no threshold has: the top bucket, which yields none, begins below them.
const SPARSE: u32 = u32::MAX;
const WITHHELD: u32 = u32::MAX - 1;

impl Cell {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(pack(Seen {
            at: 0,
            state: State::Sparse,
        })))
    }

    #[inline]
    pub(super) fn load(&self) -> Seen {
        // Relaxed, here and below: the word is all there is to see.
        let word = self.0.load(Ordering::Relaxed);
        let state = match word as u32 {
            SPARSE => State::Sparse,
            WITHHELD => State::Withheld,
            micros => State::Is(micros),
        };
        Seen {
            at: (word >> 32) as u32,
            state,
        }
    }

    /// Puts `to` in the place of `from`, or says what stands there instead.
    pub(super) fn replace(&self, from: Seen, to: Seen) -> Result<(), Seen> {
        self.0
            .compare_exchange(pack(from), pack(to), Ordering::Relaxed, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| self.load())
    }

    #[cfg(feature = "quantiles")]
    pub(super) fn store(&self, seen: Seen) {
        self.0.store(pack(seen), Ordering::Relaxed);
    }
}

fn pack(seen: Seen) -> u64 {
    let state = match seen.state {
        State::Is(micros) => micros.min(WITHHELD - 1),
        State::Sparse => SPARSE,
        State::Withheld => WITHHELD,
    };
    u64::from(seen.at) << 32 | u64::from(state)
}
