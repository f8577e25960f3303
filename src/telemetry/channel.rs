//! What the calls of a channel are told to, and what is prepared for each of its methods.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    CallTelemetry, Measure,
    metrics::{MethodAttributes, Metrics},
    observers::Observers,
    spans::Spans,
};
use crate::method::HedgeEnd;

/// Who is told of a channel's calls.
pub(crate) struct Telemetry {
    /// The channel's clock starts here.
    epoch: Instant,
    /// What metrics call the channel.
    target: Arc<str>,
    pub(super) spans: Spans,
    pub(super) metrics: Metrics,
    pub(super) observers: Observers,
}

/// The part of one method.
#[derive(Debug)]
pub(crate) struct MethodTelemetry {
    pub(super) channel: Arc<Telemetry>,
    /// `package.Service/Method`, or `other`.
    pub(super) name: Arc<str>,
    pub(super) attributes: MethodAttributes,
}

impl Telemetry {
    /// The channel of this name is built now.
    pub(crate) fn start(&mut self, target: &str) {
        self.target = target.into();
        self.epoch = Instant::now();
    }

    pub(crate) fn observers(&mut self) -> &mut Observers {
        &mut self.observers
    }

    /// Sends the spans to this provider instead of the global one.
    #[cfg(feature = "telemetry")]
    pub(crate) fn set_tracer_provider<P>(&mut self, provider: &P)
    where
        P: opentelemetry::trace::TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as opentelemetry::trace::Tracer>::Span: Send + Sync + 'static,
    {
        self.spans.set_tracer_provider(provider);
    }

    /// Takes a call's parent from this function instead of the current context: for an
    /// application whose `tracing-opentelemetry` layer does not activate its contexts.
    #[cfg(feature = "telemetry")]
    pub(crate) fn set_parent_context<F>(&mut self, parent: F)
    where
        F: Fn() -> opentelemetry::Context + Send + Sync + 'static,
    {
        self.spans.set_parent_context(parent);
    }

    /// Sends the metrics to this provider instead of the global one.
    #[cfg(feature = "telemetry")]
    pub(crate) fn set_meter_provider(
        &mut self,
        provider: Arc<dyn opentelemetry::metrics::MeterProvider + Send + Sync>,
    ) {
        self.metrics.set_meter_provider(provider);
    }

    /// Says what the gauges show.
    pub(crate) fn watch(&self, channel: Weak<dyn Measure>) {
        self.metrics.watch(Arc::clone(&self.target), channel);
    }

    /// Events that the user's observer was not told of.
    pub(crate) fn events_lost(&self) -> u64 {
        self.observers.lost()
    }

    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Now, on the channel's clock.
    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            target: "".into(),
            spans: Spans::default(),
            metrics: Metrics::default(),
            observers: Observers::default(),
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("target", &self.target)
            .field("spans", &self.spans)
            .field("metrics", &self.metrics)
            .field("observers", &self.observers)
            .finish_non_exhaustive()
    }
}

impl MethodTelemetry {
    /// `name` is `package.Service/Method`, or `other`, which is `known` to no descriptor.
    pub(crate) fn new(channel: &Arc<Telemetry>, name: &str, known: bool) -> Self {
        let name = name.into();
        Self {
            channel: Arc::clone(channel),
            attributes: MethodAttributes::new(&name, known, &channel.target),
            name,
        }
    }

    /// A hedge that was started has ended.
    pub(crate) fn hedge_ended(&self, end: HedgeEnd) {
        let recorder = self.channel.metrics.recorder();
        recorder.hedge_ended(&self.attributes, end);
    }

    /// A call of this method starts, at `started` on the channel's clock. `name` is its own, also
    /// where the method is `other`. To be called where the application calls, not where its future
    /// is polled: only there its own span is the current one for sure.
    pub(crate) fn start_call(self: &Arc<Self>, name: &str, started: Duration) -> CallTelemetry {
        self.channel.metrics.look(started);
        let span = self.channel.spans.start_call(name, started);
        CallTelemetry::new(Arc::clone(self), span, started)
    }
}
