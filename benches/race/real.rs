//! Whether real calls see what the simulation says: the models answer on real tonic servers.
//!
//! Both sides have the same calls at the same times, and an attempt draws the same latency on
//! both; where it goes is chance on each.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};
use tonic_hedge::{Hedge, HedgedChannel};
use tonic_hedge_engine::race::Verdict;
use tonic_hedge_models::{Attempt, Draws, Latency, Met, Model, Scripted, SlowReplica, World};

use crate::{
    Outcome,
    args::Real,
    quantile::quantile,
    replica::Replica,
    script::{
        Arrival, Script,
        probe::{self, ProbeRequest, probe_client::ProbeClient},
        service,
    },
    traffic::offer,
};

/// Calls in a second: the machine has little to do besides.
const RATE: f64 = 200.0;

const SEED: u64 = 1;

/// Left out on both sides: the window fills.
const WARM_UP: Duration = Duration::from_secs(5);

/// By how much of the simulation's p95 and p99 the real ones may differ.
const TOLERANCE: f64 = 0.1;

/// Each latency is that many times the model's: the way there and back, and two timers that wake in
/// whole milliseconds, then add 1 to 3 % and not 10.
const SLOWER: u32 = 3;

/// What the models answer with. One in twelve is slow: with one in ten, as many calls as are
/// beyond p99 meet two slow replicas, and p99 would be a matter of luck.
const MODELS: [Model; 5] = [
    Model::Independent(Latency::Uniform),
    Model::Independent(Latency::LogNormal),
    Model::Independent(Latency::Bimodal { slow: 1.0 / 12.0 }),
    Model::Independent(Latency::Pareto),
    Model::SlowReplica(SlowReplica::FOR_A_WHILE),
];

/// A model on both sides.
struct Compared {
    model: &'static str,
    policy: &'static str,
    simulated: Side,
    real: Side,
}

#[derive(Clone, Copy)]
struct Side {
    p95: f64,
    p99: f64,
    /// Hedges per call, warm-up and all.
    load: f64,
}

impl Compared {
    /// Of p95 and p99.
    fn differences(&self) -> [f64; 2] {
        let Self {
            simulated, real, ..
        } = self;
        [
            real.p95 / simulated.p95 - 1.0,
            real.p99 / simulated.p99 - 1.0,
        ]
    }

    fn agrees(&self) -> bool {
        let differences = self.differences();
        differences.iter().all(|it| it.abs() <= TOLERANCE)
    }
}

/// Whether all agree.
#[tokio::main]
pub(crate) async fn all(args: Real) -> Outcome<bool> {
    let mut compared = Vec::new();
    for model in MODELS {
        for (policy, hedge) in policies() {
            compared.push(compare(args, &model, policy, hedge).await?);
            if !args.json {
                print(compared.last(), compared.len() == 1);
            }
        }
    }
    if args.json {
        println!("{}", as_json(&compared));
    }
    Ok(compared.iter().all(Compared::agrees))
}

fn policies() -> [(&'static str, Hedge); 2] {
    [
        ("at(0.88)", Hedge::at(0.88)),
        ("within(0.12)", Hedge::within(0.12)),
    ]
}

fn slower(model: &Model, draws: Draws) -> Model {
    let slowed = model.clone();
    Model::Scripted(Scripted::new(
        model.replicas(),
        move |attempt, _| match slowed.meet(draws, attempt) {
            Met::Ends { after, verdict } => (after * SLOWER, verdict),
            Met::Work(work) => (work * SLOWER, Verdict::Answer),
        },
    ))
}

async fn compare(args: Real, of: &Model, policy: &'static str, hedge: Hedge) -> Outcome<Compared> {
    let draws = Draws::new(SEED);
    let model = slower(of, draws);
    let world = World {
        hedge: Some(hedge.clone()),
        seed: SEED,
        rate: RATE,
        calls: (RATE * args.seconds as f64) as usize,
        warm_up: WARM_UP,
        ..World::new(model.clone())
    };
    let simulated = world.run();
    let schedule: Vec<_> = simulated.fates.iter().map(|it| it.arrived).collect();

    let started = Arc::new(OnceLock::new());
    let mut replicas = Vec::new();
    for replica in 0..model.replicas() {
        let answers = Answers {
            model: model.clone(),
            draws,
            replica,
            started: Arc::clone(&started),
        };
        replicas.push(Replica::start(service(answers)).await?);
    }
    let channel = HedgedChannel::builder()
        .endpoints(replicas.iter().map(Replica::uri))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(hedge)
        .build()?;
    connect(&channel).await?;
    // The generator's own start, within a few microseconds.
    started.get_or_init(Instant::now);
    let seen = offer(&channel, 0, &schedule).await?;

    if let Some(failed) = seen.iter().find(|seen| seen.code != Code::Ok) {
        return Err(format!("a call failed: {:?}", failed.code).into());
    }
    let counted = schedule.partition_point(|at| *at < WARM_UP);
    let took: Vec<_> = seen[counted..].iter().map(|seen| seen.latency).collect();
    let methods = channel.measured().methods;
    let hedges: u64 = methods.iter().map(|method| method.hedges).sum();
    let summary = simulated.summary();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Compared {
        model: of.name(),
        policy,
        simulated: Side {
            p95: ms(summary.p95),
            p99: ms(summary.p99),
            load: simulated
                .summary_of(Duration::ZERO, Duration::MAX)
                .extra_load,
        },
        real: Side {
            p95: quantile(took.clone(), 0.95),
            p99: quantile(took, 0.99),
            load: hedges as f64 / schedule.len() as f64,
        },
    })
}

/// Lets the channel connect to all before the first call: by a method that nothing is learnt of.
async fn connect(channel: &HedgedChannel) -> Outcome<()> {
    let request = ProbeRequest {
        id: u64::MAX.to_string(),
        ..ProbeRequest::default()
    };
    ProbeClient::new(channel.clone()).off(request).await?;
    sleep(Duration::from_millis(500)).await;
    Ok(())
}

/// One replica of a model.
struct Answers {
    model: Model,
    draws: Draws,
    replica: usize,
    /// The world's start.
    started: Arc<OnceLock<Instant>>,
}

impl Script for Answers {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        let Some(started) = self.started.get() else {
            return Ok(());
        };
        let attempt = Attempt {
            call: arrival.call,
            number: arrival.before as u32,
            replica: self.replica,
            clock: started.elapsed(),
        };
        match self.model.meet(self.draws, &attempt) {
            Met::Ends { after, .. } | Met::Work(after) => sleep(after).await,
        }
        Ok(())
    }
}

fn print(compared: Option<&Compared>, first: bool) {
    let Some(compared) = compared else { return };
    if first {
        println!(
            "{:<18}{:<14}{:>22}{:>24}{:>20}",
            "ms: real / simulated", "policy", "p95", "p99", "load"
        );
    }
    let Compared {
        model,
        policy,
        simulated,
        real,
    } = compared;
    let pair = |real: f64, simulated: f64, off: f64| {
        format!("{real:.1} / {simulated:.1} {:+.1} %", off * 100.0)
    };
    let [p95, p99] = compared.differences();
    println!(
        "{model:<18}{policy:<14}{:>24}{:>24}{:>20}  {}",
        pair(real.p95, simulated.p95, p95),
        pair(real.p99, simulated.p99, p99),
        format!("{:.4} / {:.4}", real.load, simulated.load),
        if compared.agrees() { "agree" } else { "DIFFER" },
    );
}

fn as_json(compared: &[Compared]) -> Value {
    let side = |it: Side| json!({ "p95_ms": it.p95, "p99_ms": it.p99, "extra_load": it.load });
    let one = |it: &Compared| {
        let [p95, p99] = it.differences();
        json!({
            "model": it.model,
            "policy": it.policy,
            "simulated": side(it.simulated),
            "real": side(it.real),
            "p95_difference": p95,
            "p99_difference": p99,
            "agree": it.agrees(),
        })
    };
    json!({ "models": compared.iter().map(one).collect::<Vec<_>>() })
}
