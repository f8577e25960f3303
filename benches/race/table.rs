//! What is printed of the race.

use std::time::Duration;

use serde_json::{Value, json};
use tonic_hedge_models::Summary;

use crate::{
    args::Race,
    simulated::{Case, Measured, Policy},
};

/// The least, the middle and the most of the seeds' values.
#[derive(Clone, Copy)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            low: at(0),
            median: at(values.len() / 2),
            high: at(values.len().saturating_sub(1)),
        }
    }

    fn json(self) -> Value {
        let Self { low, median, high } = self;
        json!({ "low": low, "median": median, "high": high })
    }
}

/// One policy on one case, over the seeds.
struct Row {
    policy: Policy,
    delay: Option<Spread>,
    p50: Spread,
    p95: Spread,
    p99: Spread,
    p999: Spread,
    load: Spread,
    goodput: Spread,
    /// Of p95 and p99, each seed's to its own without hedges.
    p95_ratio: Spread,
    p99_ratio: Spread,
}

fn rows(case: &Case) -> impl Iterator<Item = Row> {
    let policies = Policy::all().into_iter().enumerate();
    policies.map(|(index, policy)| {
        // The first is none.
        let of = |value: &dyn Fn(&Measured, &Measured) -> f64| {
            Spread::of(case.runs.iter().filter_map(|run| {
                let none = run.policies.first()?;
                Some(value(run.policies.get(index)?, none))
            }))
        };
        let time = |time: fn(&Summary) -> Duration| of(&|it, _| ms(time(&it.summary)));
        let ratio = |time: fn(&Summary) -> Duration| {
            of(&|it, none| ms(time(&it.summary)) / ms(time(&none.summary)))
        };
        let delays = || case.runs.iter().map(|run| run.policies.get(index)?.delay);
        Row {
            policy,
            delay: delays()
                .any(|delay| delay.is_some())
                .then(|| Spread::of(delays().flatten().map(ms))),
            p50: time(|it| it.p50),
            p95: time(|it| it.p95),
            p99: time(|it| it.p99),
            p999: time(|it| it.p999),
            load: of(&|it, _| it.summary.extra_load),
            goodput: of(&|it, _| it.summary.goodput),
            p95_ratio: ratio(|it| it.p95),
            p99_ratio: ratio(|it| it.p99),
        }
    })
}

pub(crate) fn print(race: Race, cases: &[Case]) {
    println!(
        "{} calls, {} seeds, the first 30 s left out. Times in ms: the seeds' median (least to most).",
        race.calls, race.seeds
    );
    println!("Ratios are to the same seed's without hedges. Good: answered within 250 ms.");
    for case in cases {
        println!("\n{}, {:.0} calls/s", case.model.name(), case.rate);
        println!(
            "  {:<24}{:>7}{:>7}{:>7}{:>21}{:>8}{:>9}{:>8}{:>11}{:>11}",
            "policy",
            "delay",
            "p50",
            "p95",
            "p99",
            "p99.9",
            "load",
            "good",
            "p95 ratio",
            "p99 ratio"
        );
        for row in rows(case) {
            let delay = row
                .delay
                .map_or(String::new(), |it| format!("{:.0}", it.median));
            let Spread { low, median, high } = row.p99;
            let p99 = format!("{median:.0} ({low:.0} to {high:.0})");
            println!(
                "  {:<24}{delay:>7}{:>7.0}{:>7.0}{p99:>21}{:>8.0}{:>9.4}{:>8.4}{:>11.3}{:>11.3}",
                row.policy.name(),
                row.p50.median,
                row.p95.median,
                row.p999.median,
                row.load.median,
                row.goodput.median,
                row.p95_ratio.median,
                row.p99_ratio.median,
            );
        }
    }
}

pub(crate) fn as_json(cases: &[Case]) -> Value {
    let row = |row: Row| {
        json!({
            "policy": row.policy.name(),
            "delay_ms": row.delay.map(Spread::json),
            "p50_ms": row.p50.json(),
            "p95_ms": row.p95.json(),
            "p99_ms": row.p99.json(),
            "p999_ms": row.p999.json(),
            "extra_load": row.load.json(),
            "goodput": row.goodput.json(),
            "p95_ratio": row.p95_ratio.json(),
            "p99_ratio": row.p99_ratio.json(),
        })
    };
    let case = |case: &Case| {
        json!({
            "model": case.model.name(),
            "calls_per_second": case.rate,
            "policies": rows(case).map(row).collect::<Vec<_>>(),
        })
    };
    json!({ "cases": cases.iter().map(case).collect::<Vec<_>>() })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
