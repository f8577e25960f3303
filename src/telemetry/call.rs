//! What is told of one call and of its attempts, each thing once, from its start to its end.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use http::HeaderMap;
use tonic::Code;
use tonic_hedge_engine::gate::{Reason, Report};

use super::{
    AttemptEnd, AttemptInfo, Further, HedgeEvent, HedgeEventKind, HedgeStart, MethodTelemetry,
    metrics::Recorder,
    spans::{AttemptSpan, CallSpan},
};
use crate::{log::AttemptKind, nanos::Nanos};

/// One call. Dropped before [`finish`](Self::finish), it says that the caller went away.
pub(crate) struct CallTelemetry {
    method: Arc<MethodTelemetry>,
    recorder: Recorder,
    span: CallSpan,
    /// On the channel's clock.
    started: Duration,
    further: Further,
    open: bool,
}

/// One attempt. Dropped before [`end`](Self::end), it says that it was discarded.
pub(crate) struct AttemptTelemetry {
    method: Arc<MethodTelemetry>,
    recorder: Recorder,
    span: AttemptSpan,
    /// On the channel's clock.
    started: Nanos,
    kind: AttemptKind,
    open: bool,
}

impl CallTelemetry {
    pub(super) fn new(method: Arc<MethodTelemetry>, span: CallSpan, started: Duration) -> Self {
        Self {
            recorder: method.channel.metrics.recorder(),
            method,
            span,
            started,
            further: Further::default(),
            open: true,
        }
    }

    /// Whether what the gates say is kept.
    pub(crate) fn wants_gates(&self) -> bool {
        self.span.is_recording()
    }

    /// An attempt starts at `now` on the channel's clock; its context goes into its own headers.
    pub(crate) fn start_attempt(
        &mut self,
        info: AttemptInfo<'_>,
        headers: &mut HeaderMap,
        now: Duration,
    ) -> AttemptTelemetry {
        self.recorder.attempt_started(&self.method.attributes);
        match info.kind {
            AttemptKind::Original => {}
            AttemptKind::Hedge => self.further.hedges += 1,
            AttemptKind::Retry => self.further.retries += 1,
            AttemptKind::Replacement => self.further.replacements += 1,
        }
        AttemptTelemetry {
            span: self.span.start_attempt(info, headers),
            method: Arc::clone(&self.method),
            recorder: self.recorder.clone(),
            started: Nanos::of(now),
            kind: info.kind,
            open: true,
        }
    }

    /// What the gates and the holds said.
    pub(crate) fn gates(&self, report: &Report) {
        self.span.gates(report);
    }

    /// A hedge is about to start, `now` since the start of the call: what it has to wait for.
    pub(crate) fn before_hedge(
        &self,
        attempts: u32,
        threshold: Option<Duration>,
        now: Duration,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let observers = &self.method.channel.observers;
        observers.before_hedge(|| HedgeStart {
            method: Arc::clone(&self.method.name),
            attempts,
            threshold,
            elapsed: now,
        })
    }

    /// A hedge started.
    pub(crate) fn started(&self, threshold: Option<Duration>, attempt: u32) {
        let attributes = &self.method.attributes;
        self.recorder.hedge_started(attributes, threshold);
        self.span.started(threshold, attempt);
        self.event(HedgeEventKind::Started { attempt }, threshold);
    }

    /// A hedge's answer became the call's.
    pub(crate) fn won(&self, threshold: Option<Duration>, attempt: u32) {
        self.span.won(threshold, attempt);
        self.event(HedgeEventKind::Won { attempt }, threshold);
    }

    /// An attempt of a hedged call was discarded, since another one won or the call ended.
    pub(crate) fn discarded(&self, threshold: Option<Duration>, attempt: u32) {
        self.span.discarded(threshold, attempt);
        self.event(HedgeEventKind::Discarded { attempt }, threshold);
    }

    /// A hedge was kept back.
    pub(crate) fn suppressed(&self, reason: Reason, threshold: Option<Duration>) {
        self.recorder
            .hedge_suppressed(&self.method.attributes, reason);
        self.span.suppressed(reason, threshold);
        let reason = reason.name();
        self.event(HedgeEventKind::Suppressed { reason }, threshold);
    }

    /// What is left to tell, for whoever ends the call from here on.
    pub(crate) fn hand_on(&mut self) -> Self {
        Self {
            method: Arc::clone(&self.method),
            recorder: self.recorder.clone(),
            span: std::mem::take(&mut self.span),
            started: self.started,
            further: self.further,
            open: std::mem::take(&mut self.open),
        }
    }

    /// The call has ended at `now` on the channel's clock. What is told later is lost.
    pub(crate) fn finish(&mut self, code: Code, now: Duration) {
        if std::mem::take(&mut self.open) {
            self.ended(code, now);
            self.span.finish(code);
        }
    }

    fn ended(&self, code: Code, now: Duration) {
        let took = now.saturating_sub(self.started);
        self.recorder
            .call_ended(&self.method.attributes, code, took, &self.further);
    }

    fn event(&self, kind: HedgeEventKind, threshold: Option<Duration>) {
        self.method.channel.observers.event(|| HedgeEvent {
            kind,
            method: Arc::clone(&self.method.name),
            threshold,
            elapsed: self.method.channel.now().saturating_sub(self.started),
        });
    }
}

impl Drop for CallTelemetry {
    fn drop(&mut self) {
        // Its span says the same by itself.
        if self.open {
            self.ended(Code::Cancelled, self.method.channel.now());
        }
    }
}

impl AttemptTelemetry {
    /// Runs `poll` with the attempt's span as the current one, so that spans which start inside
    /// hang under it.
    #[inline]
    pub(crate) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.span.within(poll)
    }

    /// It has ended at `now` on the channel's clock. Only the first end counts.
    pub(crate) fn end(&mut self, end: AttemptEnd, now: Duration) {
        if std::mem::take(&mut self.open) {
            let took = now.saturating_sub(self.started.get());
            self.recorder
                .attempt_ended(&self.method.attributes, self.kind, end, took);
            self.span.end(end);
        }
    }
}

impl Drop for AttemptTelemetry {
    fn drop(&mut self) {
        if self.open {
            self.end(AttemptEnd::Discarded, self.method.channel.now());
        }
    }
}
