//! What making a plan anew costs, over windows as calls fill them: once a second for each method.

use std::time::Duration;

use tonic_hedge_engine::{
    measure::{LatencyEstimator, Ring},
    plan::Planner,
    policy::Hedge,
};
use tonic_hedge_models::{Draws, Latency, Purpose};

use crate::{Outcome, cpu, report::Row, spread::Spread};

/// A second of a method's calls: 6,000 in the window.
const CALLS: u64 = 200;

/// Seconds until a window is full and its plan has settled.
const SETTLED: u64 = 60;

/// Plans that are timed, one each second.
const PLANS: u64 = 600;

const SECOND: Duration = Duration::from_secs(1);

/// The times of planning for each kind of latency: of all plans, and the least, which nothing else on
/// the machine has stretched. Sizes are the samples of a window.
pub(crate) fn times() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (latency, names) in [
        (
            Latency::Uniform,
            ["a plan, uniform", "a plan, uniform, best"],
        ),
        (
            Latency::LogNormal,
            ["a plan, log-normal", "a plan, log-normal, best"],
        ),
        (
            Latency::BIMODAL,
            ["a plan, bimodal", "a plan, bimodal, best"],
        ),
        (Latency::Pareto, ["a plan, Pareto", "a plan, Pareto, best"]),
    ] {
        let (samples, plans) = plans(latency)?;
        let least = plans.iter().copied().fold(f64::INFINITY, f64::min);
        for (name, value) in names.into_iter().zip([plans, vec![least]]) {
            rows.push(Row {
                name,
                size: samples,
                unit: "ns",
                value: Spread::of(value),
                ratio: None,
            });
        }
    }
    Ok(rows)
}

/// The samples of a window, and what each plan took, in nanoseconds of CPU.
fn plans(latency: Latency) -> Outcome<(usize, Vec<f64>)> {
    let hedge = Hedge::within(0.05);
    let planner = Planner::new(&hedge).ok_or("it is planned")?;
    let quantile = hedge.quantile().ok_or("it has a quantile")?;
    let ring = Ring::new(quantile, hedge.window, hedge.minimum_samples);
    let draws = Draws::new(1);
    let mut took = Vec::new();
    for second in 0..SETTLED + PLANS {
        for call in 0..CALLS {
            let now = SECOND * second as u32 + SECOND * call as u32 / CALLS as u32;
            let draw = |attempt| {
                let mut draws = draws.of(Purpose::Work, second * CALLS + call, attempt);
                latency.draw(&mut draws)
            };
            answer(&planner, &ring, now, draw);
        }
        let now = SECOND * (second as u32 + 1);
        let began = cpu::seconds();
        planner.replan(now, &ring);
        let ended = cpu::seconds();
        if second >= SETTLED {
            took.push((ended - began) * 1e9);
        }
    }
    let now = SECOND * (SETTLED + PLANS) as u32;
    Ok((ring.samples(now) as usize, took))
}

/// A call, hedged as the plan has it; the first of its attempts that ends cuts the other off.
fn answer(planner: &Planner, ring: &Ring, now: Duration, draw: impl Fn(u32) -> Duration) {
    planner.started();
    let original = draw(0);
    let delay = planner.delay().or_else(|| ring.threshold(now));
    let delay = delay.filter(|delay| *delay < original && planner.allow());
    let Some(delay) = delay else {
        ring.record(now, original);
        return planner.call_ended(now, original);
    };
    let hedge = draw(1);
    let answered = original.min(delay + hedge);
    if answered == original {
        ring.record(now, original);
        planner.hedge_cut(original - delay);
    } else {
        ring.record_cut(now, answered);
        planner.hedge_ended(hedge);
    }
    planner.call_ended(now, answered);
}
