//! Whose calls an endpoint had no place for, and until when it said so.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::criticality::Criticality;

/// The bits of the criticality.
const BITS: u32 = 2;

/// The last refusal of one of the endpoint's lanes: the millisecond of its end above, the
/// criticality of its call in the lowest two bits. One word, beside what else a pick reads.
#[derive(Debug, Default)]
pub(super) struct Sheds(AtomicU64);

impl Sheds {
    /// A call of this criticality was told to come again at `until`. A refusal of less important
    /// calls does not make those of more important ones be forgotten.
    pub(super) fn note(&self, now: Duration, criticality: Criticality, until: Duration) {
        let word = millis(until) << BITS | level(criticality);
        let _kept = self
            .0
            // Relaxed: a hint to the picker, which guards nothing.
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
                let (ends, least) = (known >> BITS, known & ((1 << BITS) - 1));
                let more_important = ends > millis(now) && least > level(criticality);
                (!more_important).then_some(word)
            });
    }

    /// Whether a call of this criticality would most likely be shed too: an equal or a more
    /// important one was.
    #[inline]
    pub(super) fn apply(&self, now: Duration, criticality: Criticality) -> bool {
        match self.0.load(Ordering::Relaxed) {
            0 => false,
            word => covers(word, now, criticality),
        }
    }
}

/// Apart: most endpoints have shed nothing since they are known.
#[cold]
fn covers(word: u64, now: Duration, criticality: Criticality) -> bool {
    word >> BITS > millis(now) && word & ((1 << BITS) - 1) >= level(criticality)
}

fn level(criticality: Criticality) -> u64 {
    match criticality {
        Criticality::Sheddable => 0,
        Criticality::Default => 1,
        Criticality::Critical => 2,
    }
}

/// Of a channel that lives for less than a hundred million years.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX) & (u64::MAX >> BITS)
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, Default, Sheddable};

    use super::*;

    #[test]
    fn for_whom_and_how_long() {
        let ms = Duration::from_millis;
        let sheds = Sheds::default();
        let now = |at| [Sheddable, Default, Critical].map(|it| sheds.apply(ms(at), it));
        assert_eq!(now(0), [false; 3]);
        sheds.note(ms(0), Sheddable, ms(100));
        assert_eq!(now(99), [true, false, false]);
        assert_eq!(now(100), [false; 3]);
        sheds.note(ms(100), Critical, ms(300));
        assert_eq!(now(200), [true; 3]);
        sheds.note(ms(200), Sheddable, ms(900));
        assert_eq!(now(299), [true; 3]);
        assert_eq!(now(300), [false; 3]);
        sheds.note(ms(300), Default, ms(400));
        assert_eq!(now(399), [true, true, false]);
    }
}
