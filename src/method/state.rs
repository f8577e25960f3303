//! One method: what its descriptor and the channel's policy make of it, and its latency window.

use std::{sync::Arc, time::Duration};

use tonic_hedge_engine::{
    measure::WinRateMeter,
    plan::{PlanReading, Planner},
    policy::{Hedge, PolicyError, Retry, Timing},
};

use super::{
    MethodPolicies, Stats,
    layers::Merged,
    windows::{self, Windows},
};
use crate::{
    call::Codes,
    circuit::{Circuit, Circuits},
    descriptor::MethodDescriptor,
    endpoint::Endpoint,
    hooks::{Classifier, Targeting},
    learned::MethodLearned,
    service_config::ServiceConfig,
    telemetry::{MethodTelemetry, Telemetry},
};

/// What the channel's builder says for every method.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) hedge: Option<Hedge>,
    pub(crate) retry: Retry,
    pub(crate) max_attempts: u32,
    pub(crate) estimator: Estimator,
    pub(crate) classifier: Option<Classifier>,
    pub(crate) targeting: Option<Targeting>,
    /// What it says for some of them.
    pub(crate) policies: MethodPolicies,
    pub(crate) service_config: ServiceConfig,
}

/// What of a method's calls can be raced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The whole answer.
    Unary,
    /// A stream's first message.
    FirstMessage,
    /// A stream's first message, if the request asks for it.
    ServerStreaming,
    /// Nothing: requests come one after the other, or nothing is known.
    Other,
}

impl Shape {
    pub(super) fn of(descriptor: &MethodDescriptor, first_message: bool) -> Self {
        match (descriptor.client_streaming, descriptor.server_streaming) {
            (false, false) => Self::Unary,
            (false, true) if first_message => Self::FirstMessage,
            (false, true) => Self::ServerStreaming,
            (true, _) => Self::Other,
        }
    }
}

/// Which estimator measures a method's latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Estimator {
    /// A ring of bucketed histograms: a record costs nanoseconds.
    #[default]
    Ring,
    /// `quantiles`' CKMS summary. ARCHITECTURE.md has the table that says why it is not the
    /// default.
    #[cfg(feature = "quantiles")]
    Ckms,
}

impl Estimator {
    /// Whether it puts samples aside, to be folded off the calls' path.
    pub(super) fn folds(self) -> bool {
        match self {
            Self::Ring => false,
            #[cfg(feature = "quantiles")]
            Self::Ckms => true,
        }
    }
}

/// One method of one channel.
#[derive(Debug)]
pub(crate) struct Method {
    /// `package.Service/Method`.
    name: Box<str>,
    shape: Shape,
    repeatable: Result<&'static str, &'static str>,
    hedge: Option<Arc<Hedge>>,
    max_attempts: u32,
    retry: Retry,
    unhedged_retry: Retry,
    retries_only: bool,
    retryable: Codes,
    timeout: Option<Duration>,
    classifier: Option<Classifier>,
    targeting: Option<Targeting>,
    windows: Option<Windows>,
    win_rate: Option<WinRateMeter>,
    circuit: Option<Arc<Circuit>>,
    stats: Stats,
    telemetry: Arc<MethodTelemetry>,
}

impl Method {
    /// A method of a descriptor set.
    ///
    /// # Errors
    /// A field of the merged policy is out of its bounds.
    pub(crate) fn new(
        descriptor: &MethodDescriptor,
        defaults: &Defaults,
        circuits: &mut Circuits,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, PolicyError> {
        let Merged {
            shape,
            repeatable,
            hedge,
            max_attempts,
            retry,
            unhedged_retry,
            retries_only,
            retryable,
            timeout,
            classifier,
            targeting,
        } = Merged::of(descriptor, defaults)?;
        // Also where nothing is hedged by a quantile: a request may bring a policy that is. It
        // costs little before the first sample.
        let measured = hedge.clone().unwrap_or_else(|| Hedge::at(0.95));
        let windows = (shape != Shape::Other).then(|| Windows::new(defaults.estimator, &measured));
        let win_rate = match hedge.as_ref().and_then(|hedge| hedge.win_rate.as_ref()) {
            Some(win_rate) => Some(WinRateMeter::new(win_rate)?),
            None => None,
        };
        let name = descriptor.path.trim_start_matches('/');
        Ok(Self {
            name: name.into(),
            shape,
            repeatable,
            hedge: hedge.map(Arc::new),
            max_attempts,
            retry,
            unhedged_retry,
            retries_only,
            retryable,
            timeout,
            classifier,
            targeting,
            windows,
            win_rate,
            circuit: circuits.of(name)?,
            stats: Stats::default(),
            telemetry: Arc::new(MethodTelemetry::new(telemetry, name, true)),
        })
    }

    /// What all methods that no descriptor knows share: one attempt.
    pub(crate) fn other(
        defaults: &Defaults,
        circuits: &mut Circuits,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, PolicyError> {
        let retry = defaults.retry.clone();
        let targeting = defaults.targeting.clone();
        let name = "other";
        Ok(Self {
            name: name.into(),
            shape: Shape::Other,
            repeatable: Err("not in a descriptor set"),
            hedge: None,
            max_attempts: 1,
            unhedged_retry: retry.clone(),
            retry,
            retries_only: false,
            retryable: Codes::default(),
            timeout: None,
            classifier: None,
            targeting,
            windows: None,
            win_rate: None,
            circuit: circuits.of(name)?,
            stats: Stats::default(),
            telemetry: Arc::new(MethodTelemetry::new(telemetry, name, false)),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn repeatable(&self) -> Result<&'static str, &'static str> {
        self.repeatable
    }

    pub(crate) fn hedge(&self) -> Option<&Arc<Hedge>> {
        self.hedge.as_ref()
    }

    pub(crate) fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How failed attempts are retried, where a hedge policy is in force and where none is: a
    /// service config's hedging has no backoff.
    pub(crate) fn retry(&self, hedged: bool) -> &Retry {
        match hedged {
            true => &self.retry,
            false => &self.unhedged_retry,
        }
    }

    /// What permits to repeat it is a permission to retry, not to race.
    pub(crate) fn retries_only(&self) -> bool {
        self.retries_only
    }

    pub(crate) fn retryable(&self) -> Codes {
        self.retryable
    }

    /// The longest that a call may take.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn classifier(&self) -> Option<&Classifier> {
        self.classifier.as_ref()
    }

    pub(crate) fn targeting(&self) -> Option<&Targeting> {
        self.targeting.as_ref()
    }

    pub(crate) fn win_rate(&self) -> Option<&WinRateMeter> {
        self.win_rate.as_ref()
    }

    /// The breaker that guards it.
    pub(crate) fn circuit(&self) -> Option<&Circuit> {
        self.circuit.as_deref()
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Who is told of its calls.
    pub(crate) fn telemetry(&self) -> &Arc<MethodTelemetry> {
        &self.telemetry
    }

    /// The quantile that `hedge` asks for of attempts at `endpoint`, if it is measured and there
    /// are samples.
    pub(crate) fn measured(
        &self,
        hedge: &Arc<Hedge>,
        now: Duration,
        endpoint: &Endpoint,
    ) -> Option<Duration> {
        let own = self.owns(hedge);
        self.windows.as_ref()?.at(now, endpoint, |window| {
            if own {
                return window.threshold(now);
            }
            // The request's own policy, `within` too: computed for this call alone, which makes no
            // plan, at the cost of a look at the whole window.
            let quantile = hedge.quantile()?;
            let samples = window.estimator.samples(now);
            let enough = samples >= hedge.minimum_samples;
            enough.then(|| window.estimator.quantile(now, quantile))?
        })
    }

    /// With the plan for calls whose original went to `endpoint`, where the method has one and
    /// `hedge` is the method's own policy.
    pub(crate) fn plan<T>(
        &self,
        hedge: &Arc<Hedge>,
        now: Duration,
        endpoint: &Endpoint,
        with: impl FnOnce(&Planner) -> T,
    ) -> Option<T> {
        // Nearly no method has one: known before any window is looked for.
        if !self.owns(hedge) || !self.plans() {
            return None;
        }
        let windows = self.windows.as_ref()?;
        windows.at(now, endpoint, |window| window.planner.as_ref().map(with))
    }

    /// Whether it is the method's own policy, not one that a request brings.
    fn owns(&self, hedge: &Arc<Hedge>) -> bool {
        self.hedge.as_ref().is_some_and(|it| Arc::ptr_eq(it, hedge))
    }

    /// Whether its hedging is planned.
    pub(super) fn plans(&self) -> bool {
        let timing = self.hedge.as_ref().map(|hedge| &hedge.timing);
        matches!(timing, Some(Timing::Within { .. }))
    }

    /// What each of its windows says: one that has no name, or one for each endpoint or locality.
    pub(crate) fn estimates(&self, now: Duration) -> Vec<Estimate> {
        let mut estimates = Vec::new();
        let Some(windows) = &self.windows else {
            return estimates;
        };
        windows.each(|name, window| {
            let hedge = self.hedge.as_deref();
            let estimator = &window.estimator;
            let at = |quantile| estimator.quantile(now, quantile);
            let latency = || Some([at(0.5)?, at(0.95)?, at(0.99)?]);
            let samples = estimator.samples(now);
            // Few methods have more places than windows.
            if samples == 0 && name.is_some_and(|name| **name == *windows::OTHER) {
                return;
            }
            estimates.push(Estimate {
                name: name.cloned(),
                threshold: hedge.and_then(|hedge| hedge.threshold(window.threshold(now))),
                samples,
                latency: latency(),
                plan: window.planner.as_ref().map(|planner| planner.reading(now)),
            });
        });
        estimates
    }

    /// Recent samples of attempts at `endpoint`; of all without one.
    pub(crate) fn samples(&self, now: Duration, endpoint: Option<&Endpoint>) -> u64 {
        let Some(windows) = &self.windows else {
            return 0;
        };
        match endpoint {
            Some(endpoint) => windows.at(now, endpoint, |window| window.estimator.samples(now)),
            None => windows.samples(now),
        }
    }

    /// What the next process can go on from, if there is anything.
    pub(crate) fn learned(&self, now: Duration) -> Option<MethodLearned> {
        let mut learned = MethodLearned::default();
        if let Some(windows) = &self.windows {
            windows.export(now, &mut learned);
        }
        let win_rate = self.win_rate.as_ref();
        // All of it is what a meter starts with.
        let allowance = win_rate.map(|meter| meter.allowance(now));
        learned.win_rate_allowance = allowance.filter(|it| *it < 1.0);
        let is_empty = learned.window.is_none()
            && learned.places.is_empty()
            && learned.win_rate_allowance.is_none();
        (!is_empty).then_some(learned)
    }

    /// Goes on from what an earlier process has learnt, as of `now`.
    pub(crate) fn resume(&self, now: Duration, learned: &MethodLearned) {
        if let Some(windows) = &self.windows {
            windows.import(now, learned);
        }
        if let (Some(meter), Some(allowance)) = (&self.win_rate, learned.win_rate_allowance) {
            meter.resume(now, allowance);
        }
    }

    /// Works up the samples that the estimator has put aside, and makes plans.
    pub(crate) fn fold(&self, now: Duration) {
        if let Some(windows) = &self.windows {
            windows.each(|_, window| window.fold(now));
        }
    }

    /// Records the latency of an original at `endpoint`.
    pub(crate) fn learn(&self, now: Duration, endpoint: &Endpoint, latency: Duration) {
        if let Some(windows) = &self.windows {
            windows.at(now, endpoint, |window| {
                window.estimator.record(now, latency)
            });
        }
    }

    /// Records that an original was cut off, and when.
    pub(crate) fn learn_cut(&self, now: Duration, endpoint: &Endpoint, ran: Duration) {
        if let Some(windows) = &self.windows {
            windows.at(now, endpoint, |window| {
                window.estimator.record_cut(now, ran)
            });
        }
    }
}

/// What one window says.
pub(crate) struct Estimate {
    /// The endpoint or locality; none where a method has one window.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) threshold: Option<Duration>,
    pub(crate) samples: u64,
    /// At p50, p95 and p99.
    pub(crate) latency: Option<[Duration; 3]>,
    pub(crate) plan: Option<PlanReading>,
}
