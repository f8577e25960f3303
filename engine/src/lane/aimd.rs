//! Additive increase, multiplicative decrease: TCP's congestion avoidance (RFC 5681), on calls.

use std::time::Duration;

use super::{
    LanePolicy,
    limit::{LaneOutcome, LaneSample, LimitAlgorithm, Since, cut, used},
};

/// One more per window while round trips keep to the target, three quarters on a slower one or an
/// overload.
///
/// A window is a round trip that began after the last change, and at least
/// [`LanePolicy::window`]. It grows only if at least half of the limit was in use, and is cut at
/// most once for what was admitted under one limit. The target is fixed, so a latency that stays
/// high is never taken for a healthy one.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::lane::{Aimd, LanePolicy, LimitAlgorithm, LaneOutcome, LaneSample};
///
/// let ms = Duration::from_millis;
/// let mut aimd = Aimd::new(&LanePolicy::default().initial(8).target(ms(500)));
/// let sample = |rtt, in_flight| LaneSample { rtt, in_flight, outcome: LaneOutcome::Answered };
/// aimd.sample(ms(200), sample(ms(200), 4));
/// assert_eq!(aimd.limit(), 9);
/// aimd.sample(ms(900), sample(ms(501), 9));
/// assert_eq!(aimd.limit(), 6);
/// ```
#[derive(Clone, Debug)]
pub struct Aimd {
    minimum: u32,
    maximum: u32,
    target: Duration,
    window: Duration,
    limit: u32,
    /// The last change, which a raise waits for.
    changed: Since,
    /// The last cut, which a cut waits for: raises in between are no excuse, or a lane whose fast
    /// calls raise it all the time would never be cut by its slow ones.
    cut: Since,
}

impl Aimd {
    /// With the policy's first limit. The policy's bounds are the lane's to check.
    pub fn new(policy: &LanePolicy) -> Self {
        Self {
            minimum: policy.minimum,
            maximum: policy.maximum,
            target: policy.target,
            window: policy.window,
            limit: policy.first_limit(),
            changed: Since::default(),
            cut: Since::default(),
        }
    }
}

impl LimitAlgorithm for Aimd {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn sample(&mut self, now: Duration, sample: LaneSample) {
        if sample.outcome == LaneOutcome::Overloaded || sample.rtt > self.target {
            if self.cut.has_passed(now, &sample, self.window) {
                self.limit = cut(self.limit).max(self.minimum);
                self.cut.mark(now);
                self.changed.mark(now);
            }
        } else if used(sample.in_flight, self.limit)
            && self.changed.has_passed(now, &sample, self.window)
        {
            self.limit = self.limit.saturating_add(1).min(self.maximum);
            self.changed.mark(now);
        }
    }

    fn resume(&mut self, limit: u32) {
        self.limit = limit.clamp(self.minimum, self.maximum);
    }
}
