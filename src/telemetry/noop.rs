//! The types of `spans` without the feature `telemetry`: empty, and compiled away.

use std::time::Duration;

use http::HeaderMap;
use tonic::Code;
use tonic_hedge_engine::gate::{Reason, Report};

use super::{AttemptEnd, AttemptInfo};

/// No unit struct: its `default()` is called as the real one's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telemetry {}

#[derive(Debug)]
pub(crate) struct CallSpan;

#[derive(Debug)]
pub(crate) struct AttemptSpan;

impl Telemetry {
    pub(crate) fn start_call(&self, _method: &str) -> CallSpan {
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
