//! When calls to a failing dependency stop.

use std::time::Duration;

use super::PolicyError;

/// When the circuit breaker opens, and for how long.
///
/// It opens after `consecutive` failures in a row, or when the failure rate of its window
/// reaches the trip point `clamp(3 x baseline, floor, failure_ratio)` with at least
/// `minimum_calls` outcomes, two of them failures: one failure is an event, not a rate. The
/// baseline is the failure rate over the last 10 minutes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BreakerPolicy {
    /// Failures in a row that open it. Default 5; at least 1.
    pub consecutive: u32,
    /// History of the failure rate. Default 30 s; 1 s to 5 min: what is usual is what came
    /// before it, within 10 minutes.
    pub window: Duration,
    /// Outcomes that the window needs. Default 20; at least 2.
    pub minimum_calls: u64,
    /// Least trip point. Default 0.10; more than 0, at most `failure_ratio`.
    pub floor: f64,
    /// Greatest trip point. Default 0.5; more than 0, at most 1.
    pub failure_ratio: f64,
    /// How long it stays open before one probe decides. Default 5 s; 1 ms to 1 h.
    pub cool_down: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            consecutive: 5,
            window: Duration::from_secs(30),
            minimum_calls: 20,
            floor: 0.10,
            failure_ratio: 0.5,
            cool_down: Duration::from_secs(5),
        }
    }
}

impl BreakerPolicy {
    /// Sets [`BreakerPolicy::consecutive`].
    #[must_use]
    pub fn consecutive(mut self, failures: u32) -> Self {
        self.consecutive = failures;
        self
    }

    /// Sets [`BreakerPolicy::window`].
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets [`BreakerPolicy::minimum_calls`].
    #[must_use]
    pub fn minimum_calls(mut self, calls: u64) -> Self {
        self.minimum_calls = calls;
        self
    }

    /// Sets [`BreakerPolicy::floor`].
    #[must_use]
    pub fn floor(mut self, rate: f64) -> Self {
        self.floor = rate;
        self
    }

    /// Sets [`BreakerPolicy::failure_ratio`].
    #[must_use]
    pub fn failure_ratio(mut self, rate: f64) -> Self {
        self.failure_ratio = rate;
        self
    }

    /// Sets [`BreakerPolicy::cool_down`].
    #[must_use]
    pub fn cool_down(mut self, time: Duration) -> Self {
        self.cool_down = time;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            self.consecutive >= 1,
            "Breaker.consecutive",
            self.consecutive,
            "at least 1",
        )?;
        PolicyError::unless(
            (Duration::from_secs(1)..=Duration::from_secs(300)).contains(&self.window),
            "Breaker.window",
            self.window,
            "in [1s, 300s]",
        )?;
        PolicyError::unless(
            self.minimum_calls >= 2,
            "Breaker.minimum_calls",
            self.minimum_calls,
            "at least 2",
        )?;
        PolicyError::unless(
            self.failure_ratio > 0.0 && self.failure_ratio <= 1.0,
            "Breaker.failure_ratio",
            self.failure_ratio,
            "in (0, 1]",
        )?;
        PolicyError::unless(
            self.floor > 0.0 && self.floor <= self.failure_ratio,
            "Breaker.floor",
            self.floor,
            "in (0, Breaker.failure_ratio]",
        )?;
        PolicyError::unless(
            (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&self.cool_down),
            "Breaker.cool_down",
            self.cool_down,
            "in [1ms, 3600s]",
        )
    }
}
