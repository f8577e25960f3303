//! What lanes hand on to the next process.

use std::time::Duration;

use super::Lanes;
use crate::learned::{LanesLearned, Taken};

impl Lanes {
    /// The limits as of now, for the next process: see [`Lanes::resume_from`].
    pub fn learned(&self) -> LanesLearned {
        let lanes = self.0.lanes.iter();
        LanesLearned {
            taken: Taken::now(),
            limits: lanes
                .map(|lane| (String::from(&*lane.name), lane.lane.limit()))
                .collect(),
        }
    }

    /// Goes on from limits that were learnt before, each within its lane's bounds, and returns how many
    /// lanes do.
    ///
    /// Nothing is taken of what is older than `max_age` or more than a minute from the future, or was
    /// written by a version that wrote it otherwise; a limit without a lane of its name is left out.
    /// One log line says so.
    pub fn resume_from(&self, learned: &LanesLearned, max_age: Duration) -> usize {
        if !learned.taken.accepts(max_age) {
            return 0;
        }
        let limits = learned.limits.iter();
        let known = limits.filter(|(lane, limit)| self.resume(lane, **limit));
        let lanes = known.count();
        let unknown = learned.limits.len() - lanes;
        tracing::info!(lanes, unknown, "goes on from what was learnt before");
        lanes
    }
}
