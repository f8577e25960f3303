//! An axis of a chart: where a value lies, and its round ticks.

/// From a range of values to a range of the picture.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    /// Where `low` and `high` lie.
    ends: [f64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Logarithmic,
}

/// Values that span more are drawn on a logarithmic axis: on a linear one the low ones, which
/// matter, are all one line.
const SPAN: f64 = 8.0;

/// More ticks than that are too many to read.
const TICKS: f64 = 7.0;

impl Axis {
    /// From zero.
    pub(crate) fn linear(highest: f64, ends: [f64; 2]) -> Self {
        Self {
            low: 0.0,
            high: highest.max(f64::MIN_POSITIVE),
            scale: Scale::Linear,
            ends,
        }
    }

    /// For latencies: from zero, or logarithmic if they span much.
    pub(crate) fn fitting(values: impl Iterator<Item = f64> + Clone, ends: [f64; 2]) -> Self {
        let lowest = values.clone().fold(f64::INFINITY, f64::min);
        let highest = values.fold(0.0, f64::max);
        if lowest <= 0.0 || highest < SPAN * lowest {
            return Self::linear(highest * 1.1, ends);
        }
        Self {
            low: lowest / 1.3,
            high: highest * 1.3,
            scale: Scale::Logarithmic,
            ends,
        }
    }

    pub(crate) fn is_logarithmic(&self) -> bool {
        self.scale == Scale::Logarithmic
    }

    /// Where the value lies.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.ends[0] + share * (self.ends[1] - self.ends[0])
    }

    /// Round values: steps of 1, 2 or 5 times a power of ten.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let least = (self.high - self.low) / TICKS;
                let power = 10_f64.powf(least.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power);
                let step = step.into_iter().find(|step| *step >= least);
                let step = step.unwrap_or(10.0 * power);
                let count = (self.high / step * (1.0 + 1e-9)).floor() as u32;
                (0..=count).map(|tick| f64::from(tick) * step).collect()
            }
            Scale::Logarithmic => {
                let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let ticks = powers
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
                ticks
                    .filter(|tick| (self.low..=self.high).contains(tick))
                    .collect()
            }
        }
    }
}
