//! The hedges of one call that have not ended.

use std::sync::Arc;

use tonic_hedge_engine::lane::Extra;

use crate::method::{HedgeEnd, Method};

/// Counts the end of each of a call's hedges once, so that those started are those ended, and holds
/// their places in the call's lane.
pub(super) struct Unended {
    method: Arc<Method>,
    count: u64,
    /// Empty where the call is in no lane. Which of them goes back first is the same to the lane.
    places: Vec<Extra>,
}

impl Unended {
    pub(super) fn new(method: Arc<Method>) -> Self {
        Self {
            method,
            count: 0,
            places: Vec::new(),
        }
    }

    pub(super) fn started(&mut self, place: Option<Extra>) {
        self.count += 1;
        self.places.extend(place);
    }

    pub(super) fn ended(&mut self, end: HedgeEnd) {
        if let Some(rest) = self.count.checked_sub(1) {
            self.count = rest;
            drop(self.places.pop());
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
