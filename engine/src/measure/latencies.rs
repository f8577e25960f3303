//! A window's latencies as they go from one process to the next.

/// More calls than this in a window say no more: they are scaled down when they are taken, and a
/// window that claims more was not taken by [`Ring`](super::Ring).
const MOST_CALLS: u64 = 1 << 24;

/// More entries than a ring has buckets are likewise none of its own.
const MOST_ENTRIES: usize = 4_096;

/// The latencies of a window, for an estimator in another process to go on from: how many calls took
/// how long, and how many were cut off when.
///
/// It comes from a file, which may be cut, damaged or made by hand. What is out of bounds is not
/// taken ([`Latencies::is_sound`]): at most 4,096 entries, of 16.7 million calls in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Latencies {
    /// Microseconds, and the calls that took so long.
    ended: Vec<(u32, u32)>,
    /// Microseconds, and the calls that were cut off after that time.
    #[cfg_attr(feature = "serde", serde(default))]
    cut: Vec<(u32, u32)>,
}

impl Latencies {
    /// From pairs of microseconds and a count, of calls that ended and of those that were cut off.
    pub fn new(ended: Vec<(u32, u32)>, cut: Vec<(u32, u32)>) -> Self {
        Self { ended, cut }
    }

    /// From counts of any size, which are scaled to the bound where they are beyond it.
    pub(super) fn of(ended: Vec<(u32, u64)>, cut: Vec<(u32, u64)>) -> Self {
        let all = ended.iter().chain(&cut);
        let total: u64 = all.map(|(_, count)| count).sum();
        // Rounded up, so that none disappears; that is at most one for each entry.
        let divisor = total / (MOST_CALLS - MOST_ENTRIES as u64) + 1;
        let scaled = |counts: Vec<(u32, u64)>| {
            let scaled = |count: u64| u32::try_from(count.div_ceil(divisor)).unwrap_or(u32::MAX);
            let counts = counts.into_iter();
            counts
                .map(|(micros, count)| (micros, scaled(count)))
                .collect()
        };
        Self {
            ended: scaled(ended),
            cut: scaled(cut),
        }
    }

    /// Microseconds and count of what ended.
    pub fn ended(&self) -> &[(u32, u32)] {
        &self.ended
    }

    /// Microseconds and count of what was cut off.
    pub fn cut(&self) -> &[(u32, u32)] {
        &self.cut
    }

    /// How many calls it is made of.
    pub fn samples(&self) -> u64 {
        let all = self.ended.iter().chain(&self.cut);
        all.map(|(_, count)| u64::from(*count)).sum()
    }

    /// Whether it is within its bounds: an estimator takes nothing of one that is not.
    pub fn is_sound(&self) -> bool {
        self.ended.len().saturating_add(self.cut.len()) <= MOST_ENTRIES
            && self.samples() <= MOST_CALLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is taken is always sound, and keeps its proportions.
    #[test]
    fn counts_beyond_the_bound_are_scaled() {
        let many = (0..2_000).map(|micros| (micros, u64::from(micros) << 20));
        let taken = Latencies::of(many.collect(), vec![(7, 1)]);
        assert!(taken.is_sound());
        assert!(taken.samples() > MOST_CALLS / 2);
        assert_eq!(taken.cut(), [(7, 1)], "the rarest are still there");
        let share = f64::from(taken.ended()[1_000].1) / f64::from(taken.ended()[500].1);
        assert!((share - 2.0).abs() < 0.01, "{share}");
        let few = Latencies::of(vec![(5, 3)], Vec::new());
        assert_eq!(few, Latencies::new(vec![(5, 3)], Vec::new()));
    }

    #[test]
    fn what_is_out_of_bounds_is_not_sound() {
        let entries = |count| (0..count).map(|micros| (micros, 1)).collect();
        assert!(Latencies::new(entries(4_000), entries(96)).is_sound());
        assert!(!Latencies::new(entries(4_000), entries(97)).is_sound());
        let heavy = |count| Latencies::new(vec![(1, count)], vec![(1, 1)]);
        assert!(heavy((1 << 24) - 1).is_sound());
        assert!(!heavy(1 << 24).is_sound());
        assert!(!heavy(u32::MAX).is_sound());
    }
}
