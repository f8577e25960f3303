//! The spans of a call and its attempts, through OpenTelemetry's API.
//!
//! The call's span is INTERNAL and its attempts' are CLIENT, since a server's span must hang under
//! the CLIENT span that sent it its context. The API can't be asked whether a provider is
//! installed; so without one a call costs the span's name and the API's own empty span, and
//! nothing more: all else is built only for a call whose span is recorded. The attempts of a call
//! that is not recorded have no spans either; its sampler has spoken for them.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context, InstrumentationScope, KeyValue, Value as Attribute,
    global::{self, BoxedTracer},
    propagation::Injector,
    trace::{
        Span, SpanBuilder, SpanKind, SpanRef, Status, TraceContextExt, Tracer, TracerProvider,
    },
};
use pin_project_lite::pin_project;
use tonic::Code;
use tonic_hedge_engine::gate::{Gate, Reading, Reason, Report, Value};

use super::{AttemptEnd, AttemptInfo, names};
use crate::log::{AttemptKind, code_name};

/// Where the spans of a channel go, and what they hang under.
///
/// By default to the global provider, asked at each call (a tracer taken before the provider is
/// installed would stay a no-op for ever), under the current context.
#[derive(Clone)]
pub(crate) struct Telemetry {
    scope: InstrumentationScope,
    tracer: Option<Arc<BoxedTracer>>,
    parent: Option<Arc<dyn Fn() -> Context + Send + Sync>>,
}

/// The span of a call. Dropped before [`finish`](Self::finish), it says that the caller went away.
pub(crate) struct CallSpan {
    /// The call's span as a parent; where it is not recorded, what attempts hand on to servers.
    context: Context,
    recording: Option<Recording>,
}

/// The span of an attempt. Dropped before [`end`](Self::end), it says that it was discarded.
pub(crate) struct AttemptSpan {
    /// None once it has ended, or where the call is not recorded.
    context: Option<Context>,
}

pin_project! {
    /// A future that is polled with an attempt's span as the current one, so that spans which
    /// start inside hang under it.
    pub(crate) struct Scoped<F> {
        #[pin]
        future: F,
        context: Option<Context>,
    }
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

/// Overwrites: a context that an interceptor put in is the same for every attempt.
struct HeaderInjector<'a>(&'a mut HeaderMap);

// === impl Telemetry ===

impl Telemetry {
    /// Sends the spans to this provider instead of the global one.
    pub(crate) fn with_tracer_provider<P>(mut self, provider: &P) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        let tracer = provider.tracer_with_scope(self.scope.clone());
        self.tracer = Some(Arc::new(BoxedTracer::new(Box::new(tracer))));
        self
    }

    /// Takes a call's parent from this function instead of [`Context::current`]: for an
    /// application whose `tracing-opentelemetry` layer does not activate its contexts.
    pub(crate) fn with_parent_context<F>(mut self, parent: F) -> Self
    where
        F: Fn() -> Context + Send + Sync + 'static,
    {
        self.parent = Some(Arc::new(parent));
        self
    }

    /// Starts the span of a call of `package.Service/Method`. To be called where the application
    /// calls, not where its future is polled: only there its own span is the current one for sure.
    pub(crate) fn start_call(&self, method: &str) -> CallSpan {
        let parent = match &self.parent {
            Some(parent) => parent(),
            None => Context::current(),
        };
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
            let repeats = !own.is_valid() || own == parent.span().span_context();
            let context = if repeats {
                parent
            } else {
                parent.with_span(span)
            };
            return CallSpan {
                context,
                recording: None,
            };
        }

        let method = Arc::<str>::from(method);
        span.set_attribute(KeyValue::new(names::RPC_SYSTEM, names::RPC_SYSTEM_GRPC));
        span.set_attribute(KeyValue::new(names::RPC_METHOD, method.clone()));
        CallSpan {
            context: parent.with_span(span),
            recording: Some(Recording { tracer, method }),
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            scope: InstrumentationScope::builder(names::SCOPE)
                .with_version(env!("CARGO_PKG_VERSION"))
                .with_schema_url(names::SCHEMA_URL)
                .build(),
            tracer: None,
            parent: None,
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("own_provider", &self.tracer.is_some())
            .field("own_parent", &self.parent.is_some())
            .finish()
    }
}

// === impl CallSpan ===

impl CallSpan {
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
        let Some(Recording { tracer, method }) = &self.recording else {
            inject(&self.context, headers);
            return AttemptSpan { context: None };
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
        AttemptSpan {
            context: Some(context),
        }
    }

    /// What the gates and the holds said: one event each.
    pub(crate) fn gates(&self, report: &Report) {
        if !self.is_recording() {
            return;
        }
        let span = self.context.span();
        for (gate, reading) in Gate::ALL.into_iter().zip(&report.gates) {
            let mut attributes = Vec::with_capacity(5);
            attributes.push(KeyValue::new(names::GATE_NUMBER, i64::from(gate.number())));
            attributes.push(KeyValue::new(names::GATE_NAME, gate.name()));
            attributes.push(KeyValue::new(names::GATE_HOLDS, reading.holds));
            attributes.push(KeyValue::new(
                names::GATE_OBSERVED,
                attribute(&reading.observed),
            ));
            attributes.push(KeyValue::new(names::GATE_LIMIT, attribute(&reading.limit)));
            span.add_event(names::GATE, attributes);
        }
        for (hold, reading) in &report.holds {
            let Reading {
                holds,
                observed,
                limit,
            } = reading;
            let attributes = vec![
                KeyValue::new(names::HOLD_NAME, hold.name()),
                KeyValue::new(names::HOLD_HOLDS, *holds),
                KeyValue::new(names::HOLD_OBSERVED, attribute(observed)),
                KeyValue::new(names::HOLD_LIMIT, attribute(limit)),
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

// === impl AttemptSpan ===

impl AttemptSpan {
    /// Polls the attempt's future under its span.
    pub(crate) fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scoped {
            future,
            context: self.context.clone(),
        }
    }

    /// Ends the span. Only the first end counts.
    pub(crate) fn end(&mut self, end: AttemptEnd) {
        let Some(context) = self.context.take() else {
            return;
        };
        let span = context.span();
        let (outcome, code) = match end {
            AttemptEnd::Won(code) => ("won", Some(code)),
            AttemptEnd::Lost(code) => ("lost", code),
            AttemptEnd::Failed(code) => ("failed", Some(code)),
            AttemptEnd::Discarded => ("discarded", None),
        };
        span.set_attribute(KeyValue::new(names::ATTEMPT_OUTCOME, outcome));
        if let Some(code) = code {
            set_code(&span, code);
        }
        // Whatever a loser came to, nobody was hurt by it.
        if let AttemptEnd::Won(code) | AttemptEnd::Failed(code) = end {
            set_error(&span, code);
        }
        span.end();
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        self.end(AttemptEnd::Discarded);
    }
}

// === impl Scoped ===

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _attached = this.context.clone().map(Context::attach);
        this.future.poll(cx)
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

// === impl HeaderInjector ===

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        // What is no header can't be sent; a propagator's mistake is not worth a call.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

fn inject(context: &Context, headers: &mut HeaderMap) {
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(context, &mut HeaderInjector(headers));
    });
}

fn set_code(span: &SpanRef<'_>, code: Code) {
    span.set_attribute(KeyValue::new(names::RPC_STATUS_CODE, code_name(code)));
}

/// By the conventions every code but OK is an error to a client. The description is the code's
/// name: a status's message may hold anything.
fn set_error(span: &SpanRef<'_>, code: Code) {
    if code != Code::Ok {
        span.set_attribute(KeyValue::new(names::ERROR_TYPE, code_name(code)));
        span.set_status(Status::error(code_name(code)));
    }
}

fn attribute(value: &Value) -> Attribute {
    match value {
        Value::None => "none".into(),
        Value::Bool(value) => (*value).into(),
        Value::Count(value) => i64::try_from(*value).unwrap_or(i64::MAX).into(),
        Value::Number(value) => (*value).into(),
        Value::Time(value) => millis(*value).into(),
        Value::Text(value) => value.clone().into(),
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
