//! What happens when: the document's forty minutes, and who asks what in them.

use std::time::Duration;

use crate::{fleet::Fleet, scale::chat};

/// The parts of an incident, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// All is well.
    Steady,
    /// More and more attempts fail, wherever they go.
    Errors,
    /// All is well again, and the picker forgets.
    Calm,
    /// One region is slow, and batch asks for more than there is.
    Slow,
    /// All is well again.
    After,
}

/// The key of no phase at all.
pub(crate) const NONE: &str = "none";

impl Phase {
    pub(crate) const ALL: [Self; 5] = [
        Self::Steady,
        Self::Errors,
        Self::Calm,
        Self::Slow,
        Self::After,
    ];

    /// In JSON, and in a path.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Errors => "error_ramp",
            Self::Calm => "calm",
            Self::Slow => "slow_region",
            Self::After => "after",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Errors => "error ramp",
            Self::Calm => "calm",
            Self::Slow => "slow region and batch flood",
            Self::After => "after",
        }
    }
}

/// The region that becomes slow.
pub(crate) const SLOW: &str = "east";

/// The document's.
const MOST_ERRORS: f64 = 0.85;
const FLOOR: f64 = 9.0;
const FLOOD: f64 = 1.4;
const USERS: u32 = 200;

/// Errors rise for this part of their phase, and stay for the rest.
const RAMP: f64 = 2.0 / 3.0;

/// Each user asks once in so many seconds of chat: 160 calls a second here.
const EVERY: f64 = 20.0;

/// What a healthy interactive call takes, in seconds of chat: for the flood's size.
const USUAL: f64 = 1.4;

/// How long each phase is, and how many ask.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// In the order of [`Phase::ALL`].
    lengths: [Duration; 5],
    pub(crate) users: u32,
    pub(crate) every: Duration,
    /// Batch jobs at once, while the flood is on.
    pub(crate) workers: u32,
}

impl Plan {
    /// The document's, on our clock. It says how long all takes; the division is ours.
    pub(crate) fn document() -> Self {
        let minutes = |minutes: f64| chat(60.0 * minutes);
        let interactive = f64::from(USERS) / EVERY * USUAL;
        let wanted = FLOOD * Fleet::slots() as f64;
        Self {
            lengths: [3.0, 9.0, 9.0, 15.0, 4.0].map(minutes),
            users: USERS,
            every: chat(EVERY),
            workers: (wanted - interactive).round() as u32,
        }
    }

    /// A moment of each phase, for a test.
    #[cfg(test)]
    pub(crate) fn short() -> Self {
        Self {
            lengths: [Duration::from_millis(400); 5],
            users: 50,
            every: Duration::from_secs(1),
            ..Self::document()
        }
    }

    /// The document's, in so long: with as many users, and phases that are shorter or longer.
    pub(crate) fn lasting(length: Duration) -> Self {
        let plan = Self::document();
        let share = length.as_secs_f64() / plan.length().as_secs_f64();
        Self {
            lengths: plan.lengths.map(|it| it.mul_f64(share)),
            ..plan
        }
    }

    pub(crate) fn length(&self) -> Duration {
        self.lengths.iter().sum()
    }

    /// When a phase begins and ends.
    pub(crate) fn span(&self, phase: Phase) -> (Duration, Duration) {
        let mut begin = Duration::ZERO;
        for (each, length) in Phase::ALL.into_iter().zip(self.lengths) {
            if each == phase {
                return (begin, begin + length);
            }
            begin += length;
        }
        (begin, begin)
    }

    /// The phase at a time; the last one goes on.
    pub(crate) fn phase(&self, at: Duration) -> Phase {
        let runs = |phase: &Phase| at < self.span(*phase).1;
        Phase::ALL.into_iter().find(runs).unwrap_or(Phase::After)
    }

    /// The share of attempts that fail: both regions are one provider's.
    pub(crate) fn errors(&self, at: Duration) -> f64 {
        if self.phase(at) != Phase::Errors {
            return 0.0;
        }
        let (begin, end) = self.span(Phase::Errors);
        let passed = (at - begin).as_secs_f64() / (end - begin).as_secs_f64();
        MOST_ERRORS * (passed / RAMP).min(1.0)
    }

    /// The least time to a first token in [`SLOW`].
    pub(crate) fn floor(&self, at: Duration) -> Duration {
        match self.phase(at) {
            Phase::Slow => chat(FLOOR),
            _ => Duration::ZERO,
        }
    }

    /// When each interactive call is due. They come evenly, each somewhere in its place: whichever
    /// gateway they go to.
    pub(crate) fn schedule(&self, seed: u64) -> Vec<Duration> {
        let pace = self.every / self.users;
        let mut draws = fastrand::Rng::with_seed(seed);
        let mut schedule = Vec::new();
        let mut at = Duration::ZERO;
        while at < self.length() {
            schedule.push(at + pace.mul_f64(draws.f64()));
            at += pace;
        }
        schedule
    }
}
