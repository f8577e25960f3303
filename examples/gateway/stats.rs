//! What the page shows, as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tonic_hedge::{EndpointMeasured, LaneMeasured, Lanes, Measured, MethodMeasured};

use crate::{
    api,
    gateway::Gateway,
    policy::{BATCH, INTERACTIVE},
    recent::Seen,
    region::Region,
    scale::SCALE,
};

/// All of it. `phase` is that of a replay, if one runs.
pub(crate) fn stats(gateway: &Gateway, phase: Option<&str>, up: f64) -> Value {
    let now = Instant::now();
    let measured = gateway.channel.measured();
    let lanes = gateway
        .lanes
        .as_ref()
        .map(Lanes::measured)
        .unwrap_or_default();
    let spent = gateway.fleet.tokens.spent();
    let regions = gateway.fleet.regions.iter();
    json!({
        "up_s": up,
        "grpc": gateway.uri(),
        "scale": SCALE,
        "phase": phase,
        "latency": {
            INTERACTIVE: seen(&gateway.front.interactive().seen(now)),
            BATCH: seen(&gateway.front.batch().seen(now)),
        },
        "regions": regions.map(|it| region(it, &measured)).collect::<Vec<_>>(),
        "hedging": hedging(measured.method(api::METHOD)),
        "lanes": lanes.iter().map(lane).collect::<Vec<_>>(),
        "breaker": measured.breakers.first().map(|breaker| json!({
            "state": breaker.state.name(),
            "error_rate": breaker.error_rate,
            "trip_point": breaker.trip_point,
        })),
        "budget": measured.budget,
        "tokens": {"sent": spent.sent, "lost": spent.lost, "left": spent.left},
    })
}

fn seen(seen: &Seen) -> Value {
    json!({
        "calls": seen.calls,
        "failed": seen.failed,
        "left": seen.left,
        "hedged": seen.hedged,
        "hedge_won": seen.hedge_won,
        "answered": seen.answered,
        "first_ms": seen.first_ms,
        "total_ms": seen.total_ms,
    })
}

fn lane(lane: &LaneMeasured) -> Value {
    let mut value = json!(lane);
    if let Some(lane_value) = value.as_object_mut() {
        lane_value.remove("held");
        lane_value.insert("held_ms".to_owned(), json!(lane.held.map(ms)));
    }
    value
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn region(region: &Region, measured: &Measured) -> Value {
    let method = measured.method(api::METHOD);
    let estimates = method.map_or(&[][..], |method| &method.estimates);
    let estimate = estimates.iter().find(|it| &*it.name == region.name);
    let here = |it: &&EndpointMeasured| it.locality.as_deref() == Some(region.name);
    let replicas = measured.endpoints.iter().filter(here);
    json!({
        "name": region.name,
        "floor_ms": ms(region.floor()),
        "errors": region.errors(),
        "threshold_ms": estimate.and_then(|it| it.threshold).map(ms),
        "samples": estimate.map_or(0, |it| it.samples),
        "first_ms": estimate.and_then(|it| it.latency).map(|latency| latency.map(ms)),
        "replicas": replicas.map(|replica| json!({
            "name": &*replica.name,
            "state": replica.state,
            "in_flight": replica.in_flight,
        })).collect::<Vec<_>>(),
    })
}

fn hedging(method: Option<&MethodMeasured>) -> Value {
    let held = method.map_or(&[][..], |method| &method.suppressed);
    let held = held.iter().filter(|(_, count)| *count > 0);
    let held: serde_json::Map<_, _> = held
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect();
    let count = |of: fn(&MethodMeasured) -> u64| method.map_or(0, of);
    json!({
        "calls": count(|it| it.calls),
        "attempts": count(|it| it.attempts),
        "retries": count(|it| it.retries),
        "hedges": count(|it| it.hedges),
        "won": count(|it| it.hedges_won),
        "rate": method.and_then(MethodMeasured::hedge_rate),
        "win_rate": method.and_then(MethodMeasured::win_rate),
        "held": held,
    })
}
