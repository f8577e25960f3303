//! Notices channels that are built for a call or two and dropped: they never learn a threshold.

use std::sync::atomic::{AtomicU32, Ordering};

/// A channel that saw fewer calls than this has not even the samples of the default policy.
const FEW_CALLS: u64 = 20;

/// One short-lived channel is a test or a tool; this many are a habit.
const HABIT: u32 = 10;

/// Short-lived channels of this process.
static SHORT_LIVED: AtomicU32 = AtomicU32::new(0);

/// A channel that made `calls` calls was dropped. Warns once in the life of the process.
pub(super) fn dropped_after(calls: u64) {
    if (1..FEW_CALLS).contains(&calls) && SHORT_LIVED.fetch_add(1, Ordering::Relaxed) + 1 == HABIT {
        tracing::warn!(
            channels = HABIT,
            fewer_calls_than = FEW_CALLS,
            "HedgedChannels are built and dropped after a few calls each: what a channel has \
             learnt lives with it, so none of these will ever hedge; build one and clone it"
        );
    }
}
