//! The gauges: what a snapshot of a channel or of lanes says, when a reader asks.
//!
//! A callback can't be taken back from OpenTelemetry's API, so there is one set of them for each
//! provider and none for each channel: a channel that is gone is a weak reference that leads
//! nowhere, and an endpoint that is gone is not in the snapshot any more.

use std::sync::{Arc, Weak};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Meter},
};
use parking_lot::Mutex;

use super::{Measure, names};
use crate::{BreakerState, LaneMeasured, measured::MethodMeasured, telemetry::Measures};

/// A channel's name, and the channel.
pub(super) type Named = (Arc<str>, Weak<dyn Measure>);

/// The live channels on one provider.
#[derive(Default)]
pub(super) struct Channels(Mutex<Vec<Named>>);

impl Channels {
    /// Once, however often.
    pub(super) fn add(&self, (target, channel): &Named) {
        let mut channels = self.0.lock();
        channels.retain(|(_, known)| known.strong_count() > 0 && !Weak::ptr_eq(known, channel));
        channels.push((target.clone(), channel.clone()));
    }

    pub(super) fn remove(&self, (_, channel): &Named) {
        let mut channels = self.0.lock();
        channels.retain(|(_, known)| !Weak::ptr_eq(known, channel));
    }

    fn live(&self) -> Vec<(KeyValue, Arc<dyn Measure>)> {
        let channels = self.0.lock();
        let live = channels.iter().filter_map(|(target, channel)| {
            let channel = channel.upgrade()?;
            let key = match channel.what() {
                Measures::Channel => names::GRPC_TARGET,
                Measures::Lanes => names::LANES,
            };
            Some((KeyValue::new(key, target.clone()), channel))
        });
        live.collect()
    }
}

/// One gauge: what it shows of a channel.
type Show = fn(&dyn Measure, &mut dyn FnMut(f64, &[KeyValue]));

/// Adds the gauges to a meter.
pub(super) fn register(meter: &Meter, channels: &Arc<Channels>) {
    let gauges: [(&'static str, &'static str, &'static str, Show); 10] = [
        (
            names::THRESHOLD_NOW,
            "The threshold that a call must outrun to be hedged",
            "s",
            thresholds,
        ),
        (
            names::LATENCY,
            "Recent latency of originals, by quantile",
            "s",
            latencies,
        ),
        (
            names::ALLOWANCE,
            "The share of would-be hedges that the win rate lets start",
            "1",
            allowances,
        ),
        (
            names::BUDGET,
            "Tokens in the budget of retries and hedges",
            "{token}",
            budget,
        ),
        (
            names::BREAKER_STATE,
            "1 for the state that the circuit breaker is in",
            "{state}",
            breaker_states,
        ),
        (
            names::BREAKER_ERROR_RATE,
            "Failures per outcome in the circuit breaker's window",
            "1",
            error_rates,
        ),
        (
            names::ENDPOINT_IN_FLIGHT,
            "Attempts in flight at an endpoint",
            "{attempt}",
            in_flight,
        ),
        (
            names::ENDPOINT_LATENCY,
            "The latency by which an endpoint is weighed: a failure multiplies it by four, up to a minute",
            "s",
            endpoint_latencies,
        ),
        (
            names::LANE_LIMIT,
            "The most calls in flight in a lane",
            "{call}",
            lane_limits,
        ),
        (
            names::LANE_IN_FLIGHT,
            "Calls and their hedges in flight in a lane",
            "{call}",
            lanes_in_flight,
        ),
    ];
    for (name, what, unit, show) in gauges {
        let channels = channels.clone();
        meter
            .f64_observable_gauge(name)
            .with_description(what)
            .with_unit(unit)
            .with_callback(move |to| observe(&channels, show, to))
            .build();
    }
    // Counted by the lane itself: an instrument would cost more than an admission does.
    let channels = channels.clone();
    meter
        .u64_observable_counter(names::LANE_CALLS)
        .with_description("Calls that a lane let in or shed")
        .with_unit("{call}")
        .with_callback(move |to| {
            observe(&channels, lane_calls, &Whole(to));
        })
        .build();
}

/// Shows counts to an instrument that takes whole numbers.
struct Whole<'a>(&'a dyn AsyncInstrument<u64>);

impl AsyncInstrument<f64> for Whole<'_> {
    fn observe(&self, count: f64, attributes: &[KeyValue]) {
        self.0.observe(count as u64, attributes);
    }
}

fn observe(channels: &Channels, show: Show, to: &dyn AsyncInstrument<f64>) {
    // Read without the lock: a channel may be dropped here, and takes its time.
    for (target, channel) in channels.live() {
        show(&*channel, &mut |value, about| {
            let mut attributes = Vec::with_capacity(1 + about.len());
            attributes.push(target.clone());
            attributes.extend_from_slice(about);
            to.observe(value, &attributes);
        });
    }
}

fn method(measured: &MethodMeasured) -> KeyValue {
    KeyValue::new(names::GRPC_METHOD, measured.method.clone())
}

fn thresholds(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &channel.methods() {
        if let Some(threshold) = of.threshold {
            show(threshold.as_secs_f64(), &[method(of)]);
        }
    }
}

fn latencies(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &channel.methods() {
        let latency = of.latency.into_iter().flatten();
        for (quantile, latency) in ["0.5", "0.95", "0.99"].into_iter().zip(latency) {
            let quantile = KeyValue::new(names::QUANTILE, quantile);
            show(latency.as_secs_f64(), &[method(of), quantile]);
        }
    }
}

fn allowances(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &channel.methods() {
        if let Some(allowance) = of.win_rate_allowance {
            show(allowance, &[method(of)]);
        }
    }
}

fn budget(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    if let Some(tokens) = channel.budget() {
        show(tokens, &[]);
    }
}

fn breaker_states(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    const ALL: [BreakerState; 3] = [
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
    ];
    for breaker in &channel.breakers() {
        for state in ALL {
            let is = f64::from(u8::from(state == breaker.state));
            let name = KeyValue::new(names::BREAKER, breaker.name.clone());
            show(is, &[name, KeyValue::new(names::STATE, state.name())]);
        }
    }
}

fn error_rates(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for breaker in &channel.breakers() {
        if let Some(rate) = breaker.error_rate {
            show(rate, &[KeyValue::new(names::BREAKER, breaker.name.clone())]);
        }
    }
}

fn in_flight(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for endpoint in &channel.endpoints() {
        let name = KeyValue::new(names::ENDPOINT, endpoint.name.clone());
        show(endpoint.in_flight.into(), &[name]);
    }
}

fn endpoint_latencies(channel: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for endpoint in &channel.endpoints() {
        if let Some(latency) = endpoint.latency {
            let name = KeyValue::new(names::ENDPOINT, endpoint.name.clone());
            show(latency.as_secs_f64(), &[name]);
        }
    }
}

fn lane(measured: &LaneMeasured) -> KeyValue {
    KeyValue::new(names::LANE, measured.name.clone())
}

fn lane_limits(lanes: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &lanes.lanes() {
        show(of.limit.into(), &[lane(of)]);
    }
}

fn lanes_in_flight(lanes: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &lanes.lanes() {
        show(of.in_flight.into(), &[lane(of)]);
    }
}

fn lane_calls(lanes: &dyn Measure, show: &mut dyn FnMut(f64, &[KeyValue])) {
    for of in &lanes.lanes() {
        for (outcome, count) in [("admitted", of.admitted), ("shed", of.shed)] {
            // Exact up to 2^53.
            show(
                count as f64,
                &[lane(of), KeyValue::new(names::OUTCOME, outcome)],
            );
        }
    }
}
