//! Latencies that somebody measured.

use std::{fmt, sync::Arc, time::Duration};

use fastrand::Rng;

/// Recorded latencies, of which each attempt has one, each equally likely and independent of the
/// others: what they say of the time between calls is lost.
#[derive(Clone)]
pub struct Recorded(Arc<[Duration]>);

impl Recorded {
    /// `None` without a latency.
    pub fn new(latencies: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let latencies: Arc<[_]> = latencies.into_iter().collect();
        (!latencies.is_empty()).then_some(Self(latencies))
    }

    pub(super) fn draw(&self, draws: &mut Rng) -> Duration {
        self.0[draws.usize(..self.0.len())]
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorded({} latencies)", self.0.len())
    }
}
