//! Whether a dependency works at all: closed, open, or half-open with one probe.

use std::time::Duration;

use super::counts::{Counts, Tally};
use crate::{
    gate::{BreakerReading, BreakerState},
    policy::{BreakerPolicy, PolicyError},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// History of the baseline: long enough that an incident does not soon look normal.
const BASELINE: Duration = Duration::from_secs(600);

/// How much worse than usual is a failing dependency.
const TIMES_BASELINE: u64 = 3;

/// One failure is an event, two are the least that can be a rate.
const LEAST_FAILURES: u64 = 2;

/// A circuit breaker for all calls of a channel. A clone is the same breaker.
///
/// Closed, it counts outcomes: the last ones in a row, a sliding window, and ten minutes for the
/// baseline. It opens by the rules of [`BreakerPolicy`]; windows are rings of ten sub-windows,
/// so an outcome counts for 90 to 100 % of them. After the cool-down it is half-open: one call
/// at a time is the probe. The probe's success closes the breaker, with an empty window but
/// the same baseline; its failure opens it again; a probe that is dropped without an outcome
/// gives its place to the next call.
///
/// A change of state is returned to exactly one caller, so that it can be reported once.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::{
///     gate::BreakerState,
///     measure::{Admission, Breaker},
///     policy::BreakerPolicy,
/// };
///
/// let breaker = Breaker::new(&BreakerPolicy::default().consecutive(2))?;
/// let at = Duration::from_secs;
/// assert_eq!(breaker.record(at(1), true), None);
/// assert_eq!(breaker.record(at(1), true), Some(BreakerState::Open));
/// let Admission::Open { retry_after } = breaker.admit(at(2)) else { panic!() };
/// assert_eq!(retry_after, at(4));
/// let Admission::Probe { probe, change } = breaker.admit(at(6)) else { panic!() };
/// assert_eq!(change, Some(BreakerState::HalfOpen));
/// assert_eq!(probe.success(at(7)), Some(BreakerState::Closed));
/// # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Breaker(Arc<Shared>);

/// What a call may do.
#[derive(Debug)]
pub enum Admission {
    /// Go on; report each judged attempt with [`Breaker::record_of`].
    Closed,
    /// Go on as the probe; report its outcome to `probe` and nowhere else.
    Probe {
        /// The call's outcome goes here. Dropped without one, it gives its place back.
        probe: Probe,
        /// `HalfOpen` for the first probe after the cool-down, to report.
        change: Option<BreakerState>,
    },
    /// Answer at once. It is no outcome: it is not recorded.
    Open {
        /// When asking again makes sense: the rest of the cool-down, or while a probe is out a
        /// whole one, since nobody knows what it will find.
        retry_after: Duration,
    },
}

/// The one call that finds out whether the dependency works again.
#[derive(Debug)]
#[must_use = "dropped, it says that the probe was abandoned"]
pub struct Probe {
    breaker: Breaker,
    /// The half-open state that it belongs to.
    episode: u64,
    /// Which place in it is this probe's.
    started: Duration,
}

#[derive(Debug)]
struct Shared {
    policy: BreakerPolicy,
    /// Whether `phase` is `Closed`: all that a call needs to know of it. Written under its lock.
    closed: AtomicBool,
    /// When a probe last closed it, in nanoseconds; 0 before.
    closed_again: AtomicU64,
    phase: Mutex<Phase>,
    /// Failures since the last success.
    in_a_row: AtomicU32,
    /// The window has failures enough but not the calls: a success may complete them.
    watching: AtomicBool,
    window: Counts,
    baseline: Counts,
}

#[derive(Debug)]
enum Phase {
    Closed {
        /// Counts the half-open states, so that an old probe cannot decide a new one.
        episode: u64,
    },
    Open {
        episode: u64,
        until: Duration,
    },
    HalfOpen {
        episode: u64,
        /// When the probe that holds the place started.
        probe: Option<Duration>,
    },
}

impl Breaker {
    /// A closed breaker without history.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(policy: &BreakerPolicy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self(Arc::new(Shared {
            policy: policy.clone(),
            closed: AtomicBool::new(true),
            closed_again: AtomicU64::new(0),
            phase: Mutex::new(Phase::Closed { episode: 0 }),
            in_a_row: AtomicU32::new(0),
            watching: AtomicBool::new(false),
            window: Counts::new(policy.window),
            baseline: Counts::new(BASELINE),
        })))
    }

    /// Whether it is closed: one atomic load.
    pub fn is_closed(&self) -> bool {
        // Acquire: see `admit`.
        self.0.closed.load(Ordering::Acquire)
    }

    /// Asks for a call. While closed, one atomic load.
    pub fn admit(&self, now: Duration) -> Admission {
        // Acquire, with the Release in `Probe::decide`: a call that sees the breaker closed
        // again sees the cleared window as well.
        if self.is_closed() {
            return Admission::Closed;
        }
        self.admit_not_closed(now)
    }

    #[cold]
    fn admit_not_closed(&self, now: Duration) -> Admission {
        let cool_down = self.0.policy.cool_down;
        let mut phase = self.0.phase.lock();
        let (episode, change) = match *phase {
            Phase::Closed { .. } => return Admission::Closed,
            Phase::Open { until, .. } if now < until => {
                return Admission::Open {
                    retry_after: until - now,
                };
            }
            Phase::Open { episode, .. } => (episode + 1, Some(BreakerState::HalfOpen)),
            // A probe that hangs must not keep everybody out for ever: after a cool-down
            // without a word from it another call may try. Its outcome still counts.
            Phase::HalfOpen {
                probe: Some(started),
                ..
            } if now < started + cool_down => {
                return Admission::Open {
                    retry_after: cool_down,
                };
            }
            Phase::HalfOpen { episode, .. } => (episode, None),
        };
        *phase = Phase::HalfOpen {
            episode,
            probe: Some(now),
        };
        Admission::Probe {
            probe: Probe {
                breaker: self.clone(),
                episode,
                started: now,
            },
            change,
        }
    }

    /// As [`record_of`](Self::record_of), of an attempt whose call was admitted just now.
    pub fn record(&self, now: Duration, failed: bool) -> Option<BreakerState> {
        self.record_of(now, now, failed)
    }

    /// The outcome of an attempt whose call was `admitted` while closed. `Open` if it opened the
    /// breaker.
    ///
    /// That of a call from before the breaker has opened and closed again is none: it tells of
    /// what the probe has found to be over. Discarded and cancelled attempts are no outcomes.
    /// Those that end after the breaker has opened change nothing: the probe decides. A success
    /// costs a few atomic operations.
    pub fn record_of(
        &self,
        admitted: Duration,
        now: Duration,
        failed: bool,
    ) -> Option<BreakerState> {
        let shared = &*self.0;
        // Acquire: who sees it closed sees when that was.
        if !shared.closed.load(Ordering::Acquire) || admitted < shared.closed_again() {
            return None;
        }
        shared.window.record(now, failed);
        shared.baseline.record(now, failed);
        let in_a_row = if failed {
            // Relaxed, here and below: the count guards nothing, and whoever reaches the limit
            // goes through the lock.
            shared
                .in_a_row
                .fetch_add(1, Ordering::Relaxed)
                .saturating_add(1)
        } else {
            // The load keeps the usual case from writing to a line that all calls share.
            if shared.in_a_row.load(Ordering::Relaxed) != 0 {
                shared.in_a_row.store(0, Ordering::Relaxed);
            }
            if !shared.watching.load(Ordering::Relaxed) {
                return None;
            }
            0
        };
        if in_a_row >= shared.policy.consecutive || shared.rate_trips(now) {
            return shared.trip(now);
        }
        None
    }

    /// What it measures, for the gates and the user. Reading changes nothing: an open breaker
    /// whose cool-down has passed reads half-open, and the next call is admitted as its probe.
    pub fn reading(&self, now: Duration) -> BreakerReading {
        let shared = &*self.0;
        let state = match *shared.phase.lock() {
            Phase::Closed { .. } => BreakerState::Closed,
            // As the next call finds it: nobody would come to one that says it is open for good.
            Phase::Open { until, .. } if now >= until => BreakerState::HalfOpen,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        };
        let window = shared.window.tally(now);
        let baseline = shared.baseline.tally(now);
        BreakerReading {
            state,
            calls: window.calls,
            failures: window.failures,
            error_rate: shared.error_rate(window),
            baseline: baseline.rate(),
            trip_point: shared.trip_point(baseline),
            hedging_trip_point: shared.hedging_trip_point(now, baseline.without(window)),
        }
    }
}

impl Probe {
    /// The dependency answered: the breaker closes. `None` if another probe decided earlier.
    pub fn success(self, now: Duration) -> Option<BreakerState> {
        self.decide(now, false)
    }

    /// It failed: the breaker opens for another cool-down. `None` if another probe decided
    /// earlier.
    pub fn failure(self, now: Duration) -> Option<BreakerState> {
        self.decide(now, true)
    }

    fn decide(&self, now: Duration, failed: bool) -> Option<BreakerState> {
        let shared = &*self.breaker.0;
        let mut phase = shared.phase.lock();
        match *phase {
            Phase::HalfOpen { episode, .. } if episode == self.episode => {}
            _ => return None,
        }
        shared.baseline.record(now, failed);
        let episode = self.episode;
        if failed {
            let until = now + shared.policy.cool_down;
            *phase = Phase::Open { episode, until };
            return Some(BreakerState::Open);
        }
        // What opened the breaker must not open it again at the first failure.
        shared.window.clear();
        shared.in_a_row.store(0, Ordering::Relaxed);
        shared.watching.store(false, Ordering::Relaxed);
        *phase = Phase::Closed { episode };
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        shared.closed_again.store(nanos, Ordering::Relaxed);
        shared.closed.store(true, Ordering::Release);
        Some(BreakerState::Closed)
    }
}

impl Drop for Probe {
    /// Abandoned, or decided before: then the place is another's, or gone.
    fn drop(&mut self) {
        if let Phase::HalfOpen { episode, probe } = &mut *self.breaker.0.phase.lock()
            && *episode == self.episode
            && *probe == Some(self.started)
        {
            *probe = None;
        }
    }
}

impl Shared {
    /// Opens the breaker, unless somebody else did.
    #[cold]
    fn trip(&self, now: Duration) -> Option<BreakerState> {
        let mut phase = self.phase.lock();
        let Phase::Closed { episode } = *phase else {
            return None;
        };
        let until = now + self.policy.cool_down;
        *phase = Phase::Open { episode, until };
        // Release: see `Breaker::admit`. The lock orders it against the other writer.
        self.closed.store(false, Ordering::Release);
        Some(BreakerState::Open)
    }

    fn rate_trips(&self, now: Duration) -> bool {
        let window = self.window.tally(now);
        let short = window.calls < self.policy.minimum_calls;
        let watching = short && window.failures >= LEAST_FAILURES;
        // Relaxed: a call that overtakes this is judged with the next failure.
        self.watching.store(watching, Ordering::Relaxed);
        self.error_rate(window)
            .is_some_and(|rate| rate >= self.trip_point(self.baseline.tally(now)))
    }

    /// `None` while the window says too little.
    fn error_rate(&self, window: Tally) -> Option<f64> {
        let enough = window.calls >= self.policy.minimum_calls && window.failures >= LEAST_FAILURES;
        window.rate().filter(|_| enough)
    }

    fn trip_point(&self, baseline: Tally) -> f64 {
        // Multiplied before the division: three times a baseline of 2 in 20 is exactly 0.3.
        let usual = Tally {
            failures: TIMES_BASELINE * baseline.failures,
            ..baseline
        };
        let BreakerPolicy {
            floor,
            failure_ratio,
            ..
        } = self.policy;
        usual.rate().unwrap_or(0.0).clamp(floor, failure_ratio)
    }

    /// The trip point that hedging keeps its distance from. What is usual was so before the
    /// window: in a young process three times a baseline that is mostly the window itself would
    /// rise as fast as the failures. Where too little came before, nothing is usual yet.
    fn hedging_trip_point(&self, now: Duration, earlier: Tally) -> f64 {
        // The window is empty at first when it has closed again: what came before is the incident.
        let again = self.closed_again();
        let recent = !again.is_zero() && now < again + self.policy.window;
        match recent || earlier.calls < self.policy.minimum_calls {
            true => self.policy.floor,
            false => self.trip_point(earlier),
        }
    }

    /// When a probe last closed it; zero before.
    fn closed_again(&self) -> Duration {
        // Relaxed: ordered by `closed`, where that matters.
        Duration::from_nanos(self.closed_again.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    const OPEN: Option<BreakerState> = Some(BreakerState::Open);
    const COOL: Duration = Duration::from_secs(5);

    fn breaker(consecutive: u32) -> Breaker {
        Breaker::new(&BreakerPolicy::default().consecutive(consecutive)).unwrap()
    }

    fn opened(consecutive: u32) -> Breaker {
        let breaker = breaker(consecutive);
        for _ in 1..consecutive {
            assert_eq!(breaker.record(Duration::ZERO, true), None);
        }
        assert_eq!(breaker.record(Duration::ZERO, true), OPEN);
        breaker
    }

    fn probe(admission: Admission) -> Option<Probe> {
        match admission {
            Admission::Probe { probe, .. } => Some(probe),
            _ => None,
        }
    }

    #[test]
    fn br1_opens_once() {
        loom::model(|| {
            let breaker = breaker(2);
            let fail = |breaker: Breaker| move || breaker.record(Duration::ZERO, true);
            let other = thread::spawn(fail(breaker.clone()));
            let third = thread::spawn(fail(breaker.clone()));
            let changes = [breaker.record(Duration::ZERO, true), other.join().unwrap()];
            let third = third.join().unwrap();
            let opened = changes
                .iter()
                .chain([&third])
                .filter(|it| **it == OPEN)
                .count();
            assert_eq!(opened, 1);
            assert_eq!(breaker.reading(Duration::ZERO).state, BreakerState::Open);
        });
    }

    #[test]
    fn br3_one_probe() {
        loom::model(|| {
            let breaker = opened(1);
            let ask = |breaker: Breaker| thread::spawn(move || breaker.admit(COOL));
            let (one, two) = (ask(breaker.clone()), ask(breaker.clone()));
            // Held until all have asked: nobody gives the place back before.
            let all = [
                breaker.admit(COOL),
                one.join().unwrap(),
                two.join().unwrap(),
            ];
            let changes = all.iter().filter(|it| {
                matches!(it, Admission::Probe { change, .. } if *change == Some(BreakerState::HalfOpen))
            });
            assert_eq!(changes.count(), 1);
            assert_eq!(all.into_iter().filter_map(probe).count(), 1);
        });
    }

    /// Who is admitted after the probe's success finds what opened the breaker forgotten.
    #[test]
    fn closed_again_it_starts_anew() {
        loom::model(|| {
            let breaker = opened(2);
            let probe = probe(breaker.admit(COOL)).unwrap();
            let other = breaker.clone();
            let other = thread::spawn(move || match other.admit(COOL) {
                Admission::Closed => other.record(COOL, true),
                _ => None,
            });
            assert_eq!(probe.success(COOL), Some(BreakerState::Closed));
            assert_eq!(other.join().unwrap(), None, "one failure after the success");
            assert_eq!(breaker.reading(COOL).state, BreakerState::Closed);
        });
    }

    /// A dropped probe's place is another's, once.
    #[test]
    fn br5_a_dropped_probe_gives_its_place_back() {
        loom::model(|| {
            let breaker = opened(1);
            let dropped = probe(breaker.admit(COOL)).unwrap();
            let other = breaker.clone();
            let other = thread::spawn(move || probe(other.admit(COOL)));
            drop(dropped);
            let other = other.join().unwrap();
            let mine = probe(breaker.admit(COOL));
            assert!(other.is_some() != mine.is_some());
        });
    }

    /// Of two probes, the second let in since the first hung, one decides.
    #[test]
    fn two_probes_decide_once() {
        loom::model(|| {
            let breaker = opened(1);
            let slow = probe(breaker.admit(COOL)).unwrap();
            let second = probe(breaker.admit(COOL + COOL)).unwrap();
            let later = COOL + COOL;
            let other = thread::spawn(move || slow.success(later));
            let changes = [second.failure(later), other.join().unwrap()];
            assert_eq!(changes.iter().flatten().count(), 1, "{changes:?}");
        });
    }
}
