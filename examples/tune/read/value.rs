//! One recorded latency.

use std::{str::FromStr, time::Duration};

/// A longer one is a mistake of the unit.
const LONGEST: f64 = 3_600.0;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

impl Unit {
    pub(crate) const ALL: [Self; 4] = [Self::Ns, Self::Us, Self::Ms, Self::S];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }

    /// How many make a second.
    pub(crate) fn per_second(self) -> f64 {
        match self {
            Self::Ns => 1e9,
            Self::Us => 1e6,
            Self::Ms => 1e3,
            Self::S => 1.0,
        }
    }

    /// A latency of so many; an error says the bounds. `text` is how it is written.
    pub(crate) fn latency(self, number: f64, text: &str) -> Result<Duration, String> {
        let seconds = number / self.per_second();
        // NaN is in no range.
        match (0.0..=LONGEST).contains(&seconds) {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(format!(
                "{text:?}, in {}, is not in [0, {LONGEST} s]",
                self.name()
            )),
        }
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = Self::ALL.into_iter().find(|unit| unit.name() == text);
        unit.ok_or_else(|| format!("{text:?} is not one of ns, us, ms, s"))
    }
}

/// Reads `12`, `12.5`, `12ms`, `340 us`, `1.2s`; `unit` is that of a number without one.
pub(crate) fn latency(text: &str, unit: Unit) -> Result<Duration, String> {
    match number(text) {
        Some((number, own)) => own.unwrap_or(unit).latency(number, text.trim()),
        None => Err(format!("{:?} is not a number", text.trim())),
    }
}

/// Whether it is a number, within its bounds or not.
pub(crate) fn is_number(text: &str) -> bool {
    number(text).is_some()
}

/// With its own unit.
fn number(text: &str) -> Option<(f64, Option<Unit>)> {
    let text = text.trim();
    let suffixes = [
        ("ns", Unit::Ns),
        ("us", Unit::Us),
        // Micro sign and Greek letter.
        ("\u{b5}s", Unit::Us),
        ("\u{3bc}s", Unit::Us),
        ("ms", Unit::Ms),
        ("s", Unit::S),
    ];
    let suffixed = suffixes
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)));
    match suffixed {
        Some((number, unit)) => Some((number.trim_end().parse().ok()?, Some(unit))),
        None => Some((text.parse().ok()?, None)),
    }
}
