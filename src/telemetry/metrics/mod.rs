//! A channel's metrics, through OpenTelemetry's API: gRFC A66's and A96's for calls and attempts,
//! the RPC conventions' call duration, and ours for hedges.
//!
//! The instruments are made once for each meter provider and shared by all channels on it. Unlike a
//! tracer provider, the global meter provider can be told from another one, so a provider that
//! is installed later is found; it is looked for now and then, not at each call. Without one an
//! instrument is the API's no-op, and a call that ends well costs five of those.

mod gauges;

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use opentelemetry::{
    KeyValue, global,
    metrics::{Counter, Histogram, Meter, MeterProvider},
};
use parking_lot::Mutex;
use tonic::Code;
use tonic_hedge_engine::gate::Reason;

use self::gauges::{Channels, Named};
use super::{AttemptEnd, Further, LOOK_AGAIN, Measure, names};
use crate::{
    log::{AttemptKind, code_name},
    method::HedgeEnd,
    nanos::nanos,
};

type Provider = Arc<dyn MeterProvider + Send + Sync>;

/// Where the metrics of a channel go: by default to the global provider.
#[derive(Default)]
pub(crate) struct Metrics {
    given: Option<Provider>,
    instruments: ArcSwapOption<Instruments>,
    /// When the provider is looked for again, in nanoseconds on the channel's clock.
    look_at: AtomicU64,
    /// What the gauges show.
    channel: OnceLock<Named>,
}

/// Records on the instruments that were there when it was taken; none before the first look. A
/// provider that is installed meanwhile hears of the next call first.
#[derive(Clone)]
pub(crate) struct Recorder(Option<Arc<Instruments>>);

/// The attributes of one method, made once: what a call that ends well records is looked up, not
/// built.
#[derive(Debug)]
pub(crate) struct MethodAttributes {
    /// Method and target.
    method: [KeyValue; 2],
    grpc_ok: [KeyValue; 3],
    rpc_ok: [KeyValue; 3],
    original_won: [KeyValue; 4],
    /// The first reason that a hedge was kept back for: of a method that can never be hedged it is
    /// that of each call.
    suppressed: OnceLock<(Reason, [KeyValue; 4])>,
}

/// The instruments on one provider.
struct Instruments {
    attempt_started: Counter<u64>,
    attempt_duration: Histogram<f64>,
    grpc_call_duration: Histogram<f64>,
    rpc_call_duration: Histogram<f64>,
    retries: Histogram<u64>,
    transparent_retries: Histogram<u64>,
    hedges_of_a_call: Histogram<u64>,
    attempts: Counter<u64>,
    hedges: Counter<u64>,
    threshold: Histogram<f64>,
    channels: Arc<Channels>,
}

/// A provider's instruments.
type Known = (Weak<dyn MeterProvider + Send + Sync>, Arc<Instruments>);

/// Those of each provider that lives: the global one, and those that were given to a channel.
static ALL: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// gRFC A66's bounds of a latency, in seconds.
const LATENCIES: [f64; 41] = [
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005,
    0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16,
    0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// The RPC conventions' bounds of a duration, in seconds.
const DURATIONS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// gRFC A96's bounds of a number of retries or hedges.
const NUMBERS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];

/// And of transparent retries, of which there may be more.
const MORE_NUMBERS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

// === impl Metrics ===

impl Metrics {
    pub(crate) fn set_meter_provider(&mut self, provider: Provider) {
        self.given = Some(provider);
    }

    /// Says what the gauges of the channel `target` show: at once on a provider that was given,
    /// else from the first call on.
    pub(crate) fn watch(&self, target: Arc<str>, channel: Weak<dyn Measure>) {
        // A channel is made once.
        let _again = self.channel.set((target, channel));
        if self.given.is_some() {
            self.look_now(Duration::ZERO);
        }
    }

    /// Looks for the provider, if it is time. One load otherwise.
    pub(crate) fn look(&self, now: Duration) {
        // Relaxed: a stale time costs one look too many.
        if nanos(now) >= self.look_at.load(Ordering::Relaxed) {
            self.look_now(now);
        }
    }

    #[cold]
    fn look_now(&self, now: Duration) {
        let again = match self.given {
            // It stays what it is.
            Some(_) => u64::MAX,
            None => nanos(now.saturating_add(LOOK_AGAIN)),
        };
        self.look_at.store(again, Ordering::Relaxed);
        let found = Instruments::on(self.given.as_ref());
        let known = self.instruments.load();
        if known
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &found))
        {
            return;
        }
        // Two calls that look at once find the same, and add the channel once.
        if let Some(channel) = self.channel.get() {
            if let Some(known) = &*known {
                known.channels.remove(channel);
            }
            found.channels.add(channel);
        }
        self.instruments.store(Some(found));
    }

    /// The instruments as they are now: taken once for a call and what it tells of.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder(self.instruments.load_full())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("own_provider", &self.given.is_some())
            .finish_non_exhaustive()
    }
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn attempt_started(&self, method: &MethodAttributes) {
        if let Some(to) = &self.0 {
            to.attempt_started.add(1, &method.method);
        }
    }

    pub(crate) fn attempt_ended(
        &self,
        method: &MethodAttributes,
        kind: AttemptKind,
        end: AttemptEnd,
        took: Duration,
    ) {
        let Some(to) = &self.0 else { return };
        let took = took.as_secs_f64();
        if (kind, end) == (AttemptKind::Original, AttemptEnd::Won(Code::Ok)) {
            to.attempt_duration.record(took, &method.grpc_ok);
            to.attempts.add(1, &method.original_won);
            return;
        }
        let code = match end {
            AttemptEnd::Won(code) | AttemptEnd::Failed(code) => code,
            AttemptEnd::Lost | AttemptEnd::Discarded => Code::Cancelled,
            AttemptEnd::Expired => Code::DeadlineExceeded,
        };
        to.attempt_duration.record(took, &method.grpc(code));
        to.attempts.add(1, &method.attempt(kind, end));
    }

    pub(crate) fn hedge_started(&self, method: &MethodAttributes, threshold: Option<Duration>) {
        if let Some(to) = &self.0 {
            to.hedges.add(1, &method.hedge("started"));
            // While none wins, the share of those that do is 0, and not missing.
            to.hedges.add(0, &method.hedge("won"));
            if let Some(threshold) = threshold {
                to.threshold.record(threshold.as_secs_f64(), &method.method);
            }
        }
    }

    pub(crate) fn hedge_ended(&self, method: &MethodAttributes, end: HedgeEnd) {
        if let Some(to) = &self.0 {
            let outcome = match end {
                HedgeEnd::Won => "won",
                HedgeEnd::Lost | HedgeEnd::Abandoned => "discarded",
                HedgeEnd::Failed => "failed",
            };
            to.hedges.add(1, &method.hedge(outcome));
        }
    }

    pub(crate) fn hedge_suppressed(&self, method: &MethodAttributes, reason: Reason) {
        let Some(to) = &self.0 else { return };
        let (usual, suppressed) = method
            .suppressed
            .get_or_init(|| (reason, method.suppressed(reason)));
        if *usual == reason {
            to.hedges.add(1, suppressed);
        } else {
            to.hedges.add(1, &method.suppressed(reason));
        }
    }

    pub(crate) fn call_ended(
        &self,
        method: &MethodAttributes,
        code: Code,
        took: Duration,
        further: &Further,
    ) {
        let Some(to) = &self.0 else { return };
        let took = took.as_secs_f64();
        if code == Code::Ok {
            to.grpc_call_duration.record(took, &method.grpc_ok);
            to.rpc_call_duration.record(took, &method.rpc_ok);
        } else {
            to.grpc_call_duration.record(took, &method.grpc(code));
            to.rpc_call_duration.record(took, &method.rpc_error(code));
        }
        for (count, histogram) in [
            (further.hedges, &to.hedges_of_a_call),
            (further.retries, &to.retries),
            (further.replacements, &to.transparent_retries),
        ] {
            // A96: zero is not reported.
            if count > 0 {
                histogram.record(count.into(), &method.method);
            }
        }
    }
}

// === impl MethodAttributes ===

impl MethodAttributes {
    /// `name` is `package.Service/Method`, or `other`, which is `known` to no descriptor.
    pub(crate) fn new(name: &Arc<str>, known: bool, target: &Arc<str>) -> Self {
        let rpc_method = match known {
            true => KeyValue::new(names::RPC_METHOD, name.clone()),
            false => KeyValue::new(names::RPC_METHOD, names::RPC_OTHER),
        };
        let grpc_method = KeyValue::new(names::GRPC_METHOD, name.clone());
        let target = KeyValue::new(names::GRPC_TARGET, target.clone());
        let method = [grpc_method, target];
        Self {
            grpc_ok: with(
                &method,
                KeyValue::new(names::GRPC_STATUS, code_name(Code::Ok)),
            ),
            rpc_ok: [
                KeyValue::new(names::RPC_SYSTEM, names::RPC_SYSTEM_GRPC),
                rpc_method,
                KeyValue::new(names::RPC_STATUS_CODE, code_name(Code::Ok)),
            ],
            original_won: attempt(&method, AttemptKind::Original, AttemptEnd::Won(Code::Ok)),
            method,
            suppressed: OnceLock::new(),
        }
    }

    fn grpc(&self, code: Code) -> [KeyValue; 3] {
        with(
            &self.method,
            KeyValue::new(names::GRPC_STATUS, code_name(code)),
        )
    }

    fn rpc_error(&self, code: Code) -> [KeyValue; 4] {
        let [system, method, _] = &self.rpc_ok;
        [
            system.clone(),
            method.clone(),
            KeyValue::new(names::RPC_STATUS_CODE, code_name(code)),
            KeyValue::new(names::ERROR_TYPE, code_name(code)),
        ]
    }

    fn suppressed(&self, reason: Reason) -> [KeyValue; 4] {
        let [grpc_method, target, outcome] = self.hedge("suppressed");
        let gate = KeyValue::new(names::GATE_ATTRIBUTE, reason.name());
        [grpc_method, target, outcome, gate]
    }

    fn hedge(&self, outcome: &'static str) -> [KeyValue; 3] {
        with(&self.method, KeyValue::new(names::OUTCOME, outcome))
    }

    fn attempt(&self, kind: AttemptKind, end: AttemptEnd) -> [KeyValue; 4] {
        attempt(&self.method, kind, end)
    }
}

fn attempt(method: &[KeyValue; 2], kind: AttemptKind, end: AttemptEnd) -> [KeyValue; 4] {
    let [grpc_method, target] = method.clone();
    [
        grpc_method,
        target,
        KeyValue::new(names::KIND, kind.name()),
        KeyValue::new(names::OUTCOME, end.name()),
    ]
}

fn with(method: &[KeyValue; 2], third: KeyValue) -> [KeyValue; 3] {
    let [grpc_method, target] = method.clone();
    [grpc_method, target, third]
}

// === impl Instruments ===

impl Instruments {
    /// Those on this provider, or on the one that is the global one now.
    fn on(given: Option<&Provider>) -> Arc<Self> {
        let mut all = ALL.lock();
        // Asked for under the lock, so that nobody comes after with an older one.
        let provider = given.cloned().unwrap_or_else(global::meter_provider);
        all.retain(|(known, _)| known.strong_count() > 0);
        let weak = Arc::downgrade(&provider);
        if let Some((_, instruments)) = all.iter().find(|(known, _)| known.ptr_eq(&weak)) {
            return instruments.clone();
        }
        let instruments = Arc::new(Self::new(&provider));
        all.push((weak, instruments.clone()));
        instruments
    }

    fn new(provider: &Provider) -> Self {
        let meter = provider.meter_with_scope(names::scope());
        let channels = Arc::new(Channels::default());
        gauges::register(&meter, &channels);
        let seconds = |name, what, bounds: &[f64]| seconds(&meter, name, what, bounds);
        let number = |name, what, unit, bounds: &[f64]| number(&meter, name, what, unit, bounds);
        let counter = |name: &'static str, what: &'static str, unit: &'static str| {
            let counter = meter.u64_counter(name);
            counter.with_description(what).with_unit(unit).build()
        };
        Self {
            attempt_started: counter(
                names::GRPC_ATTEMPT_STARTED,
                "Attempts started, including those that have not ended",
                "{attempt}",
            ),
            attempt_duration: seconds(
                names::GRPC_ATTEMPT_DURATION,
                "From the start of an attempt to its end",
                &LATENCIES,
            ),
            grpc_call_duration: seconds(
                names::GRPC_CALL_DURATION,
                "From the start of a call to its end, as the application sees it",
                &LATENCIES,
            ),
            rpc_call_duration: seconds(
                names::RPC_CALL_DURATION,
                "From the start of a call to its end, as the application sees it",
                &DURATIONS,
            ),
            retries: number(
                names::GRPC_CALL_RETRIES,
                "Retries of a call, if any",
                "{retry}",
                &NUMBERS,
            ),
            transparent_retries: number(
                names::GRPC_CALL_TRANSPARENT_RETRIES,
                "Transparent retries of a call, if any",
                "{transparent_retry}",
                &MORE_NUMBERS,
            ),
            hedges_of_a_call: number(
                names::GRPC_CALL_HEDGES,
                "Hedges of a call, if any",
                "{hedge}",
                &NUMBERS,
            ),
            attempts: counter(names::ATTEMPTS, "Attempts that ended", "{attempt}"),
            hedges: counter(
                names::HEDGES,
                "Hedges started and what they ended in, and those that were kept back",
                "{hedge}",
            ),
            threshold: seconds(
                names::THRESHOLD_FIRED,
                "The threshold that a call had outrun when it was hedged",
                &LATENCIES,
            ),
            channels,
        }
    }
}

fn seconds(
    meter: &Meter,
    name: &'static str,
    what: &'static str,
    bounds: &[f64],
) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_description(what);
    let histogram = histogram.with_unit("s").with_boundaries(bounds.to_vec());
    histogram.build()
}

fn number(
    meter: &Meter,
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    bounds: &[f64],
) -> Histogram<u64> {
    let histogram = meter.u64_histogram(name).with_description(what);
    let histogram = histogram.with_unit(unit).with_boundaries(bounds.to_vec());
    histogram.build()
}
