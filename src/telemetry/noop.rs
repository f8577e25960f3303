//! The types of `spans` and `metrics` without the feature `telemetry`: empty, and compiled away.

pub(super) mod spans {
    use std::time::Duration;

    use http::HeaderMap;
    use tonic::Code;
    use tonic_hedge_engine::gate::{Reason, Report};

    use crate::telemetry::{AttemptEnd, AttemptInfo};

    /// No unit struct: its `default()` is called as the real one's.
    #[derive(Debug, Default)]
    pub(crate) struct Spans {}

    #[derive(Debug, Default)]
    pub(crate) struct CallSpan;

    #[derive(Debug)]
    pub(crate) struct AttemptSpan;

    impl Spans {
        pub(crate) fn start_call(&self, _method: &str, _now: Duration) -> CallSpan {
            CallSpan
        }
    }

    impl CallSpan {
        pub(crate) fn is_recording(&self) -> bool {
            false
        }

        pub(crate) fn start_attempt(
            &self,
            _info: AttemptInfo<'_>,
            _headers: &mut HeaderMap,
        ) -> AttemptSpan {
            AttemptSpan
        }

        pub(crate) fn gates(&self, _report: &Report) {}
        pub(crate) fn started(&self, _threshold: Option<Duration>, _attempt: u32) {}
        pub(crate) fn won(&self, _threshold: Option<Duration>, _attempt: u32) {}
        pub(crate) fn discarded(&self, _threshold: Option<Duration>, _attempt: u32) {}
        pub(crate) fn suppressed(&self, _reason: Reason, _threshold: Option<Duration>) {}
        pub(crate) fn finish(&mut self, _code: Code) {}
    }

    impl AttemptSpan {
        pub(crate) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
            poll()
        }

        pub(crate) fn end(&mut self, _end: AttemptEnd) {}
    }
}

pub(super) mod metrics {
    use std::{
        sync::{Arc, Weak},
        time::Duration,
    };

    use tonic::Code;
    use tonic_hedge_engine::gate::Reason;

    use crate::{
        log::AttemptKind,
        method::HedgeEnd,
        telemetry::{AttemptEnd, Further, Measure},
    };

    /// No unit struct: its `default()` is called as the real one's.
    #[derive(Debug, Default)]
    pub(crate) struct Metrics {}

    #[derive(Debug)]
    pub(crate) struct MethodAttributes;

    impl MethodAttributes {
        pub(crate) fn new(_name: &Arc<str>, _known: bool, _target: &Arc<str>) -> Self {
            Self
        }
    }

    type Of<'a> = &'a MethodAttributes;

    impl Metrics {
        pub(crate) fn watch(&self, _target: Arc<str>, _channel: Weak<dyn Measure>) {}
        pub(crate) fn look(&self, _now: Duration) {}

        pub(crate) fn recorder(&self) -> Recorder {
            Recorder
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Recorder;

    impl Recorder {
        pub(crate) fn attempt_started(&self, _of: Of<'_>) {}
        pub(crate) fn attempt_ended(
            &self,
            _of: Of<'_>,
            _kind: AttemptKind,
            _end: AttemptEnd,
            _took: Duration,
        ) {
        }
        pub(crate) fn hedge_started(&self, _of: Of<'_>, _threshold: Option<Duration>) {}
        pub(crate) fn hedge_ended(&self, _of: Of<'_>, _end: HedgeEnd) {}
        pub(crate) fn hedge_suppressed(&self, _of: Of<'_>, _reason: Reason) {}
        pub(crate) fn call_ended(
            &self,
            _of: Of<'_>,
            _code: Code,
            _took: Duration,
            _further: &Further,
        ) {
        }
    }
}
