//! Whether hedging tips an overloaded fleet over: upstream calls and goodput with it and without.
//! `cargo bench --bench overload [-- --json] [--seconds N] [--rounds N]`
//!
//! Real tonic servers with a finite queue are offered more than they can serve, by a generator
//! that does not wait for answers. Both sides of a round get the same calls at the same times,
//! and each call's original the same work. It fails unless, above capacity and while the breaker
//! stays closed, upstream calls and goodput with hedging are within 3 % of those without.

mod report;

#[path = "../support/args.rs"]
mod args;
#[path = "../../examples/support/quantile.rs"]
mod quantile;
#[path = "../../examples/support/queue.rs"]
mod queue;
#[path = "../../examples/support/replica.rs"]
mod replica;
#[path = "../../examples/support/script.rs"]
mod script;
#[path = "../support/table.rs"]
mod table;
#[path = "../../examples/support/traffic.rs"]
mod traffic;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tonic::{Code, Status};
use tonic_hedge::{BreakerPolicy, Hedge, HedgedChannel};

use args::{Args, Outcome};
use queue::Queue;
use replica::Replica;
use script::{Arrival, Script, probe, service};
use traffic::{Seen, exponential, offer, schedule};

const REPLICAS: usize = 3;

/// Served at once by one replica.
const SLOTS: usize = 4;

/// Waiting at one replica: twice what it serves, so that a full queue triples a latency.
const WAITING: usize = 8;

/// Mean of the exponential work of a call: with the slots, 120 calls a second. Slow enough that
/// what the machine does besides is little to it.
const WORK: Duration = Duration::from_millis(100);

const SEED: u64 = 0x0e11_0ad5;

/// What hedging may change.
const TOLERANCE: f64 = 0.03;

const HELP: &str = "\
Overload with hedging and without.

Usage: cargo bench --bench overload -- [--json] [--seconds N] [--rounds N]

  --json        print one JSON object instead of a table
  --seconds N   of each overload; a ramp takes twice as long (default 15)
  --rounds N    of each scenario (default 2)
";

fn main() -> ExitCode {
    args::main("overload", HELP, parse, |asked| {
        tokio::runtime::Runtime::new()?.block_on(run(&asked))
    })
}

struct Asked {
    json: bool,
    seconds: u64,
    rounds: u64,
}

fn parse(args: &mut Args) -> Result<Asked, String> {
    let mut number = |name, default| match args.value(name)? {
        Some(0) => Err(format!("{name} takes a number greater than 0")),
        number => Ok(number.unwrap_or(default)),
    };
    Ok(Asked {
        seconds: number("--seconds", 15)?,
        rounds: number("--rounds", 2)?,
        json: args.flag("--json"),
    })
}

/// What is offered.
#[derive(Clone, Copy, Debug)]
enum Offered {
    /// 140 % of the capacity from the first call on.
    Overload,
    /// 90 %, then a climb to 140 %, which stays.
    Ramp,
}

impl Offered {
    fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Ramp => "ramp",
        }
    }

    /// How long, in overloads.
    fn lengths(self) -> u32 {
        match self {
            Self::Overload => 1,
            Self::Ramp => 2,
        }
    }

    /// The share of the capacity that is offered when `done` of the time is over.
    fn load(self, done: f64) -> f64 {
        match self {
            Self::Overload => 1.4,
            Self::Ramp => 0.9 + 0.5 * ((done - 0.4) / 0.2).clamp(0.0, 1.0),
        }
    }

    /// From when on, as a share of the time, more than the capacity is offered.
    fn tips(self) -> f64 {
        match self {
            Self::Overload => 0.0,
            Self::Ramp => 0.44,
        }
    }
}

/// Which breaker both sides have.
#[derive(Clone, Copy, Debug)]
enum Trips {
    /// The default one.
    ByDefault,
    /// The default one but for failures in a row: a full queue refuses in rows, and five open it.
    ByRate,
}

impl Trips {
    fn name(self) -> &'static str {
        match self {
            Self::ByDefault => "default",
            Self::ByRate => "by rate",
        }
    }

    fn policy(self) -> BreakerPolicy {
        match self {
            Self::ByDefault => BreakerPolicy::default(),
            Self::ByRate => BreakerPolicy::default().consecutive(u32::MAX),
        }
    }
}

/// A scenario's sums over all rounds.
struct Scenario {
    offered: Offered,
    trips: Trips,
    with: Side,
    without: Side,
}

impl Scenario {
    /// `None` where the breaker opens: when it does is chance, and each opening spares the
    /// replicas a whole cool-down, so that the totals of two runs say nothing of hedging.
    fn holds(&self) -> Option<bool> {
        let [with, without] = [&self.with.above, &self.without.above];
        // Fewer calls upstream and more goodput do no harm.
        let within = |less: u64, more: u64| less as f64 <= more as f64 * (1.0 + TOLERANCE);
        (with.shed + without.shed == 0)
            .then(|| within(with.upstream, without.upstream) && within(without.good, with.good))
    }
}

/// What came of one side: before more than the capacity was offered, and from then on.
#[derive(Clone, Debug, Default)]
struct Side {
    below: Part,
    above: Part,
    hedges: u64,
    held: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Part {
    calls: u64,
    /// Attempts that reached a replica.
    upstream: u64,
    /// Calls that were answered OK.
    good: u64,
    /// Calls that the open breaker answered: the replicas never say UNAVAILABLE.
    shed: u64,
    latencies: Vec<Duration>,
}

async fn run(asked: &Asked) -> Outcome<bool> {
    let mut scenarios = Vec::new();
    for trips in [Trips::ByDefault, Trips::ByRate] {
        for offered in [Offered::Overload, Offered::Ramp] {
            let (mut with, mut without) = (Side::default(), Side::default());
            for round in 0..asked.rounds {
                let length = Duration::from_secs(asked.seconds) * offered.lengths();
                let capacity = (REPLICAS * SLOTS) as f64 / WORK.as_secs_f64();
                let calls = schedule(SEED + round, length, |at| {
                    capacity * offered.load(at.as_secs_f64() / length.as_secs_f64())
                });
                let tips = calls.partition_point(|at| *at < length.mul_f64(offered.tips()));
                // Whoever is first has the machine as the other side does in the next round.
                for hedging in [round % 2 == 0, round % 2 == 1] {
                    let side = if hedging { &mut with } else { &mut without };
                    let hedge = hedging.then(|| Hedge::at(0.95));
                    side.add(trips.policy(), hedge, &calls, tips).await?;
                }
            }
            scenarios.push(Scenario {
                offered,
                trips,
                with,
                without,
            });
        }
    }
    if asked.json {
        println!("{}", report::as_json(&scenarios));
    } else {
        print!("{}", report::table(&scenarios));
    }
    Ok(scenarios
        .iter()
        .all(|scenario| scenario.holds() != Some(false)))
}

impl Side {
    /// One round, on replicas and a channel of its own. From the call `tips` on it is overload.
    async fn add(
        &mut self,
        breaker: BreakerPolicy,
        hedge: Option<Hedge>,
        calls: &[Duration],
        tips: usize,
    ) -> Outcome<()> {
        let upstream = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            let served = Served {
                queue: Queue::new(SLOTS, WAITING),
                upstream: Arc::clone(&upstream),
                tips: tips as u64,
            };
            replicas.push(Replica::start(service(served)).await?);
        }
        let mut channel = HedgedChannel::builder()
            .endpoints(replicas.iter().map(Replica::uri))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .breaker(breaker);
        if let Some(hedge) = hedge {
            channel = channel.hedge(hedge);
        }
        let channel = channel.build()?;
        let seen = offer(&channel, 0, calls).await?;
        let (below, above) = seen.split_at(tips);
        self.below.saw(below);
        self.above.saw(above);
        let [below, above] = &*upstream;
        self.below.upstream += below.load(Ordering::Relaxed);
        self.above.upstream += above.load(Ordering::Relaxed);
        for method in channel.measured().methods {
            self.hedges += method.hedges;
            for (reason, count) in method.suppressed {
                match self.held.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, sum)) => *sum += count,
                    None => self.held.push((reason, count)),
                }
            }
        }
        Ok(())
    }
}

impl Part {
    fn saw(&mut self, seen: &[Seen]) {
        self.calls += seen.len() as u64;
        for call in seen {
            match call.code {
                Code::Ok => {
                    self.good += 1;
                    self.latencies.push(call.latency);
                }
                Code::Unavailable => self.shed += 1,
                _ => {}
            }
        }
    }
}

/// A replica's script: exponential work in a finite queue.
struct Served {
    queue: Queue,
    /// Attempts of calls below capacity, and of those above it.
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
