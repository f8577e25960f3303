//! Hedged gRPC calls for tonic.

// The call path, which is their only user, is not here yet: it removes these `allow`s.
#[allow(dead_code)]
mod descriptor;
#[allow(dead_code)]
mod log;
#[allow(dead_code, unused_imports)]
mod telemetry;

pub use descriptor::DescriptorError;
pub use log::{AttemptKind, AttemptLog, AttemptOutcome, CallLog, ResponseExt};
#[allow(dead_code, unused_imports)]
mod endpoint;
pub use endpoint::{EndpointSpec, EndpointState};
