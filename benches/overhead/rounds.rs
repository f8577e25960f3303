//! CPU time and throughput of the cases, in rounds that take turns.

use std::net::SocketAddr;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::{
    Outcome,
    case::{Case, Client},
    runtime,
};

/// Calls of one case in one round: a few hundred milliseconds, short beside the machine's moods.
const CALLS: usize = 8_000;

/// Calls that fill caches, connections and the estimate before the first round.
const WARM_UP: usize = 4_000;

/// One case in one round.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Microseconds per call, of this process.
    cpu: f64,
    /// Calls per second.
    throughput: f64,
}

/// A case against the plain one.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) case: Case,
    /// Median microseconds of CPU time per call.
    pub(crate) cpu: f64,
    /// Median calls per second.
    pub(crate) throughput: f64,
    pub(crate) cpu_ratio: Spread,
    pub(crate) throughput_ratio: Spread,
}

/// The middle of some numbers, and the quartiles around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// Measures all cases with `in_flight` calls at a time.
pub(crate) fn compare(
    servers: &[SocketAddr],
    rounds: usize,
    in_flight: usize,
) -> Outcome<Vec<Compared>> {
    let costs = runtime()?.block_on(measure(servers, rounds, in_flight))?;
    let compared = Case::ALL.into_iter().enumerate().map(|(index, case)| {
        let each = |of: &dyn Fn(&[Cost; 3]) -> f64| Spread::of(costs.iter().map(of).collect());
        Compared {
            case,
            cpu: each(&|round| round[index].cpu).median,
            throughput: each(&|round| round[index].throughput).median,
            // Within a round: what slows all three of a round down cancels out.
            cpu_ratio: each(&|round| round[index].cpu / round[0].cpu),
            throughput_ratio: each(&|round| round[index].throughput / round[0].throughput),
        }
    });
    Ok(compared.collect())
}

async fn measure(
    servers: &[SocketAddr],
    rounds: usize,
    in_flight: usize,
) -> Outcome<Vec<[Cost; 3]>> {
    let mut clients = Vec::new();
    for case in Case::ALL {
        let client = case.client(servers)?;
        client.drive(WARM_UP, in_flight).await?;
        clients.push(client);
    }
    let mut costs = Vec::new();
    for round in 0..rounds {
        let mut cost = [Cost {
            cpu: f64::NAN,
            throughput: f64::NAN,
        }; 3];
        // Who goes first changes, since the first finds other caches than the last.
        for turn in 0..clients.len() {
            let index = (round + turn) % clients.len();
            cost[index] = once(&clients[index], in_flight).await?;
        }
        costs.push(cost);
    }
    Ok(costs)
}

async fn once(client: &Client, in_flight: usize) -> Outcome<Cost> {
    let (cpu, started) = (cpu_seconds(), Instant::now());
    client.drive(CALLS, in_flight).await?;
    let (cpu, elapsed) = (cpu_seconds() - cpu, started.elapsed());
    Ok(Cost {
        cpu: cpu * 1e6 / CALLS as f64,
        throughput: CALLS as f64 / elapsed.as_secs_f64(),
    })
}

/// The CPU time of this process, user and system, to the nanosecond.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

impl Spread {
    fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (numbers.len().saturating_sub(1)) as f64 * share;
            numbers.get(index.round() as usize).copied()
        };
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| at(share).unwrap_or(f64::NAN));
        Self { low, median, high }
    }
}
