//! A lost connection is one event, however many attempts are lost with it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The last loss of a connection to one endpoint.
///
/// A connection carries any number of attempts, and its end fails them all in one moment. To a
/// circuit breaker that counts failures in a row, or their share, that would be proof that nothing
/// works, when one replica of many has restarted.
///
/// ```
/// # use std::time::Duration;
/// # use tonic_hedge_engine::endpoint::Losses;
/// let losses = Losses::new();
/// let at = Duration::from_millis;
/// // Three attempts of one connection, which ends at 40 ms.
/// assert!(losses.is_news(at(10), at(40)));
/// assert!(!losses.is_news(at(20), at(40)));
/// assert!(!losses.is_news(at(30), at(41)));
/// // Launched on the next one.
/// assert!(losses.is_news(at(42), at(60)));
/// ```
#[derive(Debug, Default)]
pub struct Losses {
    /// Nanoseconds of the last loss, and 1; 0 is none.
    last: AtomicU64,
}

impl Losses {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether an attempt that was `launched` then, and is lost with its connection `now`, is the
    /// first to tell of it: one that was launched before the last loss went with that.
    pub fn is_news(&self, launched: Duration, now: Duration) -> bool {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let launched = nanos(launched);
        let now = nanos(now).saturating_add(1);
        // Relaxed: one value, which guards nothing else.
        self.last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                (launched >= last).then_some(now)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_one_moment_are_one_loss() {
        let losses = Losses::new();
        let news = |launched, now| {
            losses.is_news(Duration::from_nanos(launched), Duration::from_nanos(now))
        };
        assert!(news(0, 0));
        assert!(!news(0, 0));
        assert!(news(1, 9));
        // Launched as the loss was noticed: it was given the same connection.
        assert!(!news(9, 9));
        assert!(!news(9, 100));
        assert!(news(10, 100));
        assert!(losses.is_news(Duration::MAX, Duration::MAX));
    }

    #[test]
    fn one_of_many_threads_tells_of_it() {
        for _ in 0..100 {
            let losses = Losses::new();
            let news = std::thread::scope(|scope| {
                let tell = || losses.is_news(Duration::ZERO, Duration::from_secs(1));
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(tell)).collect();
                let told = threads.into_iter().map(|thread| thread.join().unwrap());
                told.filter(|news| *news).count()
            });
            assert_eq!(news, 1);
        }
    }
}
