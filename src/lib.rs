//! Hedged gRPC calls for tonic: a slow call is raced against a second replica.

mod background;
mod budget;
mod call;
mod channel;
mod circuit;
mod criticality;
mod descriptor;
mod endpoint;
mod error;
mod log;
mod measured;
mod method;
mod request;
mod saturation;
mod telemetry;

pub use budget::RetryBudget;
pub use channel::{Builder, HedgedChannel, IntoDnsEndpoint, IntoEndpoint, ResponseFuture};
pub use circuit::BreakerScope;
pub use criticality::{Criticality, CriticalityLayer, CriticalityScope, CriticalityService};
pub use descriptor::DescriptorError;
pub use endpoint::{EndpointSpec, EndpointState};
pub use error::BuildError;
pub use log::{AttemptKind, AttemptLog, AttemptOutcome, CallLog, ResponseExt};
pub use measured::{BreakerMeasured, EndpointMeasured, Measured, MethodMeasured};
pub use method::Estimator;
pub use request::RequestExt;
pub use tonic_hedge_engine::{
    gate::BreakerState,
    measure::Budget,
    policy::{
        BreakerPolicy, BudgetPolicy, Hedge, PolicyError, Retry, Saturation, Scope, Target, Timing,
        WinRate,
    },
};
