//! How many attempts may be cut off by a reset before the peer takes offence.
//!
//! A reset that reaches a server before it accepted the stream counts against the whole
//! connection: a tonic (h2) server says GOAWAY after 20 of them, which fails innocent calls. That is
//! what a stalled server under hedging looks like. A loser beyond the ration is not reset but
//! runs to its end, unheard.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

/// Resets that an endpoint gets without having answered anything since.
///
/// h2's server tolerates 20 streams that were reset before it accepted them (`too_many_resets`).
/// 16 leaves room for resets that h2 itself sends, such as a deadline's. Measured against a
/// server with 300 ms stalls at 400 calls a second: no connection and no call lost.
pub const RESETS_UNANSWERED: u32 = 16;

/// Resets in [`RESET_WINDOW`], answered or not.
///
/// Netty's servers close a connection after 200 in 30 s (since 4.1.100); Envoy's limit is wider.
pub const RESETS_IN_WINDOW: usize = 150;

/// The time over which [`RESETS_IN_WINDOW`] counts: Netty's.
pub const RESET_WINDOW: Duration = Duration::from_secs(30);

/// The resets that one endpoint may still be sent.
///
/// At most 2.4 KiB once resets were sent, nothing on the heap before.
///
/// ```
/// # use std::time::Duration;
/// # use tonic_hedge_engine::endpoint::ResetRation;
/// let ration = ResetRation::new();
/// let granted = (0..20).filter(|_| ration.try_reset(Duration::ZERO)).count();
/// assert_eq!(granted, 16);
/// ration.answered();
/// assert!(ration.try_reset(Duration::ZERO));
/// ```
#[derive(Debug, Default)]
pub struct ResetRation {
    unanswered: AtomicU32,
    /// When each reset of the window was granted, oldest first. The lock makes a grant one
    /// step; it is taken for a loser only, never for a call that was answered.
    granted: Mutex<VecDeque<Duration>>,
}

impl ResetRation {
    /// A full ration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one reset if there is one left, and says whether the attempt may be reset.
    pub fn try_reset(&self, now: Duration) -> bool {
        let mut granted = self.granted.lock();
        while let Some(&oldest) = granted.front() {
            if now.saturating_sub(oldest) < RESET_WINDOW {
                break;
            }
            granted.pop_front();
        }
        if granted.len() >= RESETS_IN_WINDOW {
            return false;
        }
        // Only increments are behind the lock, so this cannot pass the limit; an answer that
        // comes in between only makes room. Relaxed: the count guards no other memory.
        if self.unanswered.load(Ordering::Relaxed) >= RESETS_UNANSWERED {
            return false;
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        granted.push_back(now);
        true
    }

    /// The endpoint answered something: it accepts streams again.
    pub fn answered(&self) {
        // Every answered call comes here and nearly none finds a count: look before
        // writing, so that the line stays shared among cores.
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Resets since the last answer.
    pub fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn sixteen_without_an_answer_and_no_seventeenth() {
        let ration = ResetRation::new();
        assert!((0..16).all(|_| ration.try_reset(secs(0))));
        assert!(!ration.try_reset(secs(0)));
        // Time alone does not help: the endpoint is as silent as before.
        assert!(!ration.try_reset(secs(3600)));
        ration.answered();
        assert!((0..16).all(|_| ration.try_reset(secs(3600))));
        assert!(!ration.try_reset(secs(3600)));
    }

    #[test]
    fn a_hundred_and_fifty_in_thirty_seconds_and_no_more() {
        let ration = ResetRation::new();
        let reset = |now| {
            ration.answered();
            ration.try_reset(now)
        };
        assert!((0..150).all(|_| reset(secs(100))));
        assert!(!reset(secs(100)));
        assert!(!reset(Duration::from_millis(129_999)));
        assert!((0..150).all(|_| reset(secs(130))));
        assert!(!reset(secs(130)));
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let ration = ResetRation::new();
        for _ in 0..1000 {
            ration.try_reset(secs(0));
        }
        assert_eq!(ration.unanswered(), 16);
        ration.answered();
        assert!(ration.try_reset(secs(1)));
    }

    #[test]
    fn threads_together_get_sixteen() {
        for _ in 0..500 {
            let ration = ResetRation::new();
            let granted: usize = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| (0..8).filter(|_| ration.try_reset(secs(0))).count()))
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert_eq!(granted, 16);
        }
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_150(steps in prop::collection::vec((0..400_u64, any::<bool>()), 0..1500)) {
            let ration = ResetRation::new();
            let mut now = Duration::ZERO;
            let mut granted = Vec::new();
            for (pause, answered) in steps {
                now += Duration::from_millis(pause);
                if answered {
                    ration.answered();
                }
                if ration.try_reset(now) {
                    granted.push(now);
                }
            }
            for window in granted.windows(151) {
                prop_assert!(window[150] - window[0] >= RESET_WINDOW);
            }
        }
    }
}
