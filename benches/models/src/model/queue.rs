//! Replicas with a few servers and a bounded queue: further attempts make all calls slower.

use std::collections::VecDeque;

use crate::latency::Latency;

/// Replicas on which attempts wait for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueModel {
    /// Replicas in all.
    pub replicas: usize,
    /// Attempts that one replica serves at once.
    pub servers: usize,
    /// Attempts that wait at one replica; the next one is refused at once, which is a failure.
    pub waiting: usize,
    /// What serving one takes.
    pub work: Latency,
}

impl QueueModel {
    /// Three replicas of four servers, with twice as many waiting: 240 calls a second.
    pub const USUAL: Self = Self {
        replicas: 3,
        servers: 4,
        waiting: 8,
        work: Latency::Exponential,
    };

    /// Calls in a second that it can serve at most.
    pub fn capacity(&self) -> f64 {
        (self.replicas * self.servers) as f64 / self.work.mean().as_secs_f64()
    }

    /// One replica's queue, empty.
    pub fn queue(&self) -> Queue {
        Queue::new(self.servers, self.waiting)
    }
}

/// The servers of one replica and those who wait for them, first come, first served.
///
/// It keeps no time: whoever owns it says when a server is done.
#[derive(Clone, Debug)]
pub struct Queue {
    servers: usize,
    bound: usize,
    busy: usize,
    waiting: VecDeque<u64>,
}

/// What became of an attempt that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A server has begun.
    Served,
    /// It waits.
    Waits,
    /// There is no room.
    Refused,
}

impl Queue {
    /// Idle servers; `bound` attempts may wait for them.
    pub fn new(servers: usize, bound: usize) -> Self {
        Self {
            servers,
            bound,
            busy: 0,
            waiting: VecDeque::new(),
        }
    }

    /// An attempt comes, by a name that no other has.
    pub fn arrive(&mut self, name: u64) -> Place {
        if self.busy < self.servers {
            self.busy += 1;
            Place::Served
        } else if self.waiting.len() < self.bound {
            self.waiting.push_back(name);
            Place::Waits
        } else {
            Place::Refused
        }
    }

    /// An attempt is discarded: it leaves if it waits, and is served to its end if it does not.
    pub fn leave(&mut self, name: u64) {
        self.waiting.retain(|it| *it != name);
    }

    /// A server is done. It begins with the attempt that is returned.
    pub fn served(&mut self) -> Option<u64> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.busy -= 1;
        }
        next
    }

    /// Servers at work.
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// Attempts that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
