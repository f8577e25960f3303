//! How many calls a lane sheds, for the time after which one may come again.

use std::time::Duration;

use super::millis;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The time in which a shed call's weight falls to 1/e: short, since what matters is who comes
/// back soon.
const MEMORY_MS: f32 = 1_000.0;

/// The sheds of about the last second.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// The weighted count as `f32` in the upper half; the millisecond of the last shed, modulo
    /// 2^32, in the lower. One word, so that a change is one step.
    word: AtomicU64,
}

impl Pressure {
    /// One more.
    pub(super) fn add(&self, now: Duration) {
        let now = millis(now) as u32;
        // Relaxed: a number that guards nothing. A failed exchange runs again on the newer value.
        let _always = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                let count = faded(word, now) + 1.0;
                Some(u64::from(count.to_bits()) << 32 | u64::from(now))
            });
    }

    /// Sheds a second.
    pub(super) fn rate(&self, now: Duration) -> f64 {
        let count = faded(self.word.load(Ordering::Relaxed), millis(now) as u32);
        f64::from(count) / (f64::from(MEMORY_MS) / 1_000.0)
    }
}

fn faded(word: u64, now: u32) -> f32 {
    let count = f32::from_bits((word >> 32) as u32);
    let age = now.wrapping_sub(word as u32);
    // The upper half of the circle is the past: another thread was a little later.
    let age = if age > u32::MAX / 2 { 0 } else { age };
    count * (-(age as f32) / MEMORY_MS).exp()
}
