//! What each phase came to, with hedging and without.

use serde_json::{Value, json};

use crate::{fleet::Phase, quantile::quantile, traffic::Seen};

/// One phase.
pub(crate) struct Summary {
    pub(crate) phase: Phase,
    pub(crate) hedged: Side,
    pub(crate) plain: Side,
}

/// One channel's part of it.
pub(crate) struct Side {
    calls: usize,
    upstream: u64,
    p50_ms: f64,
    p99_ms: f64,
    errors: usize,
}

impl Side {
    /// Latencies are those of calls that were answered OK: a refusal is fast.
    pub(crate) fn new(seen: &[Seen], upstream: u64) -> Self {
        let good: Vec<_> = seen
            .iter()
            .filter(|call| call.code == tonic::Code::Ok)
            .map(|call| call.latency)
            .collect();
        Self {
            calls: seen.len(),
            upstream,
            errors: seen.len() - good.len(),
            p50_ms: quantile(good.clone(), 0.5),
            p99_ms: quantile(good, 0.99),
        }
    }

    fn json(&self) -> Value {
        json!({
            "calls": self.calls,
            "upstream_calls": self.upstream,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "errors": self.errors,
        })
    }
}

/// For programs.
pub(crate) fn json(phases: &[Summary]) -> Value {
    let phases = phases.iter().map(|phase| {
        let mut json = phase.hedged.json();
        json["phase"] = phase.phase.name().into();
        json["without_hedging"] = phase.plain.json();
        json
    });
    json!({ "summary": phases.collect::<Vec<_>>() })
}

/// For people.
pub(crate) fn table(phases: &[Summary]) -> String {
    let mut text = format!(
        "\nWithout hedging / with it:\n{:<9} {:>7} {:>15} {:>7} {:>17} {:>19} {:>13}\n",
        "phase", "calls", "upstream", "added", "p50", "p99", "errors"
    );
    for Summary {
        phase,
        hedged,
        plain,
    } in phases
    {
        let added = hedged.upstream as f64 / plain.upstream as f64 - 1.0;
        text += &format!(
            "{:<9} {:>7} {:>15} {:>+6.1}% {:>17} {:>19} {:>13}\n",
            phase.name(),
            hedged.calls,
            format!("{} / {}", plain.upstream, hedged.upstream),
            1e2 * added,
            format!("{:.1} / {:.1} ms", plain.p50_ms, hedged.p50_ms),
            format!("{:.1} / {:.1} ms", plain.p99_ms, hedged.p99_ms),
            format!("{} / {}", plain.errors, hedged.errors),
        );
    }
    text
}
