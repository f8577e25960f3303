//! How long to wait between sequential attempts.

use std::time::Duration;

use super::PolicyError;

/// Backoff between sequential attempts: exponential, with full jitter.
///
/// The wait before retry `n` (from 0) is drawn uniformly from `[0, min(cap, base * factor^n)]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// Whether a failed attempt of a repeatable call is retried at all. Default true.
    pub enabled: bool,
    /// The first retry's longest wait. Default 25 ms; at most `cap`.
    pub base: Duration,
    /// Growth of the longest wait from one retry to the next. Default 2; 1 to 10.
    pub factor: f64,
    /// The longest wait of any retry. Default 1 s; at most 1 h.
    pub cap: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            enabled: true,
            base: Duration::from_millis(25),
            factor: 2.0,
            cap: Duration::from_secs(1),
        }
    }
}

impl Retry {
    /// No retries: a failure with no other attempt in flight ends the call.
    pub fn off() -> Self {
        Self {
            enabled: false,
            ..Self::default()
        }
    }

    /// Sets [`Retry::base`].
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets [`Retry::factor`].
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets [`Retry::cap`].
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// The wait before retry `n` (from 0); `draw` in `[0, 1)` is the jitter.
    pub fn backoff(&self, n: u32, draw: f64) -> Duration {
        // Past 2^1000 the factor is infinite; the cap makes it finite again.
        let longest = self.base.as_secs_f64() * self.factor.powi(n.min(1_000) as i32);
        let longest = longest.min(self.cap.as_secs_f64());
        Duration::from_secs_f64(longest * draw.clamp(0.0, 1.0))
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            self.cap <= Duration::from_secs(3600),
            "Retry.cap",
            self.cap,
            "at most 3600s",
        )?;
        PolicyError::unless(
            self.base <= self.cap,
            "Retry.base",
            self.base,
            "at most Retry.cap",
        )?;
        PolicyError::unless(
            (1.0..=10.0).contains(&self.factor),
            "Retry.factor",
            self.factor,
            "in [1, 10]",
        )
    }
}
