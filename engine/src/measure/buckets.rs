//! The log-linear buckets of a latency histogram, and a quantile over their counts.
//!
//! An octave of microseconds is a page of 64 equal buckets, so a bucket is at most 1/64 (1.6 %)
//! of its values wide. Below 64 us a bucket is one microsecond.

/// Buckets of a page.
pub(super) const SUB: usize = 64;

/// Pages that cover 32 bits of microseconds: the first holds 0 to 63, each further an octave.
pub(super) const PAGES: usize = 27;

/// All buckets. The last one also holds what is too long for it.
pub(super) const BUCKETS: usize = PAGES * SUB;

/// The parts of a bucket in which a latency's place there is kept.
pub(super) const PLACES: f64 = 65_536.0;

/// Where a latency is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) page: usize,
    /// The bucket in the page.
    pub(super) sub: usize,
    /// The place in the bucket, in parts of [`PLACES`], rounded down.
    pub(super) place: u16,
}

/// The spot of a latency.
#[inline]
pub(super) fn locate(micros: u32) -> Spot {
    // The top seven bits from the leading one on: an octave's number and a place in it.
    let page = (u32::BITS - (micros | 63).leading_zeros() - 6) as usize;
    let shift = page.saturating_sub(1);
    let rest = u64::from(micros) & ((1 << shift) - 1);
    Spot {
        page,
        sub: (micros >> shift) as usize % SUB,
        place: ((rest << u16::BITS) >> shift) as u16,
    }
}

impl Spot {
    /// The same in an octave of `buckets` instead, a divisor of [`SUB`].
    pub(super) fn among(self, buckets: usize) -> Self {
        let merged = SUB / buckets;
        let place = ((self.sub % merged) << u16::BITS | usize::from(self.place)) / merged;
        Self {
            page: self.page,
            sub: self.sub / merged,
            place: place as u16,
        }
    }
}

/// Where a bucket begins, in microseconds.
pub(super) fn lower(bucket: usize) -> f64 {
    let (page, sub) = (bucket / SUB, bucket % SUB);
    let base = if page == 0 { sub } else { SUB + sub };
    base as f64 * width(bucket)
}

/// The microseconds of a place in a bucket, from 0 to 1.
pub(super) fn micros_at(bucket: usize, place: f64) -> u32 {
    let width = width(bucket);
    // Within the bucket, or it would be counted in the next one.
    let place = (place * width).round().min(width - 1.0);
    (lower(bucket) + place) as u32
}

/// How wide a bucket is, in microseconds.
fn width(bucket: usize) -> f64 {
    ((bucket / SUB).saturating_sub(1) as f64).exp2()
}

/// What the window holds: per bucket, the latencies that were seen to their end, and those that
/// were cut off there.
pub(super) struct Counts {
    pub(super) ended: [u64; BUCKETS],
    pub(super) cut: [u64; BUCKETS],
}

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            ended: [0; BUCKETS],
            cut: [0; BUCKETS],
        }
    }

    /// All, ended or cut.
    pub(super) fn total(&self) -> u64 {
        self.ended.iter().chain(&self.cut).sum()
    }

    fn is_empty(&self, bucket: usize) -> bool {
        self.ended[bucket] == 0 && self.cut[bucket] == 0
    }

    /// The latency in microseconds that the share `1 - q` of the latencies outruns; at least 1.
    ///
    /// `place` tells of the bucket that holds the quantile where its latencies lie on average, from
    /// 0 to 1 and rounded down to microseconds and [`PLACES`]; one that holds none is level.
    /// `None` without counts, or when it lies in the last bucket.
    pub(super) fn quantile(&self, q: f64, place: impl FnOnce(usize) -> f64) -> Option<u32> {
        let (bucket, share) = self.find(q)?;
        if bucket == BUCKETS - 1 {
            return None;
        }
        let mean = match self.ended[bucket] {
            0 => 0.5,
            // The microsecond and the place are rounded down, by half of one on average.
            _ => place(bucket) + 0.5 / width(bucket).min(PLACES),
        };
        // A falling bucket is judged as it is; a rising one is its mirror image.
        let place = if mean <= 0.5 {
            falling(share, mean, self.is_empty(bucket + 1))
        } else {
            let begins = bucket.checked_sub(1).is_none_or(|it| self.is_empty(it));
            1.0 - falling(1.0 - share, 1.0 - mean, begins)
        };
        Some(((lower(bucket) + place * width(bucket)).ceil() as u32).max(1))
    }

    /// The bucket that holds the quantile, and the share of its latencies that lie below it.
    ///
    /// By Kaplan and Meier's estimate for censored data ("Nonparametric Estimation from
    /// Incomplete Observations", 1958), in its form by Efron: what was cut off weighs on those
    /// that ran longer, in equal parts. Taken as if it had ended where it was cut, a call that a
    /// hedge beat counts below any later and higher threshold: with one slow call in ten, a p95
    /// that once fell to the fast ones stays there for minutes and hedges twice too much.
    fn find(&self, q: f64) -> Option<(usize, f64)> {
        let mut running = self.total();
        let target = q.clamp(0.0, 1.0) * running as f64;
        // One as long as nothing is cut, so that plain counts are summed exactly.
        let mut weight = 1.0;
        let mut below = 0.0;
        let mut longest = None;
        for bucket in 0..BUCKETS {
            if self.is_empty(bucket) {
                continue;
            }
            longest = Some(bucket);
            let here = self.ended[bucket] as f64 * weight;
            if here > 0.0 && below + here >= target {
                return Some((bucket, (target - below) / here));
            }
            below += here;
            let longer = running - self.ended[bucket] - self.cut[bucket];
            if self.cut[bucket] > 0 && longer > 0 {
                weight *= (longer + self.cut[bucket]) as f64 / longer as f64;
            }
            running = longer;
        }
        // It lies beyond all that was seen: at least at the end of the longest.
        longest.map(|bucket| (bucket, 1.0))
    }
}

/// Where in a bucket, from 0 to 1, the `share` of its latencies lies below, if their mean place
/// is `mean`, at most 0.5. `ends`: there are none in the next bucket.
///
/// A bucket can hold more latencies than the whole tail above the quantile, so where in it the
/// threshold lies decides the hedge rate. A bucket that is taken as evenly filled hedges a third
/// too little in a tail (normal, standard deviation 1 %, q = 0.95), and nothing where the
/// distribution ends in it.
fn falling(share: f64, mean: f64, ends: bool) -> f64 {
    if ends {
        // Evenly, up to the end that the mean tells.
        return share * 2.0 * mean;
    }
    if mean < 1.0 / 3.0 {
        // No straight line over the whole bucket has this mean: a triangle has.
        return 3.0 * mean * (1.0 - (1.0 - share).max(0.0).sqrt());
    }
    // A straight line with mean height 1: its height at the left edge, then the x of
    // `start * x + (1 - start) * x^2 = share`, without a division by zero when it is level.
    let start = 4.0 - 6.0 * mean;
    let root = (start * start + 4.0 * (1.0 - start) * share)
        .max(0.0)
        .sqrt();
    (2.0 * share / (start + root)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_range() {
        let mut end = 0.0;
        for bucket in 0..BUCKETS {
            assert_eq!(lower(bucket), end, "bucket {bucket}");
            assert!(width(bucket) <= (lower(bucket) / 64.0).max(1.0));
            end += width(bucket);
        }
        assert_eq!(end, f64::from(u32::MAX) + 1.0);
    }

    #[test]
    fn a_latency_lies_in_its_bucket() {
        let edges = (0..32).flat_map(|bit| {
            let edge = 1u32 << bit;
            [edge - 1, edge, edge + 1, edge + edge / 3]
        });
        for micros in edges.chain([0, u32::MAX - 1, u32::MAX]) {
            let Spot { page, sub, place } = locate(micros);
            let bucket = page * SUB + sub;
            let value = f64::from(micros);
            assert!(lower(bucket) <= value, "{micros}");
            assert!(value < lower(bucket) + width(bucket), "{micros}");
            let place = f64::from(place) / PLACES * width(bucket);
            let step = (width(bucket) / PLACES).max(1.0);
            assert!((lower(bucket) + place - value).abs() < step, "{micros}");
        }
    }

    #[test]
    fn a_place_in_a_bucket_is_found_again() {
        for bucket in 0..BUCKETS {
            for place in [0.0, 0.3, 0.5, 0.999_99] {
                let spot = locate(micros_at(bucket, place));
                assert_eq!(spot.page * SUB + spot.sub, bucket);
                let there = f64::from(spot.place) / PLACES;
                // Both a microsecond and a place are a step.
                let step = (1.0 / width(bucket)).max(1.0 / PLACES);
                assert!((there - place).abs() <= step, "{bucket}: {place}");
            }
        }
    }

    #[test]
    fn the_place_follows_the_mean() {
        for share in [0.0, 0.25, 0.5, 1.0] {
            for ends in [true, false] {
                assert_eq!(falling(share, 0.5, ends), share, "level");
            }
            assert_eq!(falling(share, 0.25, true), share / 2.0, "the lower half");
            assert!(falling(share, 0.4, false) <= share);
        }
        assert_eq!(falling(0.75, 1.0 / 3.0, false), 0.5, "a line down to 0");
        assert_eq!(falling(0.75, 1.0 / 6.0, false), 0.25, "a triangle");
        assert_eq!(falling(1.0, 0.4, false), 1.0);
    }

    #[test]
    fn the_place_is_that_of_the_latency() {
        // A bucket of 256 us begins at 19,968.
        for (micros, place) in [(19_968, 0), (20_000, 32 << 8), (20_223, 255 << 8)] {
            assert_eq!(locate(micros).place, place);
        }
    }
}
