//! CPU time, throughput and latencies of the cases side by side.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use crate::{
    args::Outcome,
    at_once::probe::ProbeRequest,
    calls::Callers,
    case::Case,
    cpu,
    rounds::take_turns,
    spread::{Spread, quantile},
};

/// One case in one round: short beside the machine's moods, long beside a turn of its scheduler.
const ROUND: Duration = Duration::from_millis(200);

/// No more rounds are begun after this: messages of 1 MB, 256 in flight, take seconds for each.
const LONG_ENOUGH: Duration = Duration::from_secs(12);

/// Rounds that are made all the same: fewer have no quartiles.
const AT_LEAST: usize = 3;

/// What is in the air.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    /// Of a request, and of its answer.
    pub(crate) bytes: usize,
}

/// A case against the plain one.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) case: Case,
    pub(crate) rounds: usize,
    /// Medians of all rounds.
    pub(crate) cost: Cost,
    /// Microseconds of CPU per call, and what they are over plain, within each round.
    pub(crate) cpu_ratio: Spread,
    pub(crate) throughput_ratio: Spread,
    /// Microseconds over plain, within each round.
    pub(crate) p50_over: Spread,
    pub(crate) p99_over: Spread,
}

/// One case in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Microseconds per call, of this process.
    pub(crate) cpu: f64,
    /// Calls per second.
    pub(crate) throughput: f64,
    /// Microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Load {
    pub(crate) fn request(self) -> ProbeRequest {
        ProbeRequest {
            payload: vec![0; self.bytes],
            response_bytes: u32::try_from(self.bytes).unwrap_or(u32::MAX),
            ..ProbeRequest::default()
        }
    }
}

/// Measures `cases`, of which the first is the plain one.
pub(crate) fn compare(
    cases: &[Case],
    servers: &[SocketAddr],
    rounds: usize,
    load: Load,
) -> Outcome<Vec<Compared>> {
    // One thread: the CPU time holds no spinning of idle workers.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let request = load.request();
    let mut callers = Vec::new();
    for case in cases {
        let _within = runtime.enter();
        callers.push(case.callers(servers, load.in_flight)?);
    }
    let mut fastest = 0.0_f64;
    for callers in &mut callers {
        // The first ones connect.
        once(&runtime, callers, load.in_flight, &request)?;
        let warmed = once(&runtime, callers, 2 * load.in_flight + 100, &request)?;
        fastest = fastest.max(warmed.throughput);
    }
    // As many for each case, so that none has more of what happens once in a while.
    let calls = ((fastest * ROUND.as_secs_f64()) as usize).max(2 * load.in_flight);
    let started = Instant::now();
    let more =
        |round| round < AT_LEAST.min(rounds) || round < rounds && started.elapsed() < LONG_ENOUGH;
    let costs = take_turns(cases.len(), more, |case| {
        once(&runtime, &mut callers[case], calls, &request)
    })?;
    Ok(cases
        .iter()
        .zip(&costs)
        .map(|(case, costs_of_it)| Compared::of(*case, costs_of_it, &costs[0]))
        .collect())
}

fn once(
    runtime: &Runtime,
    callers: &mut Box<dyn Callers>,
    calls: usize,
    request: &ProbeRequest,
) -> Outcome<Cost> {
    let mut latencies = Vec::with_capacity(calls);
    let (cpu, started) = (cpu::seconds(), Instant::now());
    runtime.block_on(callers.make(calls, request, Some(&mut latencies)))?;
    let (cpu, elapsed) = (cpu::seconds() - cpu, started.elapsed());
    let mut micros: Vec<_> = latencies.iter().map(|it| it.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    Ok(Cost {
        cpu: cpu * 1e6 / calls as f64,
        throughput: calls as f64 / elapsed.as_secs_f64(),
        p50: quantile(&micros, 0.5),
        p99: quantile(&micros, 0.99),
    })
}

impl Compared {
    fn of(case: Case, costs: &[Cost], plain: &[Cost]) -> Self {
        let each = |costs: &[Cost], of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<_>>();
        let median = |of| Spread::of(each(costs, of)).median;
        let ratio = |of| Spread::of_ratios(&each(costs, of), &each(plain, of));
        let over = |of: fn(&Cost) -> f64| {
            let pairs = costs.iter().zip(plain);
            Spread::of(pairs.map(|(it, plain)| of(it) - of(plain)))
        };
        Self {
            case,
            rounds: costs.len(),
            cost: Cost {
                cpu: median(|it| it.cpu),
                throughput: median(|it| it.throughput),
                p50: median(|it| it.p50),
                p99: median(|it| it.p99),
            },
            cpu_ratio: ratio(|it| it.cpu),
            throughput_ratio: ratio(|it| it.throughput),
            p50_over: over(|it| it.p50),
            p99_over: over(|it| it.p99),
        }
    }
}
