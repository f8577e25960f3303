//! The policies that are tried, and how each is written in Rust.

use std::time::Duration;

use tonic_hedge::Hedge;

use crate::{latencies::Latencies, units::ms};

/// One policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    pub(crate) timing: Timing,
    /// In flight at once, the original included.
    pub(crate) attempts: u32,
    /// `Hedge::minimum_delay`, where the default is too much for this RPC.
    pub(crate) floor: Option<Duration>,
}

/// What makes a hedge due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Timing {
    Never,
    At(f64),
    After(Duration),
    Within { load: f64, quantile: f64 },
}

/// Live quantiles to try besides the one that the load asks for: steps as one would write them.
const QUANTILES: [f64; 12] = [
    0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.95, 0.98, 0.99,
];

/// Fixed delays to try between the median and the slowest: as many in the gaps of a distribution
/// as where its calls are.
const DELAYS: u32 = 8;

/// Quantiles of what was recorded that are tried as fixed delays too.
const DELAYS_AT: [f64; 7] = [0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99];

/// The default of `Hedge::minimum_delay`.
const USUAL_FLOOR: Duration = Duration::from_millis(10);

/// The least that `Hedge::minimum_delay` may be.
const LEAST_FLOOR: Duration = Duration::from_millis(1);

impl Policy {
    /// Never hedges.
    pub(crate) const NONE: Self = Self {
        timing: Timing::Never,
        attempts: 2,
        floor: None,
    };

    /// All that are tried, from no hedging on; then by kind.
    pub(crate) fn all(latencies: &Latencies, load: f64, quantile: f64) -> Vec<Self> {
        let values = latencies.values();
        // A median below the usual floor: that would keep nearly all hedges from starting.
        let floor = (at(&values, 0.5) < USUAL_FLOOR).then_some(LEAST_FLOOR);
        let policy = |timing, attempts| Self {
            timing,
            attempts,
            floor,
        };
        // What a second hedge costs is the square of what the first one does.
        let shares = [(2, load), (3, (0.25 + load).sqrt() - 0.5)];

        let mut policies = vec![Self::NONE];
        let mut quantiles = QUANTILES.map(|quantile| (2, quantile)).to_vec();
        for (attempts, share) in shares {
            let quantile = thousandths(1.0 - share);
            if quantile >= 0.5 && !quantiles.contains(&(attempts, quantile)) {
                quantiles.push((attempts, quantile));
            }
        }
        quantiles.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        policies.extend(
            quantiles
                .into_iter()
                .map(|(attempts, quantile)| policy(Timing::At(quantile), attempts)),
        );

        let (from, to) = (at(&values, 0.5), at(&values, 0.995));
        let ratio = to.as_secs_f64() / from.as_secs_f64().max(1e-9);
        let steps = (0..DELAYS).map(|step| f64::from(step) / f64::from(DELAYS - 1));
        let mut delays: Vec<_> = steps
            .map(|step| (2, rounded(from.mul_f64(ratio.powf(step)))))
            .collect();
        delays.extend(DELAYS_AT.map(|quantile| (2, rounded(at(&values, quantile)))));
        for (attempts, share) in shares {
            delays.push((attempts, rounded(at(&values, 1.0 - share))));
        }
        delays.sort_unstable();
        delays.dedup();
        policies.extend(
            delays
                .into_iter()
                .filter(|(_, delay)| !delay.is_zero())
                .map(|(attempts, delay)| policy(Timing::After(delay), attempts)),
        );

        let within = Timing::Within { load, quantile };
        policies.extend([2, 3].map(|attempts| policy(within, attempts)));
        policies
    }

    /// As the channel's builder takes it; `None` never hedges.
    pub(crate) fn hedge(&self) -> Option<Hedge> {
        let mut hedge = match self.timing {
            Timing::Never => return None,
            Timing::At(quantile) => Hedge::at(quantile),
            Timing::After(delay) => Hedge::after(delay),
            Timing::Within { load, quantile } => Hedge::within(load).target_quantile(quantile),
        };
        if let Some(floor) = self.floor {
            hedge = hedge.minimum_delay(floor);
        }
        Some(hedge.max_concurrent(self.attempts))
    }

    /// The same as a line of Rust, with what is not a default.
    pub(crate) fn rust(&self) -> String {
        let mut rust = match self.timing {
            Timing::Never => return String::new(),
            Timing::At(quantile) => format!("Hedge::at({quantile})"),
            Timing::After(delay) => format!("Hedge::after({})", duration(delay)),
            Timing::Within { load, quantile } => {
                let target = match quantile {
                    0.99 => String::new(),
                    quantile => format!(".target_quantile({quantile})"),
                };
                format!("Hedge::within({load}){target}")
            }
        };
        if self.attempts != 2 {
            rust += &format!(".max_concurrent({})", self.attempts);
        }
        // A fixed delay is the user's own number, whatever the floor.
        if let (Some(floor), Timing::At(_) | Timing::Within { .. }) = (self.floor, self.timing) {
            rust += &format!(".minimum_delay({})", duration(floor));
        }
        format!(".hedge({rust})")
    }

    /// A short name.
    pub(crate) fn name(&self) -> String {
        let name = match self.timing {
            Timing::Never => return "no hedging".to_owned(),
            Timing::At(quantile) => format!("at({quantile})"),
            Timing::After(delay) => format!("after({})", ms(delay)),
            Timing::Within { load, .. } => format!("within({load})"),
        };
        match self.attempts {
            2 => name,
            attempts => format!("{name}, {attempts} at once"),
        }
    }
}

/// A quantile of ascending values.
pub(crate) fn at(values: &[Duration], quantile: f64) -> Duration {
    // What a product of decimals misses by is no rank.
    let rank = (quantile * values.len() as f64 - 1e-6).ceil() as usize;
    let value = values.get(rank.saturating_sub(1).min(values.len().saturating_sub(1)));
    value.copied().unwrap_or_default()
}

/// Rounded up: less load, not more.
fn thousandths(quantile: f64) -> f64 {
    // What a sum of decimals misses by is no thousandth.
    ((quantile * 1e3 - 1e-6).ceil() / 1e3).min(0.999)
}

/// To two digits, upwards: a delay as one would write it.
fn rounded(delay: Duration) -> Duration {
    let us = delay.as_micros() as f64;
    let digit = 10_f64.powf((us.max(1.0).log10()).floor() - 1.0).max(1.0);
    Duration::from_micros(((us / digit).ceil() * digit) as u64)
}

fn duration(delay: Duration) -> String {
    match delay.as_micros() {
        us if us % 1_000 == 0 => format!("Duration::from_millis({})", us / 1_000),
        us => format!("Duration::from_micros({us})"),
    }
}
