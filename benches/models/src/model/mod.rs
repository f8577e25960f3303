//! What an attempt meets at a replica.
//!
//! One file for each way in which replicas are slow:
//!
//! - [`SlowReplica`]: one of them is slow, for a while or always.
//! - [`Pauses`]: each in turn stops.
//! - [`Brownout`]: all are slow for a while.
//! - [`Queue`]: further attempts make all slower.
//! - [`Recorded`]: latencies that somebody measured.
//! - [`Scripted`]: whatever a test says.

mod brownout;
mod pauses;
mod queue;
mod recorded;
mod scripted;
mod slow;
mod spells;

pub use self::{
    brownout::Brownout,
    pauses::Pauses,
    queue::{Place, Queue, QueueModel},
    recorded::Recorded,
    scripted::Scripted,
    slow::SlowReplica,
    spells::Spells,
};

use std::time::Duration;

use fastrand::Rng;
use tonic_hedge_engine::race::Verdict;

use crate::{
    draws::{Draws, Purpose},
    latency::Latency,
};

/// A service's replicas.
#[derive(Clone, Debug)]
pub enum Model {
    /// Each attempt draws for itself, wherever it goes.
    Independent(Latency),
    /// One replica is slow.
    SlowReplica(SlowReplica),
    /// The replicas stop in turn.
    Pauses(Pauses),
    /// All are slow for a while.
    Brownout(Brownout),
    /// Attempts wait for each other.
    Queue(QueueModel),
    /// Each attempt has one of the recorded latencies.
    Recorded(Recorded),
    /// Whatever a test says.
    Scripted(Scripted),
}

/// An attempt as it reaches a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The same for all attempts of a call.
    pub call: u64,
    /// Launches of the call before this one.
    pub number: u32,
    /// The replica, from 0.
    pub replica: usize,
    /// When, since the world's start.
    pub clock: Duration,
}

/// What an attempt meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It ends `after` that time.
    Ends {
        /// From its arrival.
        after: Duration,
        /// How.
        verdict: Verdict,
    },
    /// It has to be served: when it ends depends on those before it.
    Work(Duration),
}

/// Replicas that are as good as any number to models in which nothing depends on the replica:
/// every attempt of a call (3 by default) has one of its own.
const REPLICAS: usize = 5;

impl Model {
    /// One of each, with parameters that are usual for it.
    pub const ALL: [Self; 9] = [
        Self::Independent(Latency::Uniform),
        Self::Independent(Latency::LogNormal),
        Self::Independent(Latency::BIMODAL),
        Self::Independent(Latency::Pareto),
        Self::SlowReplica(SlowReplica::ALWAYS),
        Self::SlowReplica(SlowReplica::FOR_A_WHILE),
        Self::Pauses(Pauses::USUAL),
        Self::Brownout(Brownout::USUAL),
        Self::Queue(QueueModel::USUAL),
    ];

    /// A test's own model: `meets` is told of each attempt and draws what it needs. It has five
    /// replicas and the name `scripted`.
    pub fn scripted(
        meets: impl Fn(&Attempt, &mut Rng) -> (Duration, Verdict) + Send + Sync + 'static,
    ) -> Self {
        Self::Scripted(Scripted::new(REPLICAS, meets))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Independent(latency) => latency.name(),
            Self::SlowReplica(model) => model.name(),
            Self::Pauses(_) => "pauses",
            Self::Brownout(_) => "brownout",
            Self::Queue(_) => "queue",
            Self::Recorded(_) => "recorded",
            Self::Scripted(_) => "scripted",
        }
    }

    /// How many replicas it has.
    pub fn replicas(&self) -> usize {
        match self {
            Self::Independent(_) | Self::Recorded(_) => REPLICAS,
            Self::SlowReplica(model) => model.replicas,
            Self::Pauses(model) => model.replicas,
            Self::Brownout(_) => REPLICAS,
            Self::Queue(model) => model.replicas,
            Self::Scripted(model) => model.replicas,
        }
    }

    /// Calls in a second that are usual for it: 200, and 70 % of a queue's capacity.
    pub fn usual_rate(&self) -> f64 {
        match self {
            Self::Queue(model) => 0.7 * model.capacity(),
            _ => 200.0,
        }
    }

    /// An empty queue as each of its replicas has one; `None` where nobody waits.
    pub fn queue(&self) -> Option<Queue> {
        match self {
            Self::Queue(model) => Some(model.queue()),
            _ => None,
        }
    }

    /// What the attempt meets, always the same for the same seed and attempt.
    pub fn meet(&self, draws: Draws, attempt: &Attempt) -> Met {
        let rng = &mut draws.of(Purpose::Work, attempt.call, attempt.number);
        let after = match self {
            Self::Independent(latency) => latency.draw(rng),
            Self::SlowReplica(model) => model.draw(attempt, rng),
            Self::Pauses(model) => model.draw(attempt, rng),
            Self::Brownout(model) => model.draw(attempt, rng),
            Self::Recorded(model) => model.draw(rng),
            Self::Queue(model) => return Met::Work(model.work.draw(rng)),
            Self::Scripted(model) => {
                let (after, verdict) = model.meet(attempt, rng);
                return Met::Ends { after, verdict };
            }
        };
        Met::Ends {
            after,
            verdict: Verdict::Answer,
        }
    }
}
