//! A line to an endpoint: a clone of tonic's channel for one attempt, kept for the next one.
//!
//! tonic's channel is a queue, and each clone of it has a future of its own that waits for a place
//! there: two allocations. A clone whose request is in the queue is as good as new.

use std::sync::atomic::Ordering;

use tonic::transport::Channel;

use super::Endpoint;

/// tonic's channel to one connection of an endpoint. It holds no place in the channel's queue.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    /// The number of its connection.
    pub(super) connection: u64,
}

impl Endpoint {
    /// The current connection, if there is one that is not known to be lost.
    pub(crate) fn line(&self) -> Option<Line> {
        // Relaxed, as in `is_ready`.
        let connection = self.hot.up.load(Ordering::Relaxed);
        if connection == 0 {
            return None;
        }
        // Whoever holds it takes or puts a line, nothing else. A clone is better than a wait.
        let spare = match self.spare.try_lock() {
            Some(mut spare) => spare.take_if(|line| line.connection == connection),
            None => None,
        };
        spare.or_else(|| {
            let link = self.hot.link.load();
            let link = link.as_ref().filter(|link| link.health.is_up())?;
            Some(Line {
                channel: link.channel.clone(),
                connection: link.number(),
            })
        })
    }

    /// Keeps a line for the next attempt. Its request must have been sent: one that has been found
    /// ready, or still waits for that, has a place in the queue, which nobody else would get.
    pub(crate) fn keep(&self, line: Line) {
        let Some(mut spare) = self.spare.try_lock() else {
            return;
        };
        // Under the lock, which whoever ends a connection takes after it has said so: the line of a
        // connection that is gone is never kept, and with it what tonic runs for it.
        let current = self.hot.up.load(Ordering::Relaxed) == line.connection;
        if current && spare.is_none() {
            *spare = Some(line);
        }
    }
}
