//! The span of a call, through OpenTelemetry's API, and the start of its attempts' spans.
//!
//! The call's span is INTERNAL and its attempts' are CLIENT, since a server's span must hang under
//! the CLIENT span that sent it its context. The attempts of a call that is not recorded have no
//! spans either; its sampler has spoken for them.
//!
//! The API can't be asked whether a global provider is installed. A span that has no identity of
//! its own shows that none is; then, for a moment, no further call asks.

mod attempt;
mod values;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use opentelemetry::{
    Context, InstrumentationScope, KeyValue,
    global::{self, BoxedTracer},
    trace::{Span, SpanBuilder, SpanKind, TraceContextExt, Tracer, TracerProvider},
};
use tonic::Code;
use tonic_hedge_engine::gate::{Gate, Reason, Report};

use self::{
    attempt::inject,
    values::{attribute, millis, set_code, set_error},
};
use super::{AttemptInfo, LOOK_AGAIN, names};
use crate::{log::AttemptKind, nanos::nanos};

pub(crate) use attempt::AttemptSpan;

/// Where the spans of a channel go, and what they hang under.
///
/// By default to the global provider, asked at each call while there is one (a tracer taken before
/// the provider is installed would stay a no-op for ever), under the current context.
pub(crate) struct Spans {
    scope: InstrumentationScope,
    tracer: Option<Arc<BoxedTracer>>,
    parent: Option<Arc<dyn Fn() -> Context + Send + Sync>>,
    /// No global provider is installed; the next call that asks is the first after this time, in
    /// nanoseconds on the channel's clock.
    absent_until: AtomicU64,
}

/// The span of a call. Dropped before [`finish`](Self::finish), it says that the caller went away.
#[derive(Default)]
pub(crate) struct CallSpan {
    /// The call's span as a parent; where it is not recorded, what attempts hand on to servers.
    context: Context,
    /// Boxed: nearly all calls of most services are not recorded.
    recording: Option<Box<Recording>>,
}

/// What starting attempts needs.
struct Recording {
    tracer: CallTracer,
    method: Arc<str>,
}

/// The global provider makes a tracer for each call: not shared, it needs no further allocation.
enum CallTracer {
    Given(Arc<BoxedTracer>),
    Global(BoxedTracer),
}

// === impl Spans ===

impl Spans {
    /// Sends the spans to this provider instead of the global one.
    pub(crate) fn set_tracer_provider<P>(&mut self, provider: &P)
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        let tracer = provider.tracer_with_scope(self.scope.clone());
        self.tracer = Some(Arc::new(BoxedTracer::new(Box::new(tracer))));
    }

    /// Takes a call's parent from this function instead of [`Context::current`]: for an
    /// application whose `tracing-opentelemetry` layer does not activate its contexts.
    pub(crate) fn set_parent_context<F>(&mut self, parent: F)
    where
        F: Fn() -> Context + Send + Sync + 'static,
    {
        self.parent = Some(Arc::new(parent));
    }

    /// Starts the span of a call of `package.Service/Method`. To be called where the application
    /// calls, not where its future is polled: only there its own span is the current one for sure.
    /// `now` is the channel's clock.
    pub(crate) fn start_call(&self, method: &str, now: Duration) -> CallSpan {
        let parent = match &self.parent {
            Some(parent) => parent(),
            None => Context::current(),
        };
        // Relaxed, here and below: a stale time costs one call its span, or one look too many.
        if self.tracer.is_none() && nanos(now) < self.absent_until.load(Ordering::Relaxed) {
            return CallSpan::unrecorded(parent);
        }
        let tracer = match &self.tracer {
            Some(tracer) => CallTracer::Given(tracer.clone()),
            None => CallTracer::Global(global::tracer_with_scope(self.scope.clone())),
        };
        let mut span = SpanBuilder::from_name([names::CALL_SPAN, method].concat())
            .with_kind(SpanKind::Internal)
            .start_with_context(tracer.get(), &parent);

        if !span.is_recording() {
            // Without a provider the span repeats its parent's identity; a sampler's refusal has
            // an identity of its own, which must reach the server.
            let own = span.span_context();
            if own.is_valid() && own != parent.span().span_context() {
                return CallSpan::unrecorded(parent.with_span(span));
            }
            // A provider that is there may be told to keep silent within one context.
            if !parent.is_telemetry_suppressed() {
                let until = nanos(now.saturating_add(LOOK_AGAIN));
                self.absent_until.store(until, Ordering::Relaxed);
            }
            return CallSpan::unrecorded(parent);
        }

        let method = Arc::<str>::from(method);
        span.set_attribute(KeyValue::new(names::RPC_SYSTEM, names::RPC_SYSTEM_GRPC));
        span.set_attribute(KeyValue::new(names::RPC_METHOD, method.clone()));
        CallSpan {
            context: parent.with_span(span),
            recording: Some(Box::new(Recording { tracer, method })),
        }
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self {
            scope: names::scope(),
            tracer: None,
            parent: None,
            absent_until: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans")
            .field("own_provider", &self.tracer.is_some())
            .field("own_parent", &self.parent.is_some())
            .finish()
    }
}

// === impl CallSpan ===

impl CallSpan {
    /// All that it does is to hand `context` on to servers.
    fn unrecorded(context: Context) -> Self {
        Self {
            context,
            recording: None,
        }
    }

    /// Whether anything told to this span is kept.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Starts the span of an attempt, and puts its context into the attempt's own headers.
    pub(crate) fn start_attempt(
        &self,
        info: AttemptInfo<'_>,
        headers: &mut HeaderMap,
    ) -> AttemptSpan {
        let Some(Recording { tracer, method }) = self.recording.as_deref() else {
            inject(&self.context, headers);
            return AttemptSpan::new(None);
        };
        let transparent = info.kind == AttemptKind::Replacement;
        let mut attributes = vec![
            KeyValue::new(names::RPC_SYSTEM, names::RPC_SYSTEM_GRPC),
            KeyValue::new(names::RPC_METHOD, method.clone()),
            KeyValue::new(names::SERVER_ADDRESS, info.address.to_owned()),
            KeyValue::new(names::PREVIOUS_ATTEMPTS, i64::from(info.previous)),
            KeyValue::new(names::TRANSPARENT_RETRY, transparent),
            KeyValue::new(names::ATTEMPT_NUMBER, i64::from(info.number)),
            KeyValue::new(names::ATTEMPT_KIND, info.kind.name()),
            KeyValue::new(names::ATTEMPT_ENDPOINT, info.endpoint.to_owned()),
        ];
        if let Some(port) = info.port {
            attributes.push(KeyValue::new(names::SERVER_PORT, i64::from(port)));
        }
        let span = SpanBuilder::from_name([names::ATTEMPT_SPAN, method].concat())
            .with_kind(SpanKind::Client)
            .with_attributes(attributes)
            .start_with_context(tracer.get(), &self.context);
        let context = self.context.with_span(span);
        inject(&context, headers);
        AttemptSpan::new(Some(context))
    }

    /// What the gates and the holds said: one event each.
    pub(crate) fn gates(&self, report: &Report) {
        if !self.is_recording() {
            return;
        }
        let span = self.context.span();
        for (gate, reading) in Gate::ALL.into_iter().zip(&report.gates) {
            let attributes = vec![
                KeyValue::new(names::GATE_NUMBER, i64::from(gate.number())),
                KeyValue::new(names::GATE_NAME, gate.name()),
                KeyValue::new(names::GATE_HOLDS, reading.holds),
                KeyValue::new(names::GATE_OBSERVED, attribute(&reading.observed)),
                KeyValue::new(names::GATE_LIMIT, attribute(&reading.limit)),
            ];
            span.add_event(names::GATE, attributes);
        }
        for (hold, reading) in &report.holds {
            let attributes = vec![
                KeyValue::new(names::HOLD_NAME, hold.name()),
                KeyValue::new(names::HOLD_HOLDS, reading.holds),
                KeyValue::new(names::HOLD_OBSERVED, attribute(&reading.observed)),
                KeyValue::new(names::HOLD_LIMIT, attribute(&reading.limit)),
            ];
            span.add_event(names::HOLD, attributes);
        }
    }

    /// A hedge started.
    pub(crate) fn started(&self, threshold: Option<Duration>, attempt: u32) {
        self.hedge_event(names::STARTED, threshold, attempt);
    }

    /// A hedge's answer became the call's.
    pub(crate) fn won(&self, threshold: Option<Duration>, attempt: u32) {
        self.hedge_event(names::WON, threshold, attempt);
    }

    /// A hedge was discarded, since another attempt won or the call ended.
    pub(crate) fn discarded(&self, threshold: Option<Duration>, attempt: u32) {
        self.hedge_event(names::DISCARDED, threshold, attempt);
    }

    /// A hedge was kept back.
    pub(crate) fn suppressed(&self, reason: Reason, threshold: Option<Duration>) {
        self.event(names::SUPPRESSED, threshold, || {
            KeyValue::new(names::REASON, reason.name())
        });
    }

    /// Ends the span with the call's result. What is told later is lost.
    pub(crate) fn finish(&mut self, code: Code) {
        if self.recording.take().is_none() {
            return;
        }
        let span = self.context.span();
        let outcome = if code == Code::Ok { "ok" } else { "error" };
        span.set_attribute(KeyValue::new(names::CALL_OUTCOME, outcome));
        set_code(&span, code);
        set_error(&span, code);
        span.end();
    }

    fn hedge_event(&self, name: &'static str, threshold: Option<Duration>, attempt: u32) {
        self.event(name, threshold, || {
            KeyValue::new(names::ATTEMPT_NUMBER, i64::from(attempt))
        });
    }

    fn event(
        &self,
        name: &'static str,
        threshold: Option<Duration>,
        about: impl FnOnce() -> KeyValue,
    ) {
        if !self.is_recording() {
            return;
        }
        let mut attributes = Vec::with_capacity(2);
        attributes.push(about());
        if let Some(threshold) = threshold {
            attributes.push(KeyValue::new(names::THRESHOLD, millis(threshold)));
        }
        self.context.span().add_event(name, attributes);
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if self.is_recording() {
            let span = self.context.span();
            span.set_attribute(KeyValue::new(names::CALL_OUTCOME, "cancelled"));
            span.end();
        }
    }
}

// === impl CallTracer ===

impl CallTracer {
    fn get(&self) -> &BoxedTracer {
        match self {
            Self::Given(tracer) => tracer,
            Self::Global(tracer) => tracer,
        }
    }
}
