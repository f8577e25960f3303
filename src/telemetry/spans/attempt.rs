//! An attempt's span once it runs: the current one while the attempt is polled, its identity in the
//! attempt's headers, and its end.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{Context, KeyValue, global, propagation::Injector, trace::TraceContextExt};

use super::{
    names,
    values::{set_code, set_error},
};
use crate::telemetry::AttemptEnd;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The span of an attempt. Dropped before [`end`](Self::end), it says that it was discarded.
pub(crate) struct AttemptSpan {
    /// None once it has ended, or where the call is not recorded.
    context: Option<Context>,
}

/// Overwrites: a context that an interceptor put in is the same for every attempt.
struct HeaderInjector<'a>(&'a mut HeaderMap);

// === impl AttemptSpan ===

impl AttemptSpan {
    /// The span of this context; none where the call is not recorded.
    pub(super) fn new(context: Option<Context>) -> Self {
        Self { context }
    }

    /// Runs `poll` with this span as the current one, so that spans which start inside hang
    /// under it.
    #[inline]
    pub(crate) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
        match &self.context {
            None => poll(),
            Some(context) => {
                let _attached = context.clone().attach();
                poll()
            }
        }
    }

    /// Ends the span. Only the first end counts.
    pub(crate) fn end(&mut self, end: AttemptEnd) {
        let Some(context) = self.context.take() else {
            return;
        };
        let span = context.span();
        span.set_attribute(KeyValue::new(names::ATTEMPT_OUTCOME, end.name()));
        // Whatever a loser came to, nobody was hurt by it.
        if let AttemptEnd::Won(code) | AttemptEnd::Failed(code) = end {
            set_code(&span, code);
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

// === impl HeaderInjector ===

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        // What is no header can't be sent; a propagator's mistake is not worth a call.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// Puts a context into headers, in the form that the global propagator has; in W3C's where the
/// application has set none.
pub(super) fn inject(context: &Context, headers: &mut HeaderMap) {
    global::get_text_map_propagator(|propagator| {
        match propagator.fields().next() {
            Some(_) => propagator.inject_context(context, &mut HeaderInjector(headers)),
            // The API's own, which does nothing.
            None => inject_w3c(context, headers),
        }
    });
}

/// W3C Trace Context, level 1: the SDK has it as a propagator, and the API has none. It is written
/// for each attempt, so it is not left to `format!`, which takes ten times as long.
fn inject_w3c(context: &Context, headers: &mut HeaderMap) {
    let span = context.span();
    let span = span.span_context();
    if !span.is_valid() {
        return;
    }
    let sampled = span.trace_flags().is_sampled();
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    write_hex(&mut text[3..35], &span.trace_id().to_bytes());
    write_hex(&mut text[36..52], &span.span_id().to_bytes());
    text[54] += u8::from(sampled);
    if let Ok(value) = HeaderValue::from_bytes(&text) {
        headers.insert(TRACEPARENT, value);
    }
    let state = span.trace_state().header();
    if !state.is_empty() {
        HeaderInjector(headers).set("tracestate", state);
    }
}

fn write_hex(to: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in to.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}
