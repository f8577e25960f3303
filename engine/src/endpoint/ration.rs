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

/// Resets that are remembered as unanswered when they could not be refused. So many are far
/// past what any server forgives.
const REMEMBERED: usize = 256;

/// The resets that one endpoint may still be sent.
///
/// A server takes the streams of a connection in their order. So an answer says that streams
/// that were launched before its own are accepted, and nothing of later ones: answers that are
/// still on their way when a server stalls make no room.
///
/// At most 6.4 KiB once resets were sent, nothing on the heap before.
///
/// ```
/// # use std::time::Duration;
/// # use tonic_hedge_engine::endpoint::ResetRation;
/// let ration = ResetRation::new();
/// let at = Duration::from_millis;
/// // Twenty attempts launched one after the other, cut off together.
/// let granted = (0..20).filter(|id| ration.try_reset(at(30), at(*id))).count();
/// assert_eq!(granted, 16);
/// // The answer to an attempt launched at 12 ms.
/// ration.answered(at(12));
/// assert_eq!(ration.unanswered(), 3);
/// assert!(ration.try_reset(at(31), at(16)));
/// ```
#[derive(Debug, Default)]
pub struct ResetRation {
    /// How many are unanswered: what an answered call looks at before it takes the lock.
    unanswered: AtomicU32,
    /// The lock makes a grant one step; it is taken for losers, and by the answers that follow
    /// them.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When each reset of the window was granted, oldest first.
    granted: VecDeque<Duration>,
    /// When each attempt was launched that was reset and may not be accepted.
    unanswered: Vec<Duration>,
    /// The latest launch that is known to be accepted.
    accepted: Option<Duration>,
}

impl ResetRation {
    /// A full ration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one reset if there is one left, and says whether the attempt may be reset that was
    /// launched at `launched`.
    pub fn try_reset(&self, now: Duration, launched: Duration) -> bool {
        let mut state = self.state.lock();
        state.expire(now);
        let open = state.is_open(launched);
        if state.granted.len() >= RESETS_IN_WINDOW
            || open && state.unanswered.len() >= RESETS_UNANSWERED as usize
        {
            return false;
        }
        self.note(&mut state, now, launched);
        true
    }

    /// Counts a reset that happens whatever the ration says.
    pub fn forced(&self, now: Duration, launched: Duration) {
        let mut state = self.state.lock();
        state.expire(now);
        if state.granted.len() >= RESETS_IN_WINDOW {
            state.granted.pop_front();
        }
        self.note(&mut state, now, launched);
    }

    fn note(&self, state: &mut State, now: Duration, launched: Duration) {
        state.granted.push_back(now);
        if state.is_open(launched) && state.unanswered.len() < REMEMBERED {
            state.unanswered.push(launched);
            self.publish(state);
        }
    }

    /// The endpoint answered an attempt that was launched at `launched`.
    pub fn answered(&self, launched: Duration) {
        // Every answered call comes here and nearly none finds a count: look before locking.
        // One that is missed is found by the next answer.
        if self.unanswered.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.accepted = state.accepted.max(Some(launched));
        state.unanswered.retain(|reset| *reset > launched);
        self.publish(&state);
    }

    /// Resets of attempts that may not have been accepted.
    pub fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Written behind the lock only; relaxed, since the lock guards what is counted.
    fn publish(&self, state: &State) {
        self.unanswered
            .store(state.unanswered.len() as u32, Ordering::Relaxed);
    }
}

impl State {
    fn expire(&mut self, now: Duration) {
        while let Some(&oldest) = self.granted.front() {
            if now.saturating_sub(oldest) < RESET_WINDOW {
                break;
            }
            self.granted.pop_front();
        }
    }

    /// Whether the attempt may not have been accepted.
    fn is_open(&self, launched: Duration) -> bool {
        self.accepted.is_none_or(|accepted| accepted < launched)
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
        assert!((0..16).all(|_| ration.try_reset(secs(0), secs(0))));
        assert!(!ration.try_reset(secs(0), secs(0)));
        // Time alone does not help: the endpoint is as silent as before.
        assert!(!ration.try_reset(secs(3600), secs(1)));
        ration.answered(secs(0));
        assert!((0..16).all(|_| ration.try_reset(secs(3600), secs(1))));
        assert!(!ration.try_reset(secs(3600), secs(1)));
    }

    #[test]
    fn a_hundred_and_fifty_in_thirty_seconds_and_no_more() {
        let ration = ResetRation::new();
        let reset = |now| {
            ration.answered(now);
            ration.try_reset(now, now)
        };
        assert!((0..150).all(|_| reset(secs(100))));
        assert!(!reset(secs(100)));
        assert!(!reset(Duration::from_millis(129_999)));
        assert!((0..150).all(|_| reset(secs(130))));
        assert!(!reset(secs(130)));
    }

    /// The answers that are on their way when the server stops say nothing of what follows.
    #[test]
    fn an_answer_speaks_for_older_attempts_only() {
        let ration = ResetRation::new();
        assert!((1..=16).all(|launched| ration.try_reset(secs(20), secs(launched))));
        ration.answered(Duration::from_millis(500));
        assert!(!ration.try_reset(secs(20), secs(17)));
        ration.answered(secs(10));
        assert_eq!(ration.unanswered(), 6);
        // What is known to be accepted takes none of the sixteen.
        assert!((0..20).all(|_| ration.try_reset(secs(20), secs(9))));
        assert_eq!(ration.unanswered(), 6);
        assert!((17..=26).all(|launched| ration.try_reset(secs(30), secs(launched))));
        assert!(!ration.try_reset(secs(30), secs(27)));
    }

    #[test]
    fn a_forced_reset_counts() {
        let ration = ResetRation::new();
        (0..20).for_each(|_| ration.forced(secs(1), secs(1)));
        assert!(!ration.try_reset(secs(1), secs(1)));
        assert_eq!(ration.unanswered(), 20);
        (0..1_000).for_each(|_| ration.forced(secs(1), secs(1)));
        assert_eq!(ration.unanswered(), REMEMBERED as u32);
        ration.answered(secs(1));
        assert!(!ration.try_reset(secs(1), secs(2)), "150 in 30 s");
        assert!(ration.try_reset(secs(31), secs(2)));
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let ration = ResetRation::new();
        for _ in 0..1000 {
            ration.try_reset(secs(0), secs(0));
        }
        assert_eq!(ration.unanswered(), 16);
        ration.answered(secs(0));
        assert!(ration.try_reset(secs(1), secs(1)));
    }

    #[test]
    fn threads_together_get_sixteen() {
        for _ in 0..500 {
            let ration = ResetRation::new();
            let granted: usize = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            (0..8)
                                .filter(|_| ration.try_reset(secs(0), secs(0)))
                                .count()
                        })
                    })
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
                    ration.answered(now);
                }
                if ration.try_reset(now, now) {
                    granted.push(now);
                }
            }
            for window in granted.windows(151) {
                prop_assert!(window[150] - window[0] >= RESET_WINDOW);
            }
        }
    }
}
