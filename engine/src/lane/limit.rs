//! What sets a lane's limit: an algorithm that is told how calls ended.

use std::{fmt, time::Duration};

/// Learns from calls that have ended how many may be in flight.
///
/// It is told of a call only where the call says something: a cancelled one, a hedge that lost
/// and a call that was shed here say nothing of what is behind the lane.
pub trait LimitAlgorithm: Send + fmt::Debug {
    /// The limit by what was learnt so far. A lane keeps it within its policy's bounds.
    fn limit(&self) -> u32;

    /// A call has ended, or has its first message where that is what is measured.
    fn sample(&mut self, now: Duration, sample: LaneSample);

    /// Goes on from a limit that was learnt before, by another process or in another life of this
    /// one.
    fn resume(&mut self, limit: u32);
}

/// What one call says of the capacity behind a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSample {
    /// From its admission to its end, or to its first message.
    pub rtt: Duration,
    /// The calls in flight when it was admitted, itself included.
    pub in_flight: u32,
    /// How it ended.
    pub outcome: LaneOutcome,
}

/// Whether a call met an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneOutcome {
    /// It was answered, well or not: NOT_FOUND says that there was the capacity to look.
    Answered,
    /// It was refused or not answered in time: RESOURCE_EXHAUSTED, UNAVAILABLE, a deadline that
    /// passed.
    Overloaded,
}

/// When a limit was last changed, and whether a sample is from after that.
///
/// A window is a round trip, and at least a fixed time: a call that was admitted under the old
/// limit says nothing of the new one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since(Option<Duration>);

impl Since {
    pub(super) fn mark(&mut self, now: Duration) {
        self.0 = Some(now);
    }

    /// Whether a window has passed, and the sample was admitted in it.
    pub(super) fn has_passed(self, now: Duration, sample: &LaneSample, least: Duration) -> bool {
        self.0.is_none_or(|since| {
            now.saturating_sub(sample.rtt) >= since && now.saturating_sub(since) >= least
        })
    }
}

/// Three quarters: what a cut leaves. Less is always less, since it rounds down.
pub(super) fn cut(limit: u32) -> u32 {
    limit - limit.div_ceil(4)
}

/// Whether so many in flight use a limit: below half of it, a good round trip does not say that
/// there is room for more than the limit.
pub(super) fn used(in_flight: u32, limit: u32) -> bool {
    u64::from(in_flight) * 2 >= u64::from(limit)
}
