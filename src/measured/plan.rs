//! What [`Hedge::within`](crate::Hedge::within) has planned.

use std::time::Duration;

use tonic_hedge_engine::plan::{PlanReading, PlanState};

/// What [`Hedge::within`](crate::Hedge::within) chose for a method, what it expects, and what came
/// of it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PlanMeasured {
    /// The most hedges per call.
    pub load: f64,
    /// The quantile of the calls' latency that it brings down.
    pub target_quantile: f64,
    /// How far it is.
    pub state: PlanState,
    /// When a hedge is due; `None` while the threshold is the quantile `1 - load`.
    pub delay: Option<Duration>,
    /// The share of the calls that outlast the delay which are hedged.
    pub probability: f64,
    /// What it expects the target quantile to be; `None` without a plan, like the next two.
    pub expected: Option<Duration>,
    /// What it expects the target quantile to be without hedges.
    pub unhedged: Option<Duration>,
    /// The hedges per call that it expects.
    pub expected_load: Option<f64>,
    /// The target quantile of the calls in the window.
    pub got: Option<Duration>,
    /// Hedges per call in the window.
    pub got_load: Option<f64>,
}

impl PlanMeasured {
    pub(super) fn of(reading: PlanReading) -> Self {
        let PlanReading {
            load,
            target_quantile,
            state,
            delay,
            probability,
            expected,
            unhedged,
            expected_load,
            got,
            got_load,
            ..
        } = reading;
        Self {
            load,
            target_quantile,
            state,
            delay,
            probability,
            expected,
            unhedged,
            expected_load,
            got,
            got_load,
        }
    }
}
