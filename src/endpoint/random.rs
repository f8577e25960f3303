//! Chance for picks and pauses: a small generator per thread, so that no two cores share a line for it.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

thread_local! {
    // The standard library's hasher keys are the seed: random per process, different per thread.
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// A number in `0..n`, for picking: the bias of the multiplication is below n / 2^32.
pub(crate) fn below(n: u32) -> u32 {
    (((next() >> 32) * u64::from(n)) >> 32) as u32
}

/// A number in `0.0..1.0`.
pub(crate) fn fraction() -> f64 {
    // A double has 53 bits of mantissa.
    (next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
fn next() -> u64 {
    STATE.with(|state| {
        let seed = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(seed);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_range_and_reach_all_of_it() {
        let mut counts = [0_u32; 5];
        for _ in 0..10_000 {
            counts[below(5) as usize] += 1;
            assert!((0.0..1.0).contains(&fraction()));
        }
        assert!(counts.iter().all(|&count| count > 1_500), "{counts:?}");
    }
}
