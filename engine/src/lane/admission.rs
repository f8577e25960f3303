//! A lane: a limit, and who is within it.

use std::time::Duration;

use super::{LanePolicy, LaneSample, LimitAlgorithm, Permit, permit::Place, pressure::Pressure};
use crate::{
    policy::PolicyError,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// A shed call comes again after this at the soonest: less would be a busy loop over a network.
pub(super) const SOONEST: Duration = Duration::from_millis(100);

/// Twice this at the latest: beyond, a caller would rather go elsewhere.
const LATEST: Duration = Duration::from_secs(5);

/// The weight of a call in the time that a place is held, as in TCP's round trip (RFC 6298).
const HELD_SHARE: u64 = 8;

/// A share of concurrency with a limit of its own. A clone is the same lane.
///
/// Admission is one compare-exchange, without a lock and without waiting: a call is within the
/// limit, or it is shed. Only an end takes a lock, for the few instructions of the algorithm.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    minimum: u32,
    maximum: u32,
    /// The limit in the upper half, the calls in flight in the lower: one word, so that none is
    /// admitted over a limit that shrinks meanwhile.
    places: AtomicU64,
    /// Tenants that use the lane, as [`Tenants`](super::Tenants) has counted them.
    tenants: AtomicU32,
    admitted: AtomicU64,
    shed: AtomicU64,
    /// How long a place is held, in nanoseconds; zero before the first end.
    held: AtomicU64,
    pressure: Pressure,
    algorithm: Mutex<Box<dyn LimitAlgorithm>>,
}

/// A lane's numbers at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneReading {
    /// The most calls in flight.
    pub limit: u32,
    /// Calls in flight, hedges included.
    pub in_flight: u32,
    /// Calls that were let in, since the lane was made. Hedges are not counted.
    pub admitted: u64,
    /// Calls that were shed.
    pub shed: u64,
    /// How long a call holds its place, averaged over the last ones; what ends early
    /// without an answer does not count. `None` before the first that does.
    pub held: Option<Duration>,
}

impl Lane {
    /// A lane with the policy's first limit.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(policy: &LanePolicy) -> Result<Self, PolicyError> {
        policy.validate()?;
        let algorithm = policy.start();
        let limit = algorithm.limit().clamp(policy.minimum, policy.maximum);
        Ok(Self(Arc::new(Shared {
            minimum: policy.minimum,
            maximum: policy.maximum,
            places: AtomicU64::new(u64::from(limit) << 32),
            tenants: AtomicU32::new(0),
            admitted: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            held: AtomicU64::new(0),
            pressure: Pressure::default(),
            algorithm: Mutex::new(algorithm),
        })))
    }

    /// A place for a call, if there is one. The permit gives it back when it is dropped.
    pub fn try_admit(&self, now: Duration) -> Option<Permit> {
        match self.take() {
            Some(in_flight) => Some(self.admitted(now, in_flight, Place::new(self.clone()))),
            None => {
                self.count_shed(now);
                None
            }
        }
    }

    /// The most calls in flight.
    pub fn limit(&self) -> u32 {
        self.places().0
    }

    /// The calls in flight, hedges included. It may be over a limit that has shrunk.
    pub fn in_flight(&self) -> u32 {
        self.places().1
    }

    /// The numbers of the lane now.
    pub fn reading(&self) -> LaneReading {
        let (limit, in_flight) = self.places();
        LaneReading {
            limit,
            in_flight,
            admitted: self.0.admitted.load(Ordering::Relaxed),
            shed: self.0.shed.load(Ordering::Relaxed),
            held: self.held(),
        }
    }

    /// When a call that is shed now should come again: the time that a place is held, times how
    /// far the lane is over its limit, and up to twice that by `jitter` in [0, 1), so that those
    /// who are shed together do not come back together. 100 ms to 10 s.
    pub fn retry_after(&self, now: Duration, jitter: f64) -> Duration {
        let held = self.held().unwrap_or_default().as_secs_f64();
        let meanwhile = self.0.pressure.rate(now) * held;
        let over = 1.0 + meanwhile / f64::from(self.limit());
        let base = Duration::try_from_secs_f64(held * over).unwrap_or(LATEST);
        // What is no number is no jitter.
        let jitter = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
        base.clamp(SOONEST, LATEST).mul_f64(1.0 + jitter)
    }

    /// Goes on from a limit that was learnt before; within the lane's bounds.
    pub fn resume(&self, limit: u32) {
        let mut algorithm = self.0.algorithm.lock();
        algorithm.resume(limit);
        self.set_limit(algorithm.limit());
    }

    /// The part of the limit that a tenant has; at least one. What is left when all have the same
    /// goes to those whose `turn`, from 1, it is, one place for each; 0 has no turn.
    pub(super) fn share(&self, turn: u32) -> u32 {
        let tenants = self.0.tenants.load(Ordering::Relaxed).max(1);
        let limit = self.limit();
        match limit / tenants {
            0 => 1,
            share => share + u32::from((1..=limit % tenants).contains(&turn)),
        }
    }

    pub(super) fn tenant_came(&self) {
        self.0.tenants.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_tenants(&self, count: u32) {
        self.0.tenants.store(count, Ordering::Relaxed);
    }

    /// Takes a place; the calls in flight with it.
    pub(super) fn take(&self) -> Option<u32> {
        // Relaxed, here and below: places guard no other data, and each change is one
        // read-modify-write.
        let mut word = self.0.places.load(Ordering::Relaxed);
        loop {
            let (limit, in_flight) = halves(word);
            if in_flight >= limit {
                return None;
            }
            // The lower half is below the upper, and so has room for one more.
            match self.0.places.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(in_flight + 1),
                Err(other) => word = other,
            }
        }
    }

    /// Gives back a place that was taken.
    pub(super) fn give_back(&self) {
        let before = self.0.places.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(halves(before).1 > 0, "a place came back that nobody took");
    }

    pub(super) fn admitted(&self, now: Duration, in_flight: u32, place: Place) -> Permit {
        self.0.admitted.fetch_add(1, Ordering::Relaxed);
        Permit::new(place, now, in_flight)
    }

    pub(super) fn count_shed(&self, now: Duration) {
        self.0.shed.fetch_add(1, Ordering::Relaxed);
        self.0.pressure.add(now);
    }

    pub(super) fn learn(&self, now: Duration, sample: LaneSample) {
        let mut algorithm = self.0.algorithm.lock();
        algorithm.sample(now, sample);
        let limit = algorithm.limit();
        // Under the lock, so that an older verdict does not overwrite a newer one.
        if limit != self.limit() {
            self.set_limit(limit);
        }
    }

    pub(super) fn was_held(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let _always = self
            .0
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| match held {
                0 => Some(time),
                _ => Some((held - held / HELD_SHARE).saturating_add(time / HELD_SHARE)),
            });
    }

    fn held(&self) -> Option<Duration> {
        match self.0.held.load(Ordering::Relaxed) {
            0 => None,
            held => Some(Duration::from_nanos(held)),
        }
    }

    /// The limit, and the calls in flight.
    fn places(&self) -> (u32, u32) {
        halves(self.0.places.load(Ordering::Relaxed))
    }

    fn set_limit(&self, limit: u32) {
        let limit = limit.clamp(self.0.minimum, self.0.maximum);
        let _always = self
            .0
            .places
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(u64::from(limit) << 32 | u64::from(halves(word).1))
            });
    }
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::lane::LaneOutcome;

    const NOW: Duration = Duration::from_secs(1);

    fn lane(limit: u32) -> Lane {
        Lane::new(&LanePolicy::default().initial(limit)).unwrap()
    }

    #[test]
    fn no_interleaving_admits_more_than_the_limit() {
        loom::model(|| {
            let lane = lane(1);
            let other = lane.clone();
            let other = loom::thread::spawn(move || other.try_admit(NOW));
            let mine = lane.try_admit(NOW);
            let theirs = other.join().unwrap();
            assert!(mine.is_some() ^ theirs.is_some());
            drop((mine, theirs));
            assert_eq!(lane.in_flight(), 0);
        });
    }

    #[test]
    fn no_interleaving_loses_a_place_or_a_limit() {
        loom::model(|| {
            let lane = lane(2);
            let first = lane.try_admit(NOW).unwrap();
            let other = lane.clone();
            let other = loom::thread::spawn(move || drop(other.try_admit(NOW)));
            first.finish(NOW, LaneOutcome::Overloaded);
            other.join().unwrap();
            assert_eq!((lane.limit(), lane.in_flight()), (1, 0));
        });
    }
}
