//! A duration in half the room of the standard library's: every call keeps some.

use std::time::Duration;

/// A duration's nanoseconds; what is longer than 584 years is as long as that.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// In nanoseconds, up to 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nanos(u64);

impl Nanos {
    /// Longer than any call.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn of(duration: Duration) -> Self {
        Self(nanos(duration))
    }

    pub(crate) fn get(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}
