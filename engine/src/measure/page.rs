//! The counters of one octave of latencies, for each sub-window.

use std::{
    array,
    sync::{
        OnceLock,
        atomic::{AtomicU16, AtomicU32, Ordering},
    },
};

use super::buckets::PLACES;

/// A count at which the octave gets wider counters, long before a narrow one would overflow: the
/// threads that have not seen the wider ones by then can add one each.
const FULL: u16 = 1 << 15;

/// Counts of a bucket in a sub-window after which one latency in [`EACH`] moves the mean, for all
/// of them: what is left of a record is then its count, and threads disturb each other less.
const OFTEN: u32 = 128;

/// A power of two.
const EACH: u32 = 8;

/// `N` buckets over `SLOTS` sub-windows.
///
/// Counts are exact: 16 bits each, and 32 more for the octave in which one has got full. Where the
/// latencies lie in their bucket is one mean for all sub-windows.
#[derive(Debug)]
pub(super) struct Page<const N: usize, const SLOTS: usize> {
    buckets: [Bucket<SLOTS>; N],
    /// What is counted since a narrow count was full.
    wide: OnceLock<Box<[[AtomicU32; SLOTS]; N]>>,
}

/// All that a record touches, side by side.
#[derive(Debug)]
struct Bucket<const SLOTS: usize> {
    counts: [AtomicU16; SLOTS],
    /// The mean place of its latencies, in parts of [`PLACES`]. Means nothing while the counts are 0.
    place: AtomicU16,
}

impl<const N: usize, const SLOTS: usize> Page<N, SLOTS> {
    pub(super) fn new() -> Self {
        Self {
            buckets: array::from_fn(|_| Bucket {
                counts: [const { AtomicU16::new(0) }; SLOTS],
                place: AtomicU16::new(0),
            }),
            wide: OnceLock::new(),
        }
    }

    /// Counts a latency at `place` in `bucket`.
    #[inline]
    pub(super) fn add(&self, bucket: usize, slot: usize, place: u16) {
        // Relaxed, here and below: each count is exact, and a sample more or less changes nothing.
        let before = match self.wide.get() {
            None => {
                let before = self.buckets[bucket].counts[slot].fetch_add(1, Ordering::Relaxed);
                if before >= FULL {
                    self.widen();
                }
                before.into()
            }
            Some(wide) => wide[bucket][slot].fetch_add(1, Ordering::Relaxed),
        };
        let stands_for = match before {
            0..OFTEN => 1,
            // Not every eighth, which may be of a kind where calls take turns.
            _ if scatter(before) < u32::MAX / EACH => EACH,
            _ => return,
        };
        let counts = (0..SLOTS).map(|slot| self.count(bucket, slot));
        self.buckets[bucket].moved(place, stands_for, counts.sum());
    }

    /// Counts so many latencies at `place` in `bucket` at once.
    pub(super) fn add_many(&self, bucket: usize, slot: usize, place: u16, count: u32) {
        let narrow = &self.buckets[bucket].counts[slot];
        let fits = u16::try_from(count).ok().filter(|&count| {
            let before = narrow.load(Ordering::Relaxed);
            // Another thread may count one between this and the sum, for which there is room.
            self.wide.get().is_none() && before.saturating_add(count) < FULL
        });
        match fits {
            Some(count) => {
                narrow.fetch_add(count, Ordering::Relaxed);
            }
            None => {
                self.widen()[bucket][slot].fetch_add(count, Ordering::Relaxed);
            }
        }
        let counts = (0..SLOTS).map(|slot| self.count(bucket, slot));
        self.buckets[bucket].moved(place, count, counts.sum());
    }

    #[cold]
    fn widen(&self) -> &[[AtomicU32; SLOTS]; N] {
        self.wide
            .get_or_init(|| Box::new(array::from_fn(|_| [const { AtomicU32::new(0) }; SLOTS])))
    }

    /// What `slot` has counted in `bucket`.
    #[inline]
    pub(super) fn count(&self, bucket: usize, slot: usize) -> u64 {
        let narrow = self.buckets[bucket].counts[slot].load(Ordering::Relaxed);
        let wide = self.wide.get();
        let wide = wide.map_or(0, |wide| wide[bucket][slot].load(Ordering::Relaxed));
        u64::from(narrow) + u64::from(wide)
    }

    /// Where in `bucket` its latencies lie on average, from 0 to 1 and rounded down.
    pub(super) fn place(&self, bucket: usize) -> f64 {
        let place = self.buckets[bucket].place.load(Ordering::Relaxed);
        f64::from(place) / PLACES
    }

    pub(super) fn empty(&self, slot: usize) {
        for bucket in &self.buckets {
            bucket.counts[slot].store(0, Ordering::Relaxed);
        }
        for counts in self.wide.get().into_iter().flat_map(|wide| wide.iter()) {
            counts[slot].store(0, Ordering::Relaxed);
        }
    }

    /// Bytes beyond its own.
    pub(super) fn beyond(&self) -> usize {
        self.wide.get().map_or(0, |wide| size_of_val(&**wide))
    }
}

impl<const SLOTS: usize> Bucket<SLOTS> {
    /// Moves the mean by the latest of `n` latencies, which stands for so many of them: it is exact
    /// while none leaves, and forgets them within a window or so when they do.
    ///
    /// Two threads that do this at once lose one of the two steps, of which a mean takes no harm.
    #[inline]
    fn moved(&self, place: u16, stands_for: u32, n: u64) {
        let mean = self.place.load(Ordering::Relaxed);
        let weight = stands_for as f32 / n.max(1) as f32;
        let step = (f32::from(place) - f32::from(mean)) * weight.min(1.0);
        // Rounded up as often as its fraction says, or a mean over thousands would stand still. Twice,
        // to have nothing to do with who is asked.
        let dither = scatter(scatter(n as u32)) >> u16::BITS;
        let step = ((step * PLACES as f32) as i64 + i64::from(dither)) >> u16::BITS;
        let moved = (i64::from(mean) + step).clamp(0, u16::MAX.into()) as u16;
        self.place.store(moved, Ordering::Relaxed);
    }
}

/// Spreads numbers that follow each other evenly over all: multiples of the golden ratio.
fn scatter(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn counts_go_on_where_sixteen_bits_end() {
        let page = Page::<4, 2>::new();
        for _ in 0..200_000 {
            page.add(1, 0, 7);
        }
        page.add(2, 0, 7);
        page.add(1, 1, 7);
        assert_eq!(page.count(1, 0), 200_000);
        assert_eq!(page.count(2, 0), 1);
        assert_eq!(page.count(1, 1), 1);
        assert_eq!(page.beyond(), 4 * 2 * 4);
        page.empty(0);
        assert_eq!(page.count(1, 0) + page.count(2, 0), 0);
        assert_eq!(page.count(1, 1), 1);
    }

    /// At once it is the same as one after the other.
    #[test]
    fn many_are_counted_at_once() {
        for count in [1, 1_000, 32_767, 32_768, 100_000] {
            let page = Page::<2, 2>::new();
            page.add_many(1, 0, 40_000, count);
            assert_eq!(page.count(1, 0), u64::from(count));
            assert_eq!(page.place(1) * PLACES, 40_000.0);
            assert_eq!(page.beyond() > 0, count >= 32_768, "{count}");
            page.add_many(1, 0, 20_000, count);
            page.add(1, 1, 0);
            assert_eq!(page.count(1, 0), 2 * u64::from(count));
            assert_eq!(page.count(1, 1), 1);
            let mean = page.place(1) * PLACES;
            assert!(count == 1 || (mean - 30_000.0).abs() < 50.0, "{mean}");
        }
    }

    #[test]
    fn threads_lose_no_count_where_it_gets_wider() {
        let page = Page::<1, 1>::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| page.add(0, 0, 0)));
            }
        });
        assert_eq!(page.count(0, 0), 160_000);
    }

    #[test]
    fn the_mean_is_that_of_the_places() {
        let page = Page::<1, 1>::new();
        let mean = |places: &mut dyn Iterator<Item = u16>| {
            page.empty(0);
            places.for_each(|place| page.add(0, 0, place));
            page.place(0) * PLACES
        };
        assert_eq!(mean(&mut [40_000].into_iter()), 40_000.0);
        assert_eq!(mean(&mut [u16::MAX].into_iter()), 65_535.0);
        assert_eq!(mean(&mut [0].into_iter()), 0.0);
        let two = mean(&mut [10_000, 20_000].into_iter());
        assert!((two - 15_000.0).abs() <= 1.0, "{two}");
        // Steps of less than the smallest unit.
        let many = mean(&mut (0..100_000).map(|n| if n % 4 == 0 { 60_000 } else { 20_000 }));
        assert!((many - 30_000.0).abs() < 100.0, "{many}");
        let sorted = mean(&mut (0..50_000));
        assert!((sorted - 25_000.0).abs() < 100.0, "{sorted}");
    }

    /// In a window that stands, old latencies leave as new ones come.
    #[test]
    fn the_mean_forgets_what_has_left() {
        let page = Page::<1, 8>::new();
        let fill = |windows: usize, place: u16| {
            for slot in 0..windows * 8 {
                page.empty(slot % 8);
                (0..1_000).for_each(|_| page.add(0, slot % 8, place));
            }
            page.place(0) * PLACES
        };
        assert!((fill(1, 10_000) - 10_000.0).abs() < 10.0);
        let after = fill(2, 60_000);
        assert!((52_000.0..=60_000.0).contains(&after), "{after}");
    }
}
