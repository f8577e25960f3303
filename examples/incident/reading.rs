//! One second of the incident, from two snapshots of what the channel has measured.

use serde_json::{Value, json};
use tonic_hedge::{Measured, MethodMeasured};

use crate::fleet::Phase;

/// The method that all calls are to.
const METHOD: &str = "hedge.testing.v1.Probe/Get";

/// What the channel says of one second. `None` is "not measured".
pub(crate) struct Reading {
    phase: Phase,
    /// Of the whole run.
    second: u64,
    threshold_ms: Option<f64>,
    hedge_rate: Option<f64>,
    win_rate: Option<f64>,
    /// What gate 4 looks at: of the breaker's window, not of this second.
    error_rate: Option<f64>,
    breaker: &'static str,
    allowance: Option<f64>,
    budget: Option<f64>,
    held_by: Option<&'static str>,
}

impl Reading {
    pub(crate) fn between(phase: Phase, second: u64, before: &Measured, now: &Measured) -> Self {
        let counts = |of: fn(&MethodMeasured) -> u64| count(now, of) - count(before, of);
        let method = now.method(METHOD);
        let breaker = now.breakers.first();
        let hedges = counts(|method| method.hedges);
        Self {
            phase,
            second,
            threshold_ms: method
                .and_then(|method| method.threshold)
                .map(|threshold| threshold.as_secs_f64() * 1e3),
            hedge_rate: share(hedges, counts(|method| method.calls)),
            win_rate: share(counts(|method| method.hedges_won), hedges),
            error_rate: breaker.and_then(|breaker| breaker.error_rate),
            breaker: breaker.map_or("none", |breaker| breaker.state.name()),
            allowance: method.and_then(|method| method.win_rate_allowance),
            budget: now.budget,
            held_by: held_most(before, now),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "phase": self.phase.name(),
            "second": self.second,
            "threshold_ms": self.threshold_ms,
            "hedge_rate": self.hedge_rate,
            "win_rate": self.win_rate,
            "error_rate": self.error_rate,
            "breaker": self.breaker,
            "allowance": self.allowance,
            "budget": self.budget,
            "held_by": self.held_by,
        })
    }

    /// The table's first line.
    pub(crate) fn head() -> String {
        format!(
            "{:<9} {:>4} {:>9} {:>7} {:>6} {:>7}  {:<9} {:>9} {:>7}  held by",
            "phase", "s", "threshold", "hedges", "wins", "errors", "breaker", "allowance", "budget"
        )
    }

    /// A line of the table.
    pub(crate) fn row(&self) -> String {
        let percent =
            |share: Option<f64>| or_dash(share.map(|share| format!("{:.1}%", 1e2 * share)));
        format!(
            "{:<9} {:>4} {:>9} {:>7} {:>6} {:>7}  {:<9} {:>9} {:>7}  {}",
            self.phase.name(),
            self.second,
            or_dash(self.threshold_ms.map(|ms| format!("{ms:.1} ms"))),
            percent(self.hedge_rate),
            percent(self.win_rate),
            percent(self.error_rate),
            self.breaker,
            or_dash(self.allowance.map(|share| format!("{share:.2}"))),
            or_dash(self.budget.map(|tokens| format!("{tokens:.1}"))),
            self.held_by.unwrap_or("-"),
        )
    }
}

/// Attempts between two snapshots: what was sent upstream.
pub(crate) fn attempts(before: &Measured, now: &Measured) -> u64 {
    count(now, |method| method.attempts) - count(before, |method| method.attempts)
}

fn count(measured: &Measured, of: impl Fn(&MethodMeasured) -> u64) -> u64 {
    measured.method(METHOD).map_or(0, of)
}

/// The gate or hold that kept back the most hedges between two snapshots.
fn held_most(before: &Measured, now: &Measured) -> Option<&'static str> {
    let earlier = |reason| {
        let known = before.method(METHOD)?.suppressed.iter();
        known
            .clone()
            .find(|(known, _)| *known == reason)
            .map(|(_, count)| *count)
    };
    let held = now.method(METHOD)?.suppressed.iter();
    held.map(|(reason, count)| (*reason, count - earlier(*reason).unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .max_by_key(|(_, count)| *count)
        .map(|(reason, _)| reason)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
