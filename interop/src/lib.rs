//! What the programs that drive a `HedgedChannel` against real things share.

pub mod dials;
pub mod http;
mod load;
mod mode;
pub mod official;
pub mod peer;
mod report;

pub use load::{Told, open_loop};
pub use mode::Mode;
pub use report::{Outcome, Report};

/// The generated code of `proto/hedge/testing/v1/probe.proto`.
#[allow(missing_docs)]
pub mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

/// The generated code of `interop/proto/grpc_testing.proto`.
#[allow(missing_docs)]
pub mod grpc_testing {
    tonic::include_proto!("grpc.testing");
}

/// Returns an error that names the condition, unless it holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($observed:tt)+) => {
        if !$holds {
            return Err(format!("{} is false: {}", stringify!($holds), format_args!($($observed)+)).into());
        }
    };
}
