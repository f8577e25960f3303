//! Hedging never tips an overloaded fleet over: whole channels and servers under virtual time.
//!
//! The servers' queues are finite, and the calls come whether or not answers do. Everything runs
//! on one thread over in-memory pipes, so that the paused clock moves only when nothing else can.

#![allow(clippy::unwrap_used)]

#[path = "../examples/support/queue.rs"]
mod queue;
#[path = "../examples/support/script.rs"]
mod script;
#[path = "../examples/support/traffic.rs"]
#[expect(dead_code, reason = "only codes are looked at, not latencies")]
mod traffic;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::{io::DuplexStream, sync::mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Server, Uri},
};
use tonic_hedge::{BreakerPolicy, EndpointSpec, Hedge, HedgedChannel};

use queue::Queue;
use script::{Arrival, Script, probe};
use traffic::{exponential, offer, schedule};

const REPLICAS: usize = 3;
const SLOTS: usize = 4;
const WAITING: usize = 8;

/// Mean of the exponential work.
const WORK: Duration = Duration::from_millis(200);

/// Calls per second that the replicas can serve: all slots over the mean work.
const CAPACITY: f64 = 60.0;

const SEED: u64 = 1;

/// What hedging may change.
const TOLERANCE: f64 = 0.03;

struct Served {
    queue: Queue,
    /// Attempts of calls from `tips` on.
    upstream: Arc<AtomicU64>,
    tips: u64,
}

impl Script for Served {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        if arrival.call >= self.tips {
            self.upstream.fetch_add(1, Ordering::Relaxed);
        }
        let work = exponential(&mut arrival.draws());
        self.queue.serve(WORK.mul_f64(work)).await
    }
}

/// A channel to a server of its own, over in-memory pipes.
fn connect(script: impl Script) -> Channel {
    let (sender, receiver) = mpsc::unbounded_channel::<io::Result<DuplexStream>>();
    let serving = Server::builder()
        .add_service(script::service(script))
        .serve_with_incoming(UnboundedReceiverStream::new(receiver));
    tokio::spawn(serving);
    Endpoint::from_static("http://replica").connect_with_connector_lazy(tower::service_fn(
        move |_: Uri| {
            let (client, server) = tokio::io::duplex(1 << 20);
            let sent = sender.send(Ok(server));
            async move {
                sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok::<_, io::Error>(TokioIo::new(client))
            }
        },
    ))
}

/// What came of the calls that came while more than the capacity was offered.
#[derive(Debug, Default)]
struct Outcome {
    /// Attempts that reached a replica.
    upstream: u64,
    good: u64,
    hedges: u64,
    held: Vec<(&'static str, u64)>,
}

/// Offers `load` of the capacity, as a share by time.
async fn run(hedging: bool, length: Duration, load: fn(Duration) -> f64) -> Outcome {
    let calls = schedule(SEED, length, |at| CAPACITY * load(at));
    let tips = calls.partition_point(|at| load(*at) <= 1.0);
    let upstream = Arc::new(AtomicU64::new(0));
    let replicas = (0..REPLICAS).map(|number| {
        let served = Served {
            queue: Queue::new(SLOTS, WAITING),
            upstream: Arc::clone(&upstream),
            tips: tips as u64,
        };
        EndpointSpec::channel(format!("replica-{number}"), connect(served))
    });
    let mut channel = HedgedChannel::builder()
        .endpoints(replicas)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        // Refusals come in rows, and five in a row open the default breaker, which then spares
        // the replicas the overload.
        .breaker(BreakerPolicy::default().consecutive(u32::MAX));
    if hedging {
        channel = channel.hedge(Hedge::at(0.95));
    }
    let channel = channel.build().unwrap();
    let seen = offer(&channel, 0, &calls).await.unwrap();
    let good = seen[tips..].iter().filter(|call| call.code == Code::Ok);
    let method = &channel.measured().methods[0];
    Outcome {
        upstream: upstream.load(Ordering::Relaxed),
        good: good.count() as u64,
        hedges: method.hedges,
        held: method.suppressed.clone(),
    }
}

/// Returns the hedges of the whole run.
async fn hedging_changes_little(length: Duration, load: fn(Duration) -> f64) -> u64 {
    let (with, without) = (
        run(true, length, load).await,
        run(false, length, load).await,
    );
    let seen = format!("{with:?}, and without {without:?}");
    assert!(
        with.held.iter().any(|(gate, _)| *gate == "error_rate"),
        "{seen}"
    );
    let within = |with: u64, without: u64| with as f64 <= without as f64 * (1.0 + TOLERANCE);
    assert!(within(with.upstream, without.upstream), "{seen}");
    assert!(within(without.good, with.good), "{seen}");
    with.hedges
}

#[tokio::test(start_paused = true)]
async fn overload_from_the_start() {
    hedging_changes_little(Duration::from_secs(40), |_| 1.4).await;
}

/// Whatever fails in a process of a few seconds is most of what it knows, and not usual for that.
#[tokio::test(start_paused = true)]
async fn overload_of_a_young_process() {
    let climb = |at: Duration| 0.8 + 0.06 * (at.as_secs_f64() - 15.0).clamp(0.0, 10.0);
    let hedges = hedging_changes_little(Duration::from_secs(60), climb).await;
    assert!(hedges > 0, "it was healthy before");
}

#[tokio::test(start_paused = true)]
async fn overload_after_ten_quiet_minutes() {
    let climb = |at: Duration| match at.as_secs_f64() - 600.0 {
        quiet if quiet < 0.0 => 0.08,
        since => 0.9 + 0.05 * (since - 10.0).clamp(0.0, 10.0),
    };
    let hedges = hedging_changes_little(Duration::from_secs(650), climb).await;
    assert!(hedges > 0, "it was healthy before");
}
