//! What is told of a call: to a tracing backend, to a metrics reader, and to the user's observers.
//!
//! - `channel`, `call`: what the call path speaks to; each thing is told once, and goes on to all
//!   who want it.
//! - `spans`, `metrics`: through OpenTelemetry's API, with the feature `telemetry`.
//! - `noop`: the same types without the feature, so that nobody else knows of it.
//! - `observers`: the user's own functions.
//! - `names`: every name in one place.
//!
//! Nothing but names, addresses, numbers and codes is told: no header, no message, neither a
//! request's nor a status's.

mod call;
mod channel;
#[cfg(feature = "telemetry")]
mod metrics;
#[cfg(feature = "telemetry")]
mod names;
#[cfg(not(feature = "telemetry"))]
mod noop;
mod observers;
#[cfg(feature = "telemetry")]
mod spans;
#[cfg(feature = "telemetry")]
#[cfg(test)]
mod tests;

#[cfg(not(feature = "telemetry"))]
use noop::{metrics, spans};
#[cfg(feature = "telemetry")]
use std::time::Duration;

use tonic::Code;

use crate::{
    lane::LaneMeasured,
    log::AttemptKind,
    measured::{BreakerMeasured, EndpointMeasured, MethodMeasured},
};

pub(crate) use call::{AttemptTelemetry, CallTelemetry};
pub(crate) use channel::{MethodTelemetry, Telemetry};
pub(crate) use metrics::Metrics;
pub use observers::{HedgeEvent, HedgeEventKind, HedgeStart};

/// How long a provider that was not there is not looked for again: a call in a tenth of a second
/// has the cost of looking, and one that is installed late misses no more than that.
#[cfg(feature = "telemetry")]
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the gauges read of a channel, or of lanes, each no more than it shows.
#[cfg_attr(not(feature = "telemetry"), expect(dead_code, reason = "no gauges"))]
pub(crate) trait Measure: Send + Sync {
    fn what(&self) -> Measures {
        Measures::Channel
    }
    fn methods(&self) -> Vec<MethodMeasured> {
        Vec::new()
    }
    fn budget(&self) -> Option<f64> {
        None
    }
    fn breakers(&self) -> Vec<BreakerMeasured> {
        Vec::new()
    }
    fn endpoints(&self) -> Vec<EndpointMeasured> {
        Vec::new()
    }
    fn lanes(&self) -> Vec<LaneMeasured> {
        Vec::new()
    }
}

/// Whose name its series have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measures {
    Channel,
    Lanes,
}

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
    /// The host or address of the endpoint, or its name where it has neither.
    pub(crate) address: &'a str,
    /// Its port, if it has one.
    pub(crate) port: Option<u16>,
    /// The endpoint's name in the channel.
    pub(crate) endpoint: &'a str,
}

/// How an attempt ends.
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
    /// As discarded, at its call's deadline: the error is the call's.
    Expired,
}

#[cfg(feature = "telemetry")]
impl AttemptEnd {
    /// The name that telemetry uses.
    fn name(self) -> &'static str {
        match self {
            Self::Won(_) => "won",
            Self::Lost => "lost",
            Self::Failed(_) => "failed",
            Self::Discarded | Self::Expired => "discarded",
        }
    }
}

/// The further attempts of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Further {
    hedges: u32,
    retries: u32,
    replacements: u32,
}
