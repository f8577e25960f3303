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

/// The page of a latency, and its bucket there.
#[inline]
pub(super) fn locate(micros: u32) -> (usize, usize) {
    // The top seven bits from the leading one on: an octave's number and a place in it.
    let page = (u32::BITS - (micros | 63).leading_zeros() - 6) as usize;
    let sub = (micros >> page.saturating_sub(1)) as usize % SUB;
    (page, sub)
}

/// Where a bucket begins, in microseconds.
fn lower(bucket: usize) -> f64 {
    let (page, sub) = (bucket / SUB, bucket % SUB);
    let base = if page == 0 { sub } else { SUB + sub };
    base as f64 * width(bucket)
}

/// How wide a bucket is, in microseconds.
fn width(bucket: usize) -> f64 {
    ((bucket / SUB).saturating_sub(1) as f64).exp2()
}

/// The latency in microseconds that the share `1 - q` of the counted ones outruns; at least 1.
///
/// `None` without counts, or when it lies in the last bucket.
pub(super) fn quantile(counts: &[u64; BUCKETS], q: f64) -> Option<u32> {
    let total: u64 = counts.iter().sum();
    let target = q.clamp(0.0, 1.0) * total as f64;
    let mut below = 0;
    let bucket = counts.iter().position(|&count| {
        below += count;
        count > 0 && below as f64 >= target
    })?;
    if bucket == BUCKETS - 1 {
        return None;
    }
    let inside = target - (below - counts[bucket]) as f64;
    let share = inside / counts[bucket] as f64;
    let value = lower(bucket) + place(counts, bucket, share) * width(bucket);
    Some((value.ceil() as u32).max(1))
}

/// Where in a bucket, from 0 to 1, the `share` of its samples lies below.
///
/// A bucket can hold more samples than the whole tail above the quantile, so where in it the
/// threshold lies decides the hedge rate. The density is taken as a straight line through the
/// bucket, with the slope of its neighbours: level for a uniform distribution, falling in a
/// tail. A level line alone hedges a third too little on a normal distribution with a standard
/// deviation of 1 %.
fn place(counts: &[u64; BUCKETS], bucket: usize, share: f64) -> f64 {
    let density = |bucket: usize| counts[bucket] as f64 / width(bucket);
    let here = density(bucket);
    let left = here + bucket.checked_sub(1).map_or(here, density);
    let right = here + density(bucket + 1);
    // The line's height at the left edge, where the mean height is 1.
    let start = 2.0 * left / (left + right);
    // `share = start * x + (1 - start) * x^2`, solved for x without a division by zero when the
    // line is level. The root is of `(2 - start)^2` or more.
    let root = (start * start + 4.0 * (1.0 - start) * share)
        .max(0.0)
        .sqrt();
    (2.0 * share / (start + root)).clamp(0.0, 1.0)
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
            let (page, sub) = locate(micros);
            let bucket = page * SUB + sub;
            let value = f64::from(micros);
            assert!(lower(bucket) <= value, "{micros}");
            assert!(value < lower(bucket) + width(bucket), "{micros}");
        }
    }

    #[test]
    fn the_place_follows_the_slope() {
        let mut counts = [0; BUCKETS];
        counts[700] = 100;
        assert_eq!(place(&counts, 700, 0.25), 0.25, "nothing beside it");
        assert_eq!(place(&counts, 700, 1.0), 1.0);
        counts[699] = 100;
        counts[701] = 0;
        assert!(place(&counts, 700, 0.5) < 0.5, "falling");
        counts[699] = 0;
        counts[701] = 100;
        assert!(place(&counts, 700, 0.5) > 0.5, "rising");
        assert_eq!(place(&counts, 700, 0.0), 0.0);
        assert!((place(&counts, 700, 1.0) - 1.0).abs() < 1e-12);
    }
}
