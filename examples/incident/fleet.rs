//! Three replicas, and what becomes of them from phase to phase.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tonic::Status;

use crate::{
    queue::Queue,
    replica::Replica,
    script::{Arrival, Script, service},
};

/// Calls per second, in all phases.
pub(crate) const RATE: f64 = 80.0;

/// What an attempt takes in microseconds, unless something is wrong.
const USUAL: Range<u64> = 20_000..40_000;

/// The time to a failure, and the least to an answer while others fail.
const FAILING: Duration = Duration::from_millis(38);

/// Of a hundred attempts two meet a pause at any time.
const PAUSED: Range<u64> = 120_000..250_000;

/// In the tail twice as many pause, for longer.
const PAUSED_LONG: Range<u64> = 400_000..800_000;

/// Served at once by one replica that is overloaded. With work of 105 ms on average, three
/// replicas serve 57 calls a second: the rate is 140 % of it.
const SLOTS: usize = 2;
const OVERLOADED: Range<u64> = 75_000..135_000;

/// Waiting at one replica.
const WAITING: usize = 8;

/// What the replicas go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Two attempts in a hundred pause.
    Steady,
    /// Four pause, for long, each at its own replica: what hedging is for.
    Tail,
    /// All take ten times as long, wherever they go: whatever they share is slow.
    Brownout,
    /// Four calls in ten fail, wherever they go.
    Failing,
    /// More comes than can be served: queues fill, and the rest is refused.
    Overload,
    /// As in the beginning.
    Recovery,
}

impl Phase {
    pub(crate) const ALL: [Self; 6] = [
        Self::Steady,
        Self::Tail,
        Self::Brownout,
        Self::Failing,
        Self::Overload,
        Self::Recovery,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Tail => "tail",
            Self::Brownout => "brownout",
            Self::Failing => "failing",
            Self::Overload => "overload",
            Self::Recovery => "recovery",
        }
    }
}

/// Running replicas.
pub(crate) struct Fleet {
    replicas: Vec<Replica>,
    /// The place in [`Phase::ALL`].
    phase: Arc<AtomicU8>,
}

impl Fleet {
    pub(crate) async fn start() -> io::Result<Self> {
        let phase = Arc::new(AtomicU8::new(0));
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let suffering = Suffering {
                phase: Arc::clone(&phase),
                queue: Queue::new(SLOTS, WAITING),
            };
            replicas.push(Replica::start(service(suffering)).await?);
        }
        Ok(Self { replicas, phase })
    }

    pub(crate) fn uris(&self) -> impl Iterator<Item = String> {
        self.replicas.iter().map(Replica::uri)
    }

    /// From now on.
    pub(crate) fn enter(&self, phase: Phase) {
        // Relaxed: whichever phase an attempt on the edge sees is right.
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

/// One replica's script.
struct Suffering {
    phase: Arc<AtomicU8>,
    queue: Queue,
}

impl Script for Suffering {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        let phase = Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))];
        let mut draws = arrival.draws();
        match phase {
            Phase::Steady | Phase::Recovery => sleep(work(&mut draws, 2, PAUSED)).await,
            Phase::Tail => sleep(work(&mut draws, 4, PAUSED_LONG)).await,
            Phase::Brownout => {
                // The call's own draw, not the attempt's: a second attempt waits for the same.
                let mut draws = Arrival {
                    before: 0,
                    ..arrival
                }
                .draws();
                sleep(work(&mut draws, 2, PAUSED) * 10).await;
            }
            Phase::Failing => {
                // Two of five, and answers in the order of calls: five failures in a row would
                // open the breaker.
                if arrival.call * 2 % 5 < 2 {
                    sleep(FAILING).await;
                    return Err(Status::internal("a shard is broken"));
                }
                sleep(work(&mut draws, 2, PAUSED).max(FAILING)).await;
            }
            Phase::Overload => {
                let work = Duration::from_micros(draws.u64(OVERLOADED));
                self.queue.serve(work).await?;
            }
        }
        Ok(())
    }
}

/// The usual, but for `percent` of the attempts, which pause.
fn work(draws: &mut fastrand::Rng, percent: u32, pause: Range<u64>) -> Duration {
    Duration::from_micros(match draws.u32(0..100) < percent {
        true => draws.u64(pause),
        false => draws.u64(USUAL),
    })
}
