//! An instrumented server: a span for each attempt that reaches it, under the attempt's own.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{
    Code,
    codegen::{
        Service,
        http::{HeaderMap, Request, Response},
    },
    server::NamedService,
};

/// A service of unary methods whose calls are recorded by a tracer.
#[derive(Clone)]
pub(crate) struct Traced<S> {
    inner: S,
    tracer: SdkTracer,
    busy: Busy,
}

/// Calls at work, of one service or of several: a span is exported when its call has ended, and a
/// loser ends a little after the call that it was part of.
#[derive(Clone)]
pub(crate) struct Busy(Arc<Semaphore>);

impl<S> Traced<S> {
    pub(crate) fn new(inner: S, tracer: SdkTracer, busy: Busy) -> Self {
        Self {
            inner,
            tracer,
            busy,
        }
    }
}

impl Busy {
    /// More than are ever at work at once.
    const CALLS: u32 = 10_000;

    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(Self::CALLS as usize)))
    }

    /// Waits until nothing is at work: every span has ended.
    pub(crate) async fn idle(&self) {
        // Closed by nobody.
        let _ = self.0.acquire_many(Self::CALLS).await;
    }
}

impl<S: NamedService> NamedService for Traced<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let span = self
            .tracer
            .span_builder(method.clone())
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("rpc.system.name", "grpc"),
                KeyValue::new("rpc.method", method),
            ])
            .start_with_context(&self.tracer, &parent);
        let context = parent.with_span(span);
        let serving = Serving {
            context: context.clone(),
            code: Code::Cancelled,
            _busy: self.busy.0.clone().try_acquire_owned().ok(),
        };
        let answer = self.inner.call(request);
        let answer = async move {
            // Whole: of its fields alone a copy would be taken.
            let mut serving = serving;
            let answer = answer.await?;
            // A unary failure has its status in the headers; an OK comes after the message.
            let status = tonic::Status::from_header_map(answer.headers());
            serving.code = status.map_or(Code::Ok, |status| status.code());
            Ok(answer)
        };
        Box::pin(answer.with_context(context))
    }
}

/// A call at work. Dropped before its answer, it was cancelled.
struct Serving {
    context: Context,
    code: Code,
    /// Given back when the span has ended.
    _busy: Option<OwnedSemaphorePermit>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let span = self.context.span();
        span.set_attribute(KeyValue::new("rpc.response.status_code", name(self.code)));
        // To a server only its own faults are errors.
        if matches!(
            self.code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            span.set_attribute(KeyValue::new("error.type", name(self.code)));
            span.set_status(Status::error(name(self.code)));
        }
        span.end();
    }
}

/// As gRPC spells it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unavailable => "UNAVAILABLE",
        Code::NotFound => "NOT_FOUND",
        // No script here answers with another.
        _ => "UNKNOWN",
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
