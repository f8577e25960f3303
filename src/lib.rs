//! stub

// Its callers, the call path and the builder, come with their own parts.
#[allow(dead_code, unused_imports)]
mod endpoint;

pub use endpoint::{EndpointSpec, EndpointState};
