//! What a tracing backend sees of a call: one span for the call, one for each attempt under it.
//!
//! - `names`: every name in one place.
//! - `spans`, `attempt`, `values`: through OpenTelemetry's API, with the feature `telemetry`.
//! - `noop`: the same types without the feature, so that the call path knows of no feature.
//!
//! Nothing but names, addresses, numbers and codes is recorded: no header, no message, neither a
//! request's nor a status's.

#[cfg(feature = "telemetry")]
mod attempt;
#[cfg(feature = "telemetry")]
mod names;
#[cfg(not(feature = "telemetry"))]
mod noop;
#[cfg(feature = "telemetry")]
mod spans;
#[cfg(feature = "telemetry")]
#[cfg(test)]
mod tests;
#[cfg(feature = "telemetry")]
mod values;

use tonic::Code;

use crate::log::AttemptKind;

#[cfg(feature = "telemetry")]
pub(crate) use attempt::AttemptSpan;
#[cfg(not(feature = "telemetry"))]
pub(crate) use noop::{AttemptSpan, CallSpan, Telemetry};
#[cfg(feature = "telemetry")]
pub(crate) use spans::{CallSpan, Telemetry};

/// What is known of an attempt when it starts.
#[cfg_attr(
    not(feature = "telemetry"),
    expect(dead_code, reason = "told by the call path, which knows of no feature")
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptInfo<'a> {
    /// 0 is the original.
    pub(crate) number: u32,
    /// Attempts before it that count, as in `grpc-previous-rpc-attempts`.
    pub(crate) previous: u32,
    /// Why it starts.
    pub(crate) kind: AttemptKind,
    /// The host or address of the endpoint, or the path of its socket.
    pub(crate) address: &'a str,
    /// Its port, if it has one.
    pub(crate) port: Option<u16>,
    /// The endpoint's name in the channel.
    pub(crate) endpoint: &'a str,
}

/// How an attempt's span ends.
#[cfg_attr(
    not(feature = "telemetry"),
    expect(dead_code, reason = "told by the call path, which knows of no feature")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// Its answer became the call's.
    Won(Code),
    /// It was detached when another won: it runs on, and its answer is thrown away.
    Lost,
    /// It failed in a way that another attempt could better.
    Failed(Code),
    /// It was cancelled: no error.
    Discarded,
}
