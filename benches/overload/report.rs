//! What is printed of the scenarios.

use serde_json::{Value, json};

use crate::{Part, Scenario, Side, quantile::quantile, table::Table};

/// Above capacity. Upstream and good: with hedging / without.
pub(crate) fn table(scenarios: &[Scenario]) -> Table {
    let mut table = Table::new([
        "above capacity: with / without",
        "breaker",
        "calls",
        "upstream",
        "ratio",
        "good",
        "ratio",
        "shed",
        "hedges",
        "",
    ]);
    for scenario in scenarios {
        let Scenario { with, without, .. } = scenario;
        let pair = |of: fn(&Part) -> u64| {
            let [with, without] = [of(&with.above), of(&without.above)];
            let ratio = format!("{:.3}", with as f64 / without as f64);
            (format!("{with} / {without}"), ratio)
        };
        let (upstream, more) = pair(|part| part.upstream);
        let (good, better) = pair(|part| part.good);
        let (shed, _) = pair(|part| part.shed);
        let verdict = match scenario.holds() {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "the breaker opened",
        };
        table.row([
            scenario.offered.name().to_owned(),
            scenario.trips.name().to_owned(),
            with.above.calls.to_string(),
            upstream,
            more,
            good,
            better,
            shed,
            with.hedges.to_string(),
            verdict.to_owned(),
        ]);
        for (reason, count) in &with.held {
            table.row([format!("  {count} held by {reason}")]);
        }
    }
    table
}

pub(crate) fn as_json(scenarios: &[Scenario]) -> Value {
    let part = |part: &Part| {
        json!({
            "calls": part.calls,
            "upstream_calls": part.upstream,
            "good": part.good,
            "shed_by_breaker": part.shed,
            "p50_ms": quantile(part.latencies.clone(), 0.5),
            "p99_ms": quantile(part.latencies.clone(), 0.99),
        })
    };
    let side = |side: &Side| {
        json!({
            "below_capacity": part(&side.below),
            "above_capacity": part(&side.above),
            "hedges": side.hedges,
            "held_by": side.held.iter().map(|(reason, count)| ((*reason).to_owned(), json!(count)))
                .collect::<serde_json::Map<_, _>>(),
        })
    };
    let scenario = |scenario: &Scenario| {
        let Scenario { with, without, .. } = scenario;
        json!({
            "offered": scenario.offered.name(),
            "breaker": scenario.trips.name(),
            "with_hedging": side(with),
            "without_hedging": side(without),
            "upstream_ratio": with.above.upstream as f64 / without.above.upstream as f64,
            "goodput_ratio": with.above.good as f64 / without.above.good as f64,
            "holds": scenario.holds(),
        })
    };
    json!({ "scenarios": scenarios.iter().map(scenario).collect::<Vec<_>>() })
}
