//! Hedging never tips an overloaded fleet over: whole channels and servers under virtual time.
//!
//! The servers' queues are finite, and the calls come whether or not answers do. Everything runs
//! on one thread over in-memory pipes, so that the paused clock moves only when nothing else can.

#[path = "../examples/support/queue.rs"]
mod queue;
#[path = "../examples/support/script.rs"]
mod script;
#[path = "../examples/support/traffic.rs"]
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

const CAPACITY: f64 = 60.0;

struct Served {
    queue: Queue,
    upstream: Arc<[AtomicU64; 2]>,
    tips: u64,
}

impl Script for Served {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        let above = usize::from(arrival.call >= self.tips);
        self.upstream[above].fetch_add(1, Ordering::Relaxed);
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

#[derive(Debug, Default)]
struct Outcome {
    upstream: [u64; 2],
    good: [u64; 2],
    shed: [u64; 2],
}

async fn run(
    seed: u64,
    length: Duration,
    hedge: Option<Hedge>,
    breaker: BreakerPolicy,
    load: impl Fn(f64) -> f64,
) -> Outcome {
    let calls = schedule(seed, length, |at| {
        CAPACITY * load(at.as_secs_f64() / length.as_secs_f64())
    });
    let tips = calls.partition_point(|at| load(at.as_secs_f64() / length.as_secs_f64()) <= 1.0);
    let upstream = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
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
        .breaker(breaker);
    if let Some(hedge) = hedge {
        channel = channel.hedge(hedge);
    }
    let channel = channel.build().unwrap();
    let seen = offer(&channel, 0, &calls).await.unwrap();
    let mut outcome = Outcome::default();
    for (index, call) in seen.iter().enumerate() {
        let above = usize::from(index >= tips);
        match call.code {
            Code::Ok => outcome.good[above] += 1,
            Code::Unavailable => outcome.shed[above] += 1,
            _ => {}
        }
    }
    for (sum, count) in outcome.upstream.iter_mut().zip(&*upstream) {
        *sum = count.load(Ordering::Relaxed);
    }
    let m = &channel.measured().methods[0];
    println!(
        "seed {seed} calls {} tips {tips} {outcome:?} hedges {} won {} held {:?} threshold {:?} retries {} {:?}",
        calls.len(),
        m.hedges,
        m.hedges_won,
        m.suppressed,
        m.threshold,
        m.retries,
        channel.measured().breakers
    );
    outcome
}

#[tokio::test(start_paused = true)]
async fn explore() {
    let ramp = |done: f64| 0.9 + 0.5 * ((done - 0.4) / 0.2f64).clamp(0.0, 1.0);
    for (name, breaker) in [
        ("default", BreakerPolicy::default()),
        ("rate", BreakerPolicy::default().consecutive(u32::MAX)),
    ] {
        for seed in 0..3 {
            println!("== {name} overload");
            for hedge in [Some(Hedge::at(0.95)), None] {
                run(
                    seed,
                    Duration::from_secs(60),
                    hedge,
                    breaker.clone(),
                    |_| 1.4,
                )
                .await;
            }
            println!("== {name} ramp");
            for hedge in [Some(Hedge::at(0.95)), None] {
                run(seed, Duration::from_secs(120), hedge, breaker.clone(), ramp).await;
            }
        }
    }
}
