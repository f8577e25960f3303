//! How the hedges of one call ended.

use std::sync::Arc;

use crate::method::{HedgeEnd, Method};

/// Counts the end of each of a call's hedges once, so that those started are those ended.
pub(super) struct Unended {
    method: Arc<Method>,
    count: u64,
}

impl Unended {
    pub(super) fn new(method: Arc<Method>) -> Self {
        Self { method, count: 0 }
    }

    pub(super) fn started(&mut self) {
        self.count += 1;
    }

    pub(super) fn ended(&mut self, end: HedgeEnd) {
        if let Some(rest) = self.count.checked_sub(1) {
            self.count = rest;
            self.method.stats().hedge_ended(end);
            self.method.telemetry().hedge_ended(end);
        }
    }
}

impl Drop for Unended {
    /// What is left never reached a server, and found no other endpoint.
    fn drop(&mut self) {
        while self.count > 0 {
            self.ended(HedgeEnd::Failed);
        }
    }
}
