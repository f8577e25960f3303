//! What a run came to: percentiles and counts, as a table or as JSON.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use tonic_hedge::{AttemptKind, CallLog, Measured};

use crate::{load::Seen, replica::Counts};

/// The outcome of one side.
pub(crate) struct Side {
    /// In ascending order.
    latencies: Vec<Duration>,
    errors: usize,
    pub(crate) logs: Vec<CallLog>,
    upstream: Counts,
}

/// What the call logs say of the hedges.
#[derive(Default)]
pub(crate) struct Hedges {
    pub(crate) started: usize,
    pub(crate) won: usize,
    /// Hedges that met the endpoint of an earlier attempt of their call.
    pub(crate) same_endpoint: usize,
}

impl Side {
    pub(crate) fn new(seen: Vec<Seen>, upstream: Counts) -> Self {
        let mut latencies: Vec<_> = seen.iter().map(|call| call.latency).collect();
        latencies.sort_unstable();
        Self {
            latencies,
            errors: seen.iter().filter(|call| !call.ok).count(),
            logs: seen.into_iter().filter_map(|call| call.log).collect(),
            upstream,
        }
    }

    fn calls(&self) -> usize {
        self.latencies.len()
    }

    /// The least latency that a share `q` of the calls did not exceed, in milliseconds.
    fn at(&self, q: f64) -> f64 {
        let rank = (q * self.calls() as f64).ceil() as usize;
        let latency = self.latencies.get(rank.saturating_sub(1));
        latency.map_or(f64::NAN, Duration::as_secs_f64) * 1e3
    }

    fn upstream_per_call(&self) -> f64 {
        self.upstream.calls as f64 / self.calls() as f64
    }

    pub(crate) fn hedges(&self) -> Hedges {
        let mut hedges = Hedges::default();
        for log in &self.logs {
            hedges.won += usize::from(log.hedge_won());
            for (index, attempt) in log.attempts().iter().enumerate() {
                if attempt.kind() == AttemptKind::Hedge {
                    let earlier = &log.attempts()[..index];
                    hedges.started += 1;
                    hedges.same_endpoint += usize::from(
                        earlier
                            .iter()
                            .any(|earlier| earlier.endpoint() == attempt.endpoint()),
                    );
                }
            }
        }
        hedges
    }
}

/// For people.
pub(crate) fn table(plain: &Side, hedged: &Side) -> String {
    let mut text = String::from("              p50       p95       p99     p99.9   upstream\n");
    for (name, side) in [("plain", plain), ("hedged", hedged)] {
        let [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(|q| side.at(q));
        let upstream = side.upstream_per_call();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{name:>6} {p50:>7.1} ms {p95:>6.1} ms {p99:>6.1} ms {p999:>6.1} ms {upstream:>6.3} calls per call"
        );
    }
    let Hedges { started, won, .. } = hedged.hedges();
    let _ = writeln!(
        text,
        "\n{started} hedges, {won} of them won; {} calls cancelled at their replicas; {} errors",
        hedged.upstream.cancelled,
        plain.errors + hedged.errors,
    );
    text
}

/// For programs.
pub(crate) fn json(plain: &Side, hedged: &Side, measured: &Measured) -> Value {
    let hedges = hedged.hedges();
    let mut json = json!({ "plain": side(plain), "hedged": side(hedged) });
    json["hedged"]["hedges"] = hedges.started.into();
    json["hedged"]["hedge_wins"] = hedges.won.into();
    json["hedged"]["same_endpoint_hedges"] = hedges.same_endpoint.into();
    json["hedged"]["detached"] = measured.detached.into();
    json
}

fn side(side: &Side) -> Value {
    json!({
        "p50_ms": side.at(0.5),
        "p95_ms": side.at(0.95),
        "p99_ms": side.at(0.99),
        "p999_ms": side.at(0.999),
        "calls": side.calls(),
        "upstream_calls": side.upstream.calls,
        "cancelled_upstream": side.upstream.cancelled,
        "errors": side.errors,
    })
}
