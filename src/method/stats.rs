//! Counters of one method: what its calls came to.

use std::sync::atomic::{AtomicU64, Ordering};

use tonic_hedge_engine::gate::{Gate, Hold, Reason};

use crate::log::AttemptKind;

/// Counts since the channel was built. They guard no other memory, so every ordering is
/// relaxed.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    attempts: AtomicU64,
    hedges: AtomicU64,
    hedges_ended: [AtomicU64; 4],
    retries: AtomicU64,
    replacements: AtomicU64,
    suppressed: [AtomicU64; REASONS.len()],
}

/// How a hedge ended. Each that started ends in one of these ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HedgeEnd {
    /// Its OK became the call's.
    Won,
    /// Another attempt's answer came first.
    Lost,
    /// In an error of its own, whether or not that became the call's.
    Failed,
    /// The call's deadline passed, or its caller went away.
    Abandoned,
}

/// Every reason to keep a hedge back, in the order of reports.
const REASONS: [Reason; 15] = [
    Reason::Gate(Gate::HedgeConfigured),
    Reason::Gate(Gate::Repeatable),
    Reason::Gate(Gate::BreakerClosed),
    Reason::Gate(Gate::ErrorRate),
    Reason::Gate(Gate::Samples),
    Reason::Gate(Gate::Budget),
    Reason::Gate(Gate::NotSheddable),
    Reason::Hold(Hold::WinRate),
    Reason::Hold(Hold::Load),
    Reason::Hold(Hold::Saturation),
    Reason::Hold(Hold::OtherEndpoint),
    Reason::Hold(Hold::Lane),
    Reason::Hold(Hold::Inherited),
    Reason::Hold(Hold::MaxAttempts),
    Reason::Hold(Hold::Deadline),
];

/// A snapshot of [`Stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatsReading {
    pub(crate) calls: u64,
    pub(crate) attempts: u64,
    pub(crate) hedges: u64,
    pub(crate) hedges_won: u64,
    pub(crate) hedges_lost: u64,
    pub(crate) hedges_failed: u64,
    pub(crate) hedges_abandoned: u64,
    pub(crate) retries: u64,
    pub(crate) replacements: u64,
    /// Only the reasons that occurred.
    pub(crate) suppressed: Vec<(Reason, u64)>,
}

impl Stats {
    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn launched(&self, kind: AttemptKind) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let counter = match kind {
            AttemptKind::Original => return,
            AttemptKind::Hedge => &self.hedges,
            AttemptKind::Retry => &self.retries,
            AttemptKind::Replacement => &self.replacements,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hedge_ended(&self, end: HedgeEnd) {
        self.hedges_ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn suppressed(&self, reason: Reason) {
        let place = REASONS.iter().position(|known| *known == reason);
        if let Some(counter) = place.and_then(|place| self.suppressed.get(place)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reading(&self) -> StatsReading {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = |end: HedgeEnd| read(&self.hedges_ended[end as usize]);
        StatsReading {
            calls: read(&self.calls),
            attempts: read(&self.attempts),
            hedges: read(&self.hedges),
            hedges_won: ended(HedgeEnd::Won),
            hedges_lost: ended(HedgeEnd::Lost),
            hedges_failed: ended(HedgeEnd::Failed),
            hedges_abandoned: ended(HedgeEnd::Abandoned),
            retries: read(&self.retries),
            replacements: read(&self.replacements),
            suppressed: REASONS
                .into_iter()
                .zip(self.suppressed.iter().map(read))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}
