//! A snapshot of what a channel has measured.

use std::{sync::Arc, time::Duration};

use tonic_hedge_engine::{
    gate::{BreakerReading, BreakerState},
    plan::PlanReading,
};

use crate::{
    channel::Shared,
    endpoint::EndpointState,
    method::{Estimate, Method},
};

/// What a channel has measured: cheap enough to take each second.
///
/// Counts are since the channel was built. Numbers are read one after the other while calls
/// go on, so that sums may be off by the calls of a moment.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Measured {
    /// The methods that had calls, by name; those that no descriptor knows are one, `other`.
    pub methods: Vec<MethodMeasured>,
    /// Tokens in the budget; `None` for one by tower's trait, which does not tell.
    pub budget: Option<f64>,
    /// The circuit breakers, by name: one, `channel`, unless another scope was asked for.
    pub breakers: Vec<BreakerMeasured>,
    /// How late the runtime runs its timers; `None` unless the channel watches it.
    pub timer_lag: Option<Duration>,
    /// The endpoints, connected or not.
    pub endpoints: Vec<EndpointMeasured>,
    /// Whether all attempts go through one channel that hides where they go.
    pub opaque: bool,
    /// How far the channel is with learning from its servers; `None` if it was not asked to.
    #[cfg(feature = "reflection")]
    pub reflection: Option<crate::ReflectionState>,
    /// Streams of abandoned attempts that were reset.
    pub resets: u64,
    /// Abandoned attempts that were run out instead, to spare their connection a reset.
    pub detached: u64,
    /// Events that [`Builder::on_event`](crate::Builder::on_event)'s observer did not keep up with.
    pub events_lost: u64,
}

/// What was measured of one method.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MethodMeasured {
    /// `package.Service/Method`.
    pub method: String,
    /// When a hedge is considered; `None` until there are samples, and where each endpoint or
    /// locality has its own. Fixed delays included.
    pub threshold: Option<Duration>,
    /// Recent samples of the estimate.
    pub samples: u64,
    /// Recent latency of originals at p50, p95 and p99; `None` without samples, and where each
    /// endpoint or locality has its own.
    pub latency: Option<[Duration; 3]>,
    /// The plan that times its hedges; `None` unless the policy is
    /// [`Hedge::within`](crate::Hedge::within), and where each endpoint or locality has its own.
    pub plan: Option<PlanReading>,
    /// The estimates by endpoint or locality, by name; empty where the method has one
    /// ([`Scope::Method`](crate::Scope::Method)).
    pub estimates: Vec<EstimateMeasured>,
    /// Calls, but for those that were refused at once: by an open breaker, or with a deadline
    /// that had passed.
    pub calls: u64,
    /// Attempts of all kinds: what was sent upstream.
    pub attempts: u64,
    /// Hedges started.
    pub hedges: u64,
    /// Hedges whose OK became the call's. With the three that follow it is each hedge that has
    /// ended, so all four add up to `hedges` while none is in flight.
    pub hedges_won: u64,
    /// Hedges that another attempt's answer beat.
    pub hedges_lost: u64,
    /// Hedges that ended in an error, whether or not it became the call's.
    pub hedges_failed: u64,
    /// Hedges whose call passed its deadline or lost its caller.
    pub hedges_abandoned: u64,
    /// Retries started.
    pub retries: u64,
    /// Transparent replacements of attempts that were never processed.
    pub replacements: u64,
    /// The share of would-be hedges that the win rate lets start; `None` where hedging has no
    /// [`WinRate`](crate::WinRate).
    pub win_rate_allowance: Option<f64>,
    /// Hedges kept back, by the first gate or hold that did not hold: each that was due, and
    /// each call that could never hedge.
    pub suppressed: Vec<(&'static str, u64)>,
}

impl MethodMeasured {
    /// Hedges started per call; `None` without calls.
    pub fn hedge_rate(&self) -> Option<f64> {
        share(self.hedges, self.calls)
    }

    /// Hedges won per hedge started; `None` without hedges.
    pub fn win_rate(&self) -> Option<f64> {
        share(self.hedges_won, self.hedges)
    }

    /// Attempts sent per call; `None` without calls.
    pub fn amplification(&self) -> Option<f64> {
        share(self.attempts, self.calls)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What was measured of one method at one endpoint or in one locality.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EstimateMeasured {
    /// The endpoint, or the locality.
    pub name: Arc<str>,
    /// When a hedge is considered after an attempt there; `None` until there are samples.
    pub threshold: Option<Duration>,
    /// Recent samples.
    pub samples: u64,
    /// Recent latency of originals at p50, p95 and p99; `None` without samples.
    pub latency: Option<[Duration; 3]>,
    /// The plan for calls whose first attempt goes there; see [`MethodMeasured::plan`].
    pub plan: Option<PlanReading>,
}

/// What the breaker measures.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BreakerMeasured {
    /// What it guards: `channel`, a service or a method.
    pub name: String,
    /// Closed, open or half-open.
    pub state: BreakerState,
    /// Failures per outcome in its window; `None` while the window says too little.
    pub error_rate: Option<f64>,
    /// The failure rate of the last 10 minutes; `None` without outcomes.
    pub baseline: Option<f64>,
    /// The rate that opens it.
    pub trip_point: f64,
    /// The trip point by what was usual before the breaker's window: times
    /// [`suppress_at`](crate::Hedge::suppress_at) it is the rate from which on hedges are held.
    pub hedging_trip_point: f64,
}

/// One endpoint.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EndpointMeasured {
    /// As in logs and spans, like `10.0.0.1:50051`.
    pub name: Arc<str>,
    /// Where it is, if the user said so.
    pub locality: Option<Arc<str>>,
    /// Whether it is connected.
    pub state: EndpointState,
    /// Why it is not, once an attempt to connect has failed.
    pub last_error: Option<Arc<str>>,
    /// Attempts in flight, detached ones included.
    pub in_flight: u32,
    /// The latency by which the picker weighs the endpoint; `None` if nothing was measured. A slower
    /// answer replaces it, a faster one lowers it over some seconds. Each failure multiplies it by four, up to a minute,
    /// so that it stands for an error rate too. Of a stream it is the time to the first message, where
    /// that is raced for, or else to the head, and so it is of a method that no descriptor knows.
    pub latency: Option<Duration>,
}

impl Measured {
    pub(crate) fn of(shared: &Shared) -> Self {
        let now = shared.now();
        let (resets, detached) = shared.counters().reading();
        Self {
            methods: MethodMeasured::all(shared, now),
            budget: shared.budget().balance(now),
            breakers: BreakerMeasured::all(shared, now),
            timer_lag: shared.lag().map(|lag| lag.reading(now)),
            endpoints: EndpointMeasured::all(shared, now),
            opaque: shared.endpoints().is_opaque(),
            #[cfg(feature = "reflection")]
            reflection: shared
                .reflection()
                .map(crate::reflection::Reflection::state),
            resets,
            detached,
            events_lost: shared.telemetry().events_lost(),
        }
    }

    /// What was measured of `method`, given as `package.Service/Method`; `None` if it had no calls.
    pub fn method(&self, method: &str) -> Option<&MethodMeasured> {
        self.methods.iter().find(|known| known.method == method)
    }
}

impl MethodMeasured {
    pub(crate) fn all(shared: &Shared, now: Duration) -> Vec<Self> {
        let methods = shared.methods().iter();
        let mut all: Vec<_> = methods.filter_map(|method| Self::of(method, now)).collect();
        all.sort_by(|a, b| a.method.cmp(&b.method));
        all
    }

    /// `None` for a method without calls.
    fn of(method: &Method, now: Duration) -> Option<Self> {
        let stats = method.stats().reading();
        if stats.calls == 0 {
            return None;
        }
        let mut estimates = method.estimates(now);
        // One that has no name is the method's.
        let whole = estimates.pop_if(|estimate| estimate.name.is_none());
        let fixed = || method.hedge().and_then(|hedge| hedge.threshold(None));
        Some(Self {
            method: method.name().to_owned(),
            threshold: whole.as_ref().map_or_else(fixed, |whole| whole.threshold),
            samples: method.samples(now, None),
            latency: whole.as_ref().and_then(|whole| whole.latency),
            plan: whole.and_then(|whole| whole.plan),
            estimates: EstimateMeasured::all(estimates),
            calls: stats.calls,
            attempts: stats.attempts,
            hedges: stats.hedges,
            hedges_won: stats.hedges_won,
            hedges_lost: stats.hedges_lost,
            hedges_failed: stats.hedges_failed,
            hedges_abandoned: stats.hedges_abandoned,
            retries: stats.retries,
            replacements: stats.replacements,
            win_rate_allowance: method.win_rate().map(|meter| meter.allowance(now)),
            suppressed: stats
                .suppressed
                .into_iter()
                .map(|(reason, count)| (reason.name(), count))
                .collect(),
        })
    }
}

impl EstimateMeasured {
    fn all(estimates: Vec<Estimate>) -> Vec<Self> {
        let named = estimates.into_iter().filter_map(|estimate| {
            Some(Self {
                name: estimate.name?,
                threshold: estimate.threshold,
                samples: estimate.samples,
                latency: estimate.latency,
                plan: estimate.plan,
            })
        });
        let mut all: Vec<_> = named.collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl EndpointMeasured {
    pub(crate) fn all(shared: &Shared, now: Duration) -> Vec<Self> {
        let endpoints = shared.endpoints().snapshot();
        let all = endpoints.iter().map(|endpoint| Self {
            name: Arc::clone(endpoint.name()),
            locality: endpoint.locality().cloned(),
            state: endpoint.state(),
            last_error: endpoint.last_error(),
            in_flight: endpoint.load().in_flight(),
            latency: endpoint.load().latency(now),
        });
        all.collect()
    }
}

impl BreakerMeasured {
    pub(crate) fn all(shared: &Shared, now: Duration) -> Vec<Self> {
        let circuits = shared.circuits();
        let all = circuits
            .iter()
            .map(|circuit| Self::of(circuit.name(), &circuit.reading(now)));
        all.collect()
    }

    fn of(name: &str, reading: &BreakerReading) -> Self {
        Self {
            name: name.to_owned(),
            state: reading.state,
            error_rate: reading.error_rate,
            baseline: reading.baseline,
            trip_point: reading.trip_point,
            hedging_trip_point: reading.hedging_trip_point,
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn serializes() {
        let measured = Measured {
            methods: Vec::new(),
            budget: Some(10.0),
            breakers: vec![BreakerMeasured {
                name: "channel".to_owned(),
                state: BreakerState::HalfOpen,
                error_rate: None,
                baseline: None,
                trip_point: 0.5,
                hedging_trip_point: 0.1,
            }],
            timer_lag: None,
            endpoints: vec![EndpointMeasured {
                name: "10.0.0.1:50051".into(),
                locality: None,
                state: EndpointState::Ready,
                last_error: None,
                in_flight: 1,
                latency: Some(Duration::from_millis(5)),
            }],
            opaque: false,
            #[cfg(feature = "reflection")]
            reflection: Some(crate::ReflectionState::Unsupported),
            resets: 2,
            detached: 0,
            events_lost: 0,
        };
        let json = serde_json::to_value(&measured).unwrap();
        assert_eq!(json["breakers"][0]["state"], "half_open");
        assert_eq!(json["endpoints"][0]["state"], "ready");
        assert_eq!(json["budget"], 10.0);
    }
}
