//! The middle of some numbers, and the quartiles around it.

use std::fmt;

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let at = |share| quantile(&numbers, share);
        Self {
            low: at(0.25),
            median: at(0.5),
            high: at(0.75),
        }
    }

    /// Of each round's ratio: what slows all of a round down cancels out.
    pub(crate) fn of_ratios(rounds: &[f64], base: &[f64]) -> Self {
        Self::of(rounds.iter().zip(base).map(|(it, base)| it / base))
    }

    pub(crate) fn json(self) -> Value {
        json!({ "low": self.low, "median": self.median, "high": self.high })
    }
}

/// The value at `share` of the way through, between two neighbours if need be; NaN where there are
/// none.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = sorted.len().saturating_sub(1) as f64 * share;
    let [below, above] = [at.floor(), at.ceil()].map(|index| sorted.get(index as usize));
    match (below, above) {
        (Some(below), Some(above)) => below + (above - below) * at.fract(),
        _ => f64::NAN,
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, median, high } = self;
        let decimals = out.precision().unwrap_or(3);
        write!(
            out,
            "{median:.decimals$} ({low:.decimals$}-{high:.decimals$})"
        )
    }
}
