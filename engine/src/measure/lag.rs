//! How late the runtime runs its timers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::nanos;
use crate::policy::{PolicyError, Saturation};

/// The lag of a timer that its owner sets again and again.
///
/// The owner says when the next one is due, and how late it ran. A timer that is overdue
/// already counts too: a runtime that is stuck runs none.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::{measure::Lag, policy::Saturation};
///
/// let ms = Duration::from_millis;
/// let lag = Lag::new(&Saturation::over(ms(50)))?;
/// lag.due(ms(100));
/// assert!(!lag.is_saturated(ms(150)));
/// assert!(lag.is_saturated(ms(151)));
/// lag.ran(ms(160));
/// lag.due(ms(180));
/// assert_eq!(lag.reading(ms(170)), ms(60));
/// # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
/// ```
#[derive(Debug)]
pub struct Lag {
    limit: Duration,
    /// When the next timer is due; 0 before the first.
    due: AtomicU64,
    /// How late the last one ran.
    last: AtomicU64,
}

// Relaxed throughout: two numbers that guard nothing, and a reading a moment old is as good.
impl Lag {
    /// A lag of zero.
    ///
    /// # Errors
    /// The policy's field that is out of its bounds.
    pub fn new(policy: &Saturation) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self {
            limit: policy.limit,
            due: AtomicU64::new(0),
            last: AtomicU64::new(0),
        })
    }

    /// The limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The next timer is due at `at`.
    pub fn due(&self, at: Duration) {
        self.due.store(nanos(at), Ordering::Relaxed);
    }

    /// The timer ran, `now`.
    pub fn ran(&self, now: Duration) {
        let late = nanos(now).saturating_sub(self.due.load(Ordering::Relaxed));
        self.last.store(late, Ordering::Relaxed);
    }

    /// The lag, as far as it is known `now`.
    pub fn reading(&self, now: Duration) -> Duration {
        let due = self.due.load(Ordering::Relaxed);
        let overdue = match due {
            0 => 0,
            due => nanos(now).saturating_sub(due),
        };
        Duration::from_nanos(self.last.load(Ordering::Relaxed).max(overdue))
    }

    /// Whether the lag is over the limit.
    pub fn is_saturated(&self, now: Duration) -> bool {
        self.reading(now) > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_the_limit() {
        let ms = Duration::from_millis;
        let lag = Lag::new(&Saturation::over(ms(50))).unwrap();
        assert_eq!(lag.reading(ms(1_000_000)), Duration::ZERO);
        lag.due(ms(100));
        for (now, saturated) in [(99, false), (100, false), (150, false), (151, true)] {
            assert_eq!(lag.is_saturated(ms(now)), saturated, "{now}");
        }
        // A timer that ran on time ends it.
        lag.ran(ms(160));
        lag.due(ms(180));
        assert!(lag.is_saturated(ms(180)));
        lag.ran(ms(181));
        assert!(!lag.is_saturated(ms(181)));
    }

    #[test]
    fn bounds() {
        for (limit, text) in [
            (1, "Saturation.limit: 1ms is not in [2ms, 10s]"),
            (10_001, "Saturation.limit: 10.001s is not in [2ms, 10s]"),
        ] {
            let error = Lag::new(&Saturation::over(Duration::from_millis(limit))).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }
}
