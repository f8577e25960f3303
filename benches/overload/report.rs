//! What is printed of the scenarios.

use serde_json::{Value, json};

use crate::{Part, Scenario, Side, quantile::quantile};

pub(crate) fn print_table(scenarios: &[Scenario]) {
    println!("Above capacity. Upstream and good: with hedging / without.\n");
    println!(
        "{:<10}{:<9}{:>8}{:>17}{:>8}{:>17}{:>8}{:>14}{:>8}",
        "offered", "breaker", "calls", "upstream", "ratio", "good", "ratio", "shed", "hedges"
    );
    for scenario in scenarios {
        let Scenario { with, without, .. } = scenario;
        let pair = |of: fn(&Part) -> u64| {
            let [with, without] = [of(&with.above), of(&without.above)];
            (format!("{with} / {without}"), with as f64 / without as f64)
        };
        let (upstream, more) = pair(|part| part.upstream);
        let (good, better) = pair(|part| part.good);
        let (shed, _) = pair(|part| part.shed);
        println!(
            "{:<10}{:<9}{:>8}{upstream:>17}{more:>8.3}{good:>17}{better:>8.3}{shed:>14}{:>8}  {}",
            scenario.offered.name(),
            scenario.trips.name(),
            with.above.calls,
            with.hedges,
            match scenario.holds() {
                Some(true) => "holds",
                Some(false) => "DOES NOT HOLD",
                None => "the breaker opened",
            },
        );
        for (reason, count) in &with.held {
            println!("{:>27} held {count}", reason);
        }
    }
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
