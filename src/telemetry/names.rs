//! Every name that telemetry uses: spans, events, metrics, attributes.
//!
//! `rpc.*`, `server.*` and `error.type` are OpenTelemetry's RPC conventions, schema 1.42.0, copied
//! since the crate that has them calls them experimental. They were renamed twice and are about to
//! be once more: the conventions' main branch has `rpc.status_code` for
//! `rpc.response.status_code`. This file is the place to follow.
//! `previous-rpc-attempts`, `transparent-retry` and the spans' prefixes are gRFC A72's.
//! `grpc.*` metrics are gRFC A66's and A96's. `hedge.*` is ours. Times are `f64`: milliseconds on
//! spans, for people to read, and seconds in metrics, as both sets of conventions have them.

use opentelemetry::InstrumentationScope;

/// The instrumentation scope, for spans and metrics alike.
const SCOPE: &str = "tonic-hedge";
/// The version of the conventions above, so that a collector can translate their names.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

// Spans: a prefix, then `package.Service/Method`.
pub(super) const CALL_SPAN: &str = "Sent.";
pub(super) const ATTEMPT_SPAN: &str = "Attempt.";

// Attributes of both spans.
pub(super) const RPC_SYSTEM: &str = "rpc.system.name";
pub(super) const RPC_SYSTEM_GRPC: &str = "grpc";
/// `package.Service/Method`.
pub(super) const RPC_METHOD: &str = "rpc.method";
/// The code's name as gRPC spells it; absent where nothing answered.
pub(super) const RPC_STATUS_CODE: &str = "rpc.response.status_code";
/// The same, only on an error.
pub(super) const ERROR_TYPE: &str = "error.type";

// Attributes of the call span.
/// `ok`, `error`, or `cancelled` when the caller went away.
pub(super) const CALL_OUTCOME: &str = "hedge.call.outcome";

// Attributes of an attempt's span.
pub(super) const SERVER_ADDRESS: &str = "server.address";
pub(super) const SERVER_PORT: &str = "server.port";
/// Attempts before this one, as in the header `grpc-previous-rpc-attempts`.
pub(super) const PREVIOUS_ATTEMPTS: &str = "previous-rpc-attempts";
pub(super) const TRANSPARENT_RETRY: &str = "transparent-retry";
/// 0 is the original. Also on the four hedge events that concern an attempt.
pub(super) const ATTEMPT_NUMBER: &str = "hedge.attempt.number";
/// `original`, `hedge`, `retry`, `replacement`.
pub(super) const ATTEMPT_KIND: &str = "hedge.attempt.kind";
/// `won`, `lost`, `discarded`, `failed`.
pub(super) const ATTEMPT_OUTCOME: &str = "hedge.attempt.outcome";
/// The endpoint's name in the channel.
pub(super) const ATTEMPT_ENDPOINT: &str = "hedge.attempt.endpoint";

// Events of the call span. A span of the SDK keeps 128: at 7 gates and at most 6 holds each time
// that the gates are asked, room for eight times.
/// One per gate.
pub(super) const GATE: &str = "hedge.gate";
/// 1 to 7.
pub(super) const GATE_NUMBER: &str = "hedge.gate.number";
pub(super) const GATE_NAME: &str = "hedge.gate.name";
/// Whether the gate lets a hedge start.
pub(super) const GATE_HOLDS: &str = "hedge.gate.holds";
/// A boolean, a number, or a text, as the gate has it; `none` where nothing was measured.
pub(super) const GATE_OBSERVED: &str = "hedge.gate.observed";
/// Likewise; `none` where there is no limit.
pub(super) const GATE_LIMIT: &str = "hedge.gate.limit";

/// One per hold that was asked. Its attributes are the gate's.
pub(super) const HOLD: &str = "hedge.hold";
pub(super) const HOLD_NAME: &str = "hedge.hold.name";
/// Whether the condition holds, as for a gate: `true` lets a hedge start.
pub(super) const HOLD_HOLDS: &str = "hedge.hold.holds";
pub(super) const HOLD_OBSERVED: &str = "hedge.hold.observed";
pub(super) const HOLD_LIMIT: &str = "hedge.hold.limit";

pub(super) const STARTED: &str = "hedge.started";
pub(super) const WON: &str = "hedge.won";
pub(super) const DISCARDED: &str = "hedge.discarded";
pub(super) const SUPPRESSED: &str = "hedge.suppressed";
/// On all four; absent where there is no threshold, as before there are samples.
pub(super) const THRESHOLD: &str = "hedge.threshold";
/// On `hedge.suppressed`: the name of the first gate or hold that did not hold.
pub(super) const REASON: &str = "hedge.reason";

// Metrics. Their attributes: `grpc.method`, `grpc.target`, `grpc.status` on gRPC's; the first two on
// ours, as far as they are of a method; the conventions' own names on the RPC conventions' one.
pub(super) const GRPC_METHOD: &str = "grpc.method";
/// The channel's name.
pub(super) const GRPC_TARGET: &str = "grpc.target";
pub(super) const GRPC_STATUS: &str = "grpc.status";
/// What `rpc.method` is where no descriptor knows the method.
pub(super) const RPC_OTHER: &str = "_OTHER";

pub(super) const GRPC_ATTEMPT_STARTED: &str = "grpc.client.attempt.started";
pub(super) const GRPC_ATTEMPT_DURATION: &str = "grpc.client.attempt.duration";
pub(super) const GRPC_CALL_DURATION: &str = "grpc.client.call.duration";
pub(super) const GRPC_CALL_RETRIES: &str = "grpc.client.call.retries";
pub(super) const GRPC_CALL_TRANSPARENT_RETRIES: &str = "grpc.client.call.transparent_retries";
pub(super) const GRPC_CALL_HEDGES: &str = "grpc.client.call.hedges";
pub(super) const RPC_CALL_DURATION: &str = "rpc.client.call.duration";

/// Attempts that ended, by kind and outcome.
pub(super) const ATTEMPTS: &str = "hedge.attempts";
/// What became of hedges: `started`, and what that ended in: `won`, `discarded` or `failed`; and
/// `suppressed` for those that did not start.
pub(super) const HEDGES: &str = "hedge.hedges";
pub(super) const KIND: &str = "kind";
pub(super) const OUTCOME: &str = "outcome";
/// On a suppressed hedge: the first gate or hold that did not hold.
pub(super) const GATE_ATTRIBUTE: &str = "gate";
/// The threshold that a hedge outran, recorded as it starts.
pub(super) const THRESHOLD_FIRED: &str = "hedge.threshold";
/// The threshold now; absent without samples.
pub(super) const THRESHOLD_NOW: &str = "hedge.threshold.current";
/// Recent latency of originals; `quantile` is 0.5, 0.95, 0.99.
pub(super) const LATENCY: &str = "hedge.latency";
pub(super) const QUANTILE: &str = "quantile";
pub(super) const BUDGET: &str = "hedge.budget.balance";
/// 1 for the state that the breaker is in, 0 for the others.
pub(super) const BREAKER_STATE: &str = "hedge.breaker.state";
pub(super) const BREAKER_ERROR_RATE: &str = "hedge.breaker.error_rate";
pub(super) const BREAKER: &str = "breaker";
pub(super) const STATE: &str = "state";
pub(super) const ALLOWANCE: &str = "hedge.win_rate.allowance";
/// Attempts in flight at an endpoint, detached ones included.
pub(super) const ENDPOINT_IN_FLIGHT: &str = "hedge.endpoint.in_flight";
/// The latency by which the picker weighs an endpoint, its failures included.
pub(super) const ENDPOINT_LATENCY: &str = "hedge.endpoint.latency";
pub(super) const ENDPOINT: &str = "endpoint";

// Metrics of lanes.
/// The lanes' name.
pub(super) const LANES: &str = "lanes";
pub(super) const LANE: &str = "lane";
/// The most calls in flight.
pub(super) const LANE_LIMIT: &str = "hedge.lane.limit";
/// Calls and their hedges in flight.
pub(super) const LANE_IN_FLIGHT: &str = "hedge.lane.in_flight";
/// Calls that were let in or not; `outcome` is `admitted` or `shed`.
pub(super) const LANE_CALLS: &str = "hedge.lane.calls";
