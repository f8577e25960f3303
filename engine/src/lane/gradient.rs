//! The limit by the gradient of latency: the rule that Netflix published as Gradient2.

use std::time::Duration;

use super::{
    LanePolicy,
    limit::{LaneOutcome, LaneSample, LimitAlgorithm, Since, cut, used},
};

/// A round trip up to this many times the usual one is no queue.
const TOLERANCE: f64 = 1.5;

/// The calls that may queue behind the lane: without some, it would never find more room.
const QUEUE: f64 = 4.0;

/// The weight of a sample's verdict: one slow call is no trend.
const SMOOTHING: f64 = 0.2;

/// One verdict leaves at least half.
const LEAST_GRADIENT: f64 = 0.5;

/// The samples that the usual round trip remembers.
const MEMORY: f64 = 600.0;

/// The first samples are averaged alike, so that the first of all is not the norm.
const WARM_UP: f64 = 10.0;

/// In this time what counts as usual may double, and no faster: an incident of an hour is not
/// learnt as healthy, and a service that has become slower for good is accepted within a day.
const DOUBLING: Duration = Duration::from_secs(3600);

/// Compares each round trip with the usual one: alike, the limit grows by a small queue; longer,
/// it shrinks in proportion. It needs no target.
///
/// The rule is that of Gradient2 of Netflix's concurrency-limits, with two additions. The usual
/// round trip is an average over many samples, which in the original learns any latency that
/// lasts; here it may rise by no more than twice an hour, and fall at once. And an overload cuts
/// to three quarters, at most once for what was admitted under one limit.
#[derive(Clone, Debug)]
pub struct Gradient {
    minimum: f64,
    maximum: f64,
    window: Duration,
    limit: f64,
    /// Seconds; zero before the first sample.
    usual: f64,
    samples: f64,
    /// When `usual` was last learnt.
    learnt: Duration,
    cut: Since,
}

impl Gradient {
    /// With the policy's first limit. The policy's bounds are the lane's to check.
    pub fn new(policy: &LanePolicy) -> Self {
        Self {
            minimum: f64::from(policy.minimum),
            maximum: f64::from(policy.maximum),
            window: policy.window,
            limit: f64::from(policy.first_limit()),
            usual: 0.0,
            samples: 0.0,
            learnt: Duration::ZERO,
            cut: Since::default(),
        }
    }

    /// The round trip that counts as usual; `None` before the first sample.
    pub fn usual(&self) -> Option<Duration> {
        let usual = Duration::try_from_secs_f64(self.usual).unwrap_or(Duration::MAX);
        (self.samples > 0.0).then_some(usual)
    }

    fn learn(&mut self, now: Duration, rtt: f64) {
        let weight = match self.samples < WARM_UP {
            true => 1.0 / (self.samples + 1.0),
            false => 2.0 / (MEMORY + 1.0),
        };
        let average = self.usual + (rtt - self.usual) * weight;
        let elapsed = now.saturating_sub(self.learnt);
        let doublings = elapsed.as_secs_f64() / DOUBLING.as_secs_f64();
        self.usual = match self.samples < WARM_UP {
            true => average,
            false => average.min(self.usual * doublings.exp2()),
        };
        self.samples += 1.0;
        self.learnt = self.learnt.max(now);
    }
}

impl LimitAlgorithm for Gradient {
    fn limit(&self) -> u32 {
        // Within bounds that are 32 bits.
        self.limit as u32
    }

    fn sample(&mut self, now: Duration, sample: LaneSample) {
        let limit = self.limit();
        if sample.outcome == LaneOutcome::Overloaded {
            if self.cut.has_passed(now, &sample, self.window) {
                self.limit = f64::from(cut(limit)).max(self.minimum);
                self.cut.mark(now);
            }
            return;
        }
        // A round trip of zero would be infinitely better than usual.
        let rtt = sample.rtt.as_secs_f64().max(1e-9);
        self.learn(now, rtt);
        if used(sample.in_flight, limit) {
            let gradient = (TOLERANCE * self.usual / rtt).clamp(LEAST_GRADIENT, 1.0);
            let next = self.limit * gradient + QUEUE;
            let smooth = self.limit * (1.0 - SMOOTHING) + next * SMOOTHING;
            self.limit = smooth.clamp(self.minimum, self.maximum);
        }
    }

    fn resume(&mut self, limit: u32) {
        self.limit = f64::from(limit).clamp(self.minimum, self.maximum);
    }
}
