//! How long a simulated replica takes.

use std::time::Duration;

use fastrand::Rng;

/// A distribution of latencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Latency {
    /// Evenly from 20 to 44 ms.
    Uniform,
    /// A median of 30 ms, with a long tail: the logarithm's standard deviation is 0.5.
    LogNormal,
    /// Nine in ten from 20 to 44 ms, one in ten from 250 to 580 ms: a replica that collects
    /// garbage.
    Bimodal,
    /// From 20 ms on, with the shape 2: the heaviest tail that has a mean worth the name.
    Pareto,
}

impl Latency {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Uniform, Self::LogNormal, Self::Bimodal, Self::Pareto];

    /// One latency.
    pub(crate) fn draw(self, rng: &mut Rng) -> Duration {
        let ms = match self {
            Self::Uniform => between(rng, 20.0, 44.0),
            Self::LogNormal => 30.0 * (0.5 * normal(rng)).exp(),
            Self::Bimodal if rng.f64() < 0.9 => between(rng, 20.0, 44.0),
            Self::Bimodal => between(rng, 250.0, 580.0),
            Self::Pareto => 20.0 * (1.0 - rng.f64()).powf(-0.5),
        };
        Duration::from_secs_f64(ms / 1e3)
    }
}

fn between(rng: &mut Rng, from: f64, to: f64) -> f64 {
    from + (to - from) * rng.f64()
}

/// By Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
