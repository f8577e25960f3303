//! Distributions of independent latencies.

use std::{f64::consts::TAU, time::Duration};

use fastrand::Rng;

/// A distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// Evenly from 20 to 44 ms.
    Uniform,
    /// A median of 30 ms, with a long tail: the logarithm's standard deviation is 0.5.
    LogNormal,
    /// From 20 to 44 ms, and a share from 250 to 580 ms, each evenly: a replica that collects
    /// garbage.
    Bimodal {
        /// The slow share, 0 to 1.
        slow: f64,
    },
    /// From 20 ms on, with the shape 2: the heaviest tail that has a mean worth the name.
    Pareto,
    /// Exponential with the mean 50 ms: the work of a queue.
    Exponential,
}

impl Latency {
    /// One in ten is slow.
    pub const BIMODAL: Self = Self::Bimodal { slow: 0.1 };

    /// What replicas are taken to do. [`Latency::Exponential`] is not among them: it is work, not
    /// the latency of a service.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::LogNormal, Self::BIMODAL, Self::Pareto];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::LogNormal => "log_normal",
            Self::Bimodal { .. } => "bimodal",
            Self::Pareto => "pareto",
            Self::Exponential => "exponential",
        }
    }

    /// The mean.
    pub fn mean(self) -> Duration {
        let ms = match self {
            Self::Uniform => 32.0,
            Self::LogNormal => 30.0 * (0.5_f64 * 0.5 / 2.0).exp(),
            Self::Bimodal { slow } => 32.0 * (1.0 - slow) + 415.0 * slow,
            Self::Pareto => 40.0,
            Self::Exponential => 50.0,
        };
        Duration::from_secs_f64(ms / 1e3)
    }

    /// One latency.
    pub fn draw(self, draws: &mut Rng) -> Duration {
        let ms = match self {
            Self::Uniform => between(draws, 20.0, 44.0),
            Self::LogNormal => 30.0 * (0.5 * normal(draws)).exp(),
            Self::Bimodal { slow } if draws.f64() >= slow => between(draws, 20.0, 44.0),
            Self::Bimodal { .. } => between(draws, 250.0, 580.0),
            Self::Pareto => 20.0 * (1.0 - draws.f64()).powf(-0.5),
            Self::Exponential => 50.0 * exponential(draws),
        };
        Duration::from_secs_f64(ms / 1e3)
    }
}

/// An exponential draw with the mean 1.
pub(crate) fn exponential(draws: &mut Rng) -> f64 {
    // In (0, 1], whose logarithm is finite.
    -(1.0 - draws.f64()).ln()
}

fn between(draws: &mut Rng, from: f64, to: f64) -> f64 {
    from + (to - from) * draws.f64()
}

/// By Box and Muller.
fn normal(draws: &mut Rng) -> f64 {
    let (u, v) = (1.0 - draws.f64(), draws.f64());
    (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
}
