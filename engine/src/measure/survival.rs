//! The share of a method's calls that outlasts each time.

use std::time::Duration;

use super::{
    buckets::{self, BUCKETS, Counts, PLACES, SUB, Spot},
    micros,
};

/// The share of originals that outlasts each time, by Kaplan and Meier's estimate: originals that
/// a hedge beat were cut off, and say only that they took at least that long.
///
/// It is resolved as the window that it was taken from ([`Ring`](super::Ring): buckets of 1.6 %),
/// and even within a bucket.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::measure::Survival;
///
/// let ms = Duration::from_millis;
/// // Half of the calls took 10 ms. Of those that took longer a hedge cut half off at 20 ms.
/// let survival = Survival::from_samples([
///     (ms(10), false),
///     (ms(10), false),
///     (ms(20), true),
///     (ms(90), false),
/// ]);
/// assert_eq!(survival.share(ms(30)), 0.5);
/// assert_eq!(survival.share(ms(100)), 0.0);
/// // But no caller waited longer than that for half of them.
/// assert!(survival.observed(0.3).unwrap() < ms(21));
/// ```
#[derive(Clone, Debug)]
pub struct Survival {
    samples: f64,
    /// The bucket of the first share.
    first: usize,
    /// The share that outlasts the beginning of each bucket from `first` on, and at last the end
    /// of the last.
    shares: Vec<f64>,
    /// The same with all that was cut off taken as ended there.
    observed: Vec<f64>,
}

impl Survival {
    /// From latencies, and whether each was cut off at its time.
    pub fn from_samples(samples: impl IntoIterator<Item = (Duration, bool)>) -> Self {
        let mut counts = Counts::new();
        for (took, is_cut) in samples {
            let bucket = bucket(micros(took));
            match is_cut {
                false => counts.ended[bucket] += 1,
                true => counts.cut[bucket] += 1,
            }
        }
        Self::of(&counts)
    }

    pub(super) fn of(counts: &Counts) -> Self {
        Self::new(|bucket| (counts.ended[bucket] as f64, counts.cut[bucket] as f64))
    }

    /// From how many ended and how many were cut off in each of [`BUCKETS`].
    pub(crate) fn new(counts: impl Fn(usize) -> (f64, f64)) -> Self {
        let is_full = |&bucket: &usize| counts(bucket) != (0.0, 0.0);
        let first = (0..BUCKETS).find(is_full).unwrap_or(0);
        let end = (first..BUCKETS).rfind(is_full).map_or(first, |it| it + 1);
        let all: f64 = (first..end)
            .map(|bucket| {
                let (ended, cut) = counts(bucket);
                ended + cut
            })
            .sum();
        let mut shares = Vec::with_capacity(end - first + 1);
        let mut observed = Vec::with_capacity(end - first + 1);
        let (mut share, mut running) = (1.0, all);
        shares.push(share);
        observed.push(1.0);
        for bucket in first..end {
            let (ended, cut) = counts(bucket);
            if ended > 0.0 {
                // Those cut off in the bucket ran as long as those that ended there.
                share *= ((running - ended) / running).max(0.0);
            }
            running = (running - ended - cut).max(0.0);
            shares.push(share);
            observed.push(running / all);
        }
        Self {
            samples: all,
            first,
            shares,
            observed,
        }
    }

    /// How many calls it is made of, ended or cut off.
    pub fn samples(&self) -> u64 {
        self.samples.round() as u64
    }

    /// The share of originals that takes longer than `time`. It need not fall to 0: what was cut
    /// off last may take any time.
    pub fn share(&self, time: Duration) -> f64 {
        self.outlasting(micros(time))
    }

    /// The time that the share `tail` of originals outlasts; `None` without samples, or if it lies
    /// beyond the longest.
    pub fn time(&self, tail: f64) -> Option<Duration> {
        self.find(&self.shares, tail)
    }

    /// The same of whole calls, as their callers saw it: an original that was cut off had run for as
    /// long as its call.
    pub fn observed(&self, tail: f64) -> Option<Duration> {
        self.find(&self.observed, tail)
    }

    /// [`Survival::share`] of microseconds.
    #[inline]
    pub(crate) fn outlasting(&self, micros: u32) -> f64 {
        let Spot { page, sub, place } = buckets::locate(micros);
        let Some(index) = (page * SUB + sub).checked_sub(self.first) else {
            return 1.0;
        };
        let Some(&here) = self.shares.get(index) else {
            return self.shares.last().copied().unwrap_or(1.0);
        };
        let next = self.shares.get(index + 1).copied().unwrap_or(here);
        here + (next - here) * (f64::from(place) / PLACES)
    }

    /// The weighted mean of two. Beyond the longest that this one saw it goes on as the other does from
    /// there: what was cut off early says nothing of later.
    pub(crate) fn mean(&self, weight: f64, other: &Self, other_weight: f64) -> Self {
        let (first, end) = match (self.is_empty(), other.is_empty()) {
            (_, true) => (self.first, self.end()),
            (true, _) => (other.first, other.end()),
            _ => (self.first.min(other.first), self.end().max(other.end())),
        };
        let all = weight + other_weight;
        let there = other.at(self.end());
        let own = |bucket| match self.at(bucket) {
            share if bucket > self.end() && there > 0.0 => share * other.at(bucket) / there,
            share => share,
        };
        let shares = (first..=end)
            .map(|bucket| (weight * own(bucket) + other_weight * other.at(bucket)) / all)
            .collect();
        Self {
            samples: self.samples + other.samples,
            first,
            shares,
            observed: Vec::new(),
        }
    }

    /// Where its last bucket ends.
    fn end(&self) -> usize {
        self.first + self.shares.len() - 1
    }

    fn is_empty(&self) -> bool {
        self.shares.len() < 2
    }

    /// The share that outlasts the beginning of a bucket.
    fn at(&self, bucket: usize) -> f64 {
        match bucket.checked_sub(self.first) {
            None => 1.0,
            Some(index) => self.shares[index.min(self.shares.len() - 1)],
        }
    }

    fn find(&self, shares: &[f64], tail: f64) -> Option<Duration> {
        let index = shares.partition_point(|&share| share > tail);
        if index == shares.len() {
            return None;
        }
        let end = buckets::lower(self.first + index);
        let Some(before) = index.checked_sub(1) else {
            return Some(Duration::from_micros(end as u64));
        };
        let begin = buckets::lower(self.first + before);
        let place = (shares[before] - tail) / (shares[before] - shares[index]);
        let micros = begin + place * (end - begin);
        Some(Duration::from_micros(micros.ceil() as u64))
    }
}

/// The bucket of a time, among [`BUCKETS`].
pub(crate) fn bucket(micros: u32) -> usize {
    let Spot { page, sub, .. } = buckets::locate(micros);
    page * SUB + sub
}

/// Buckets of an octave.
pub(crate) const OCTAVE: usize = SUB;

/// All buckets that a [`Survival`] is made of.
pub(crate) const ALL: usize = BUCKETS;

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the hedges ended at once, the others were cut off then: those are taken for originals.
    #[test]
    fn beyond_what_it_saw_a_survival_goes_on_as_the_other() {
        let ms = Duration::from_millis;
        let originals = Survival::from_samples((0..100).map(|call| (ms(20 + call), false)));
        let hedges = Survival::from_samples((0..40).map(|call| (ms(1), call % 2 == 0)));
        assert_eq!(hedges.share(ms(70)), 0.5);
        let mean = hedges.mean(40.0, &originals, 0.0);
        assert!((mean.share(ms(10)) - 0.5).abs() < 0.01);
        assert!(
            (mean.share(ms(70)) - 0.25).abs() < 0.01,
            "{}",
            mean.share(ms(70))
        );
    }
}
