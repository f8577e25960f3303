//! The tokens that replicas write, and those of them that nobody reads.

use std::{
    collections::{HashSet, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

/// A replica learns of its stream's end within a round trip; this many calls later it has.
const REMEMBERED: usize = 4_096;

/// Counts of one gateway's replicas. A replica sees that a stream is cancelled, not by whom, so
/// the gateway tells which calls their callers have left: what is cancelled besides has lost a race.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    sent: AtomicU64,
    lost: AtomicU64,
    left: AtomicU64,
    leavers: Mutex<Leavers>,
}

#[derive(Debug, Default)]
struct Leavers {
    calls: HashSet<u64>,
    order: VecDeque<u64>,
}

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// By all attempts.
    pub(crate) sent: u64,
    /// By attempts that lost a race.
    pub(crate) lost: u64,
    /// By attempts whose caller had enough.
    pub(crate) left: u64,
}

impl Tokens {
    pub(crate) fn sent(&self) {
        // Relaxed, here and below: counts that guard nothing.
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// The caller goes: told before the call's attempt is dropped.
    pub(crate) fn caller_leaves(&self, call: u64) {
        let mut leavers = self.leavers.lock();
        if leavers.calls.insert(call) {
            leavers.order.push_back(call);
        }
        if leavers.order.len() > REMEMBERED
            && let Some(oldest) = leavers.order.pop_front()
        {
            leavers.calls.remove(&oldest);
        }
    }

    /// An attempt of the call was cancelled after so many tokens.
    pub(crate) fn cut(&self, call: u64, tokens: u64) {
        let by_caller = self.leavers.lock().calls.contains(&call);
        let count = if by_caller { &self.left } else { &self.lost };
        count.fetch_add(tokens, Ordering::Relaxed);
    }

    pub(crate) fn spent(&self) -> Spent {
        Spent {
            sent: self.sent.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            left: self.left.load(Ordering::Relaxed),
        }
    }
}
