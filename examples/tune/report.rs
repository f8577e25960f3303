//! The result as a table with the advice, and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    advice::{Advice, Asked},
    outcome::Outcome,
    read::{Recorded, Source},
    units::{count, ms_aligned, percent_aligned, pth},
};

/// All that is known at the end.
pub(crate) struct Report<'a> {
    pub(crate) source: &'a Source,
    pub(crate) recorded: &'a Recorded,
    pub(crate) asked: Asked,
    /// Calls of each replay.
    pub(crate) calls: usize,
    pub(crate) outcomes: &'a [Outcome],
    pub(crate) advice: &'a Advice,
}

/// What is always shown.
const QUANTILES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

/// A line of text for a terminal.
const WIDTH: usize = 100;

impl Report<'_> {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut quantiles = QUANTILES.to_vec();
        if !quantiles.contains(&self.asked.quantile) {
            quantiles.push(self.asked.quantile);
            quantiles.sort_by(f64::total_cmp);
        }
        let mut text = format!(
            "{}: {} latencies, {}, in {}",
            self.source.file,
            count(self.recorded.latencies.count()),
            self.recorded.format,
            self.recorded.unit.name(),
        );
        if !self.recorded.latencies.is_exact() {
            text += "; kept as a histogram of three digits";
        }
        text += &format!(
            "\n{} calls of each policy, under virtual time\n\n",
            count(self.calls as u64)
        );

        let names: Vec<_> = self.outcomes.iter().map(|it| it.policy.name()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        text += &format!("  {:width$} {:>9}", "policy", "delay");
        for quantile in &quantiles {
            text += &format!(" {:>9}", pth(*quantile));
        }
        text += &format!(" {:>10}\n", "extra load");
        for (index, (outcome, name)) in self.outcomes.iter().zip(names).enumerate() {
            let mark = match index == self.advice.chosen {
                true => '>',
                false => ' ',
            };
            let delay = outcome.delay.map_or_else(|| "-".to_owned(), ms_aligned);
            text += &format!("{mark} {name:width$} {delay:>9}");
            for quantile in &quantiles {
                text += &format!(" {:>9}", ms_aligned(outcome.quantile(*quantile)));
            }
            text += &format!(" {:>10}\n", percent_aligned(outcome.extra_load));
        }
        for paragraph in &self.advice.text {
            text += &format!("\n{}", wrapped(paragraph));
        }
        text
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let policies: Vec<_> = self.outcomes.iter().map(|it| self.policy(it)).collect();
        let chosen = &self.outcomes[self.advice.chosen];
        json!({
            "file": self.source.file,
            "format": self.recorded.format,
            "unit": self.recorded.unit.name(),
            "values": self.recorded.latencies.count(),
            "exact": self.recorded.latencies.is_exact(),
            "calls": self.calls,
            "load": self.asked.load,
            "target_quantile": self.asked.quantile,
            "clumping": self.recorded.latencies.clumping(),
            "policies": policies,
            "advice": {
                "verdict": self.advice.verdict.name(),
                "chosen": self.advice.chosen,
                "rust": chosen.policy.rust(),
                "delay_ms": chosen.delay.map(milliseconds),
                "unhedged_ms": milliseconds(self.outcomes[0].quantile(self.asked.quantile)),
                "target_ms": milliseconds(chosen.quantile(self.asked.quantile)),
                "extra_load": chosen.extra_load,
                "text": self.advice.text,
            },
        })
    }

    fn policy(&self, outcome: &Outcome) -> Value {
        let quantile = |quantile| milliseconds(outcome.quantile(quantile));
        json!({
            "policy": outcome.policy.name(),
            "rust": outcome.policy.rust(),
            "delay_ms": outcome.delay.map(milliseconds),
            "p50_ms": quantile(0.5),
            "p95_ms": quantile(0.95),
            "p99_ms": quantile(0.99),
            "p999_ms": quantile(0.999),
            "target_ms": quantile(self.asked.quantile),
            "extra_load": outcome.extra_load,
            "hedge_wins": outcome.wins,
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// In lines of a terminal.
fn wrapped(text: &str) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        if column > 0 {
            // A sign of percent stays with its number.
            let breaks = column + 1 + word.len() > WIDTH && !word.starts_with('%');
            wrapped.push(if breaks { '\n' } else { ' ' });
            column = if breaks { 0 } else { column + 1 };
        }
        wrapped += word;
        column += word.len();
    }
    wrapped + "\n"
}
