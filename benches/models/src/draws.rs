//! Common random numbers: what is drawn for an attempt depends on the seed, the call, the attempt
//! and the purpose alone, so that every policy meets the same luck.

use fastrand::Rng;

/// The source of all that a world draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    seed: u64,
}

/// What is drawn. Each purpose has draws of its own, so that one that draws more often than
/// another policy's does not shift the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The time from the call before to this one.
    Arrival,
    /// What an attempt meets at its replica.
    Work,
    /// Where an attempt goes.
    Pick,
    /// How long a retry waits.
    Backoff,
}

impl Draws {
    /// The draws of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The draws of one attempt for one purpose: always the same.
    pub fn of(self, purpose: Purpose, call: u64, attempt: u32) -> Rng {
        let parts = [purpose as u64, call, u64::from(attempt)];
        Rng::with_seed(parts.into_iter().fold(mix(self.seed), |sum, part| {
            mix(sum ^ part.wrapping_mul(GOLDEN))
        }))
    }
}

/// 2^64 over the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea and Flood, 2014): neighbouring numbers come out unlike each other.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(GOLDEN);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
