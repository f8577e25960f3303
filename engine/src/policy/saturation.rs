//! When this process itself is the bottleneck.

use std::time::Duration;

use super::PolicyError;

/// Holds hedges back, and keeps the estimate from learning, while the runtime runs its timers
/// late: a latency that this process adds to every call is no reason for a second copy of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Saturation {
    /// The timer lag that counts as saturated; 2 ms to 10 s. tokio's timers are exact to a
    /// millisecond, so less than two says nothing.
    pub limit: Duration,
}

impl Saturation {
    /// Saturated while timers run later than `limit`.
    pub fn over(limit: Duration) -> Self {
        Self { limit }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            (Duration::from_millis(2)..=Duration::from_secs(10)).contains(&self.limit),
            "Saturation.limit",
            self.limit,
            "in [2ms, 10s]",
        )
    }
}
