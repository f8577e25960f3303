//! What an estimator of the threshold costs and how well it estimates: the table behind the
//! choice of the ring. `cargo bench --bench estimators [-- --json]`
//!
//! Each estimator sees the same million latencies: log-normal with a median of 5 ms, 2 % of them
//! ten times as long. Ring and CKMS slide a window; the other two only grow, under a mutex.

// Wall clock on purpose: this measures real time, and no test depends on it.
#![allow(clippy::disallowed_methods)]

#[path = "support/args.rs"]
#[expect(dead_code, reason = "no argument here has a value")]
mod args;

use std::{
    hint::black_box,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sketches_ddsketch::{Config, DDSketch};
use tonic_hedge_engine::measure::{Ckms, LatencyEstimator, Ring};

use args::Outcome;

const HELP: &str = "\
Usage: cargo bench --bench estimators -- [--json]

  --json  print JSON instead of a table
";

const SAMPLES: usize = 1_000_000;

/// Between two calls: the million spans 20 s, so that it fits into the window.
const STEP: Duration = Duration::from_micros(20);

/// How often the owner folds, in calls.
const FOLD_EACH: usize = 12_500;

const WINDOW: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(900);
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// A round's best is reported: what the machine does besides only adds to it.
const ROUNDS: usize = 5;

trait Subject: Sync {
    fn record(&self, now: Duration, latency: Duration);
    /// In microseconds.
    fn quantile(&self, now: Duration, q: f64) -> f64;
    fn memory(&self) -> usize;
    /// What a call does to read its threshold, where that is not a query.
    fn threshold(&self, _now: Duration) -> Option<f64> {
        None
    }
    fn fold(&self, _now: Duration) {}
}

impl<E: LatencyEstimator> Subject for E {
    fn record(&self, now: Duration, latency: Duration) {
        LatencyEstimator::record(self, now, latency);
    }
    fn quantile(&self, now: Duration, q: f64) -> f64 {
        LatencyEstimator::quantile(self, now, q).map_or(f64::NAN, |it| it.as_secs_f64() * 1e6)
    }
    fn memory(&self) -> usize {
        LatencyEstimator::memory(self)
    }
    fn threshold(&self, now: Duration) -> Option<f64> {
        LatencyEstimator::threshold(self, now).map(|it| it.as_secs_f64() * 1e6)
    }
    fn fold(&self, now: Duration) {
        LatencyEstimator::fold(self, now);
    }
}

struct Hdr(Mutex<Histogram<u32>>);

impl Subject for Hdr {
    fn record(&self, _now: Duration, latency: Duration) {
        let _ = self.0.lock().record(latency.as_micros() as u64);
    }
    fn quantile(&self, _now: Duration, q: f64) -> f64 {
        self.0.lock().value_at_quantile(q) as f64
    }
    fn memory(&self) -> usize {
        self.0.lock().distinct_values() * size_of::<u32>()
    }
}

struct Dd(Mutex<DDSketch>);

impl Subject for Dd {
    fn record(&self, _now: Duration, latency: Duration) {
        self.0.lock().add(latency.as_micros() as f64);
    }
    fn quantile(&self, _now: Duration, q: f64) -> f64 {
        let found = self.0.lock().quantile(q);
        found.ok().flatten().unwrap_or(f64::NAN)
    }
    fn memory(&self) -> usize {
        self.0.lock().length() * size_of::<u64>()
    }
}

fn main() -> ExitCode {
    let parse = |args: &mut args::Args| Ok(args.flag("--json"));
    args::main("estimators", HELP, parse, run)
}

fn run(json: bool) -> Outcome<bool> {
    let hdr = Histogram::new(2)?;
    let latencies = latencies();
    let mut sorted = latencies.clone();
    sorted.sort_unstable();
    let rows = [
        measure("Ring", &latencies, &sorted, || Ring::new(0.95, WINDOW, 20)),
        measure("CKMS 0.001, folded", &latencies, &sorted, || {
            Ckms::new(0.95, WINDOW, 20)
        }),
        measure("hdrhistogram, 2 digits", &latencies, &sorted, || {
            Hdr(Mutex::new(hdr.clone()))
        }),
        measure("ddsketch 0.01", &latencies, &sorted, || {
            Dd(Mutex::new(DDSketch::new(Config::new(0.01, 2_048, 1.0))))
        }),
    ];
    if json {
        println!("{}", json!(rows));
    } else {
        print_table(&rows);
    }
    Ok(true)
}

fn latencies() -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..SAMPLES)
        .map(|_| {
            let (u, v) = (1.0 - random.f64(), random.f64());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let tail = if random.f64() < 0.02 { 10.0 } else { 1.0 };
            Duration::from_micros((5_000.0 * tail * (0.5 * normal).exp()) as u64)
        })
        .collect()
}

/// A row of the table, by column.
fn measure<S: Subject>(
    name: &str,
    latencies: &[Duration],
    sorted: &[Duration],
    new: impl Fn() -> S,
) -> Value {
    let mut row = json!({ "estimator": name });
    for threads in [1, 2, 4] {
        let best = (0..ROUNDS).map(|_| record_cost(&new(), latencies, threads));
        row[format!("record, {threads} thr. (ns)")] = round(best.fold(f64::MAX, f64::min));
    }
    let subject = new();
    let mut folding = Duration::ZERO;
    let mut now = START;
    for (n, &latency) in latencies.iter().enumerate() {
        now += STEP;
        subject.record(now, latency);
        if n % FOLD_EACH == FOLD_EACH - 1 {
            let begin = Instant::now();
            subject.fold(now);
            folding += begin.elapsed();
        }
    }
    row["fold (ns/call)"] = round(folding.as_nanos() as f64 / latencies.len() as f64);
    row["query (ns)"] = round(cost(200, || {
        black_box(subject.quantile(now, black_box(0.95)));
    }));
    row["threshold (ns)"] = match subject.threshold(now) {
        None => Value::Null,
        Some(_) => round(cost(1_000_000, || {
            black_box(subject.threshold(black_box(now)));
        })),
    };
    row["memory (KiB)"] = round(subject.memory() as f64 / 1024.0);
    for (label, q) in QUANTILES {
        let rank = (q * sorted.len() as f64) as usize;
        let exact = sorted[rank].as_micros() as f64;
        let error = subject.quantile(now, q) / exact - 1.0;
        row[format!("{label} (%)")] = json!((error * 10_000.0).round() / 100.0);
    }
    row
}

/// How long a record takes as each of the threads sees it. On fewer cores than threads that
/// includes the turns of the others.
fn record_cost(subject: &impl Subject, latencies: &[Duration], threads: usize) -> f64 {
    let begin = Instant::now();
    thread::scope(|scope| {
        for part in latencies.chunks(latencies.len() / threads) {
            scope.spawn(move || {
                let mut now = START;
                for &latency in part {
                    now += STEP;
                    subject.record(black_box(now), latency);
                }
            });
        }
    });
    begin.elapsed().as_nanos() as f64 * threads as f64 / latencies.len() as f64
}

fn cost(times: u32, mut work: impl FnMut()) -> f64 {
    let round = |work: &mut dyn FnMut()| {
        let begin = Instant::now();
        for _ in 0..times {
            work();
        }
        begin.elapsed().as_nanos() as f64 / f64::from(times)
    };
    (0..ROUNDS)
        .map(|_| round(&mut work))
        .fold(f64::MAX, f64::min)
}

fn round(value: f64) -> Value {
    json!((value * 10.0).round() / 10.0)
}

fn print_table(rows: &[Value]) {
    let mut columns: Vec<String> = ["estimator"].map(String::from).to_vec();
    columns.extend([1, 2, 4].map(|threads| format!("record, {threads} thr. (ns)")));
    let rest = [
        "fold (ns/call)",
        "query (ns)",
        "threshold (ns)",
        "memory (KiB)",
    ];
    columns.extend(rest.map(String::from));
    columns.extend(QUANTILES.map(|(label, _)| format!("{label} (%)")));
    println!("| {} |", columns.join(" | "));
    println!("|{}", " --- |".repeat(columns.len()));
    for row in rows {
        let cells: Vec<_> = columns
            .iter()
            .map(|column| match &row[column] {
                Value::String(text) => text.clone(),
                Value::Null => "-".into(),
                number => number.to_string(),
            })
            .collect();
        println!("| {} |", cells.join(" | "));
    }
}
