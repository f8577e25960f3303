//! Hedged gRPC calls for tonic: a slow call is raced against a second replica.
//!
//! [`HedgedChannel`] takes the place of tonic's `Channel` in a generated client. A unary call
//! that its `.proto` declares idempotent, and that outruns a live quantile of its method's
//! latency, is sent to a second replica as well. The first answer is the call's; the other
//! attempt is cancelled.
//!
//! ```no_run
//! use tonic_hedge::{Hedge, HedgedChannel};
//!
//! # mod search { pub const FILE_DESCRIPTOR_SET: &[u8] = &[]; }
//! let channel = HedgedChannel::builder()
//!     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
//!     .descriptors(search::FILE_DESCRIPTOR_SET) // which methods are idempotent
//!     .hedge(Hedge::at(0.95)) // at most about 5 % more calls
//!     .build()?;
//! // let mut client = SearchClient::new(channel);
//! # drop(channel);
//! # Ok::<(), tonic_hedge::BuildError>(())
//! ```
//!
//! README.md has the whole program, the table of defaults, and when not to hedge.
//!
//! # Words
//!
//! A *call* is what the application makes; an *attempt* is one copy of it on the wire. The
//! *original* always goes out. A *hedge* is an attempt that starts while another is in flight, a
//! *retry* one that starts after a failure. A hedge is considered when the newest attempt has
//! run for the *threshold*; it starts if seven *gates* hold and no *hold* keeps it back. The
//! first *answer* ends the race, and the other attempts are *discarded*.
//!
//! # Overview
//!
//! - [`HedgedChannel`], made by its [`Builder`] from endpoints ([`EndpointSpec`]) and descriptor
//!   sets. Every mistake is a [`BuildError`] of [`Builder::build`]; a call fails with a
//!   `tonic::Status`, the server's own wherever there is one.
//! - Policies: [`Hedge`] (when a second copy may start), [`Retry`], [`BudgetPolicy`] (how many
//!   further attempts in all), [`BreakerPolicy`], and opt in [`WinRate`] and [`Saturation`]. Plain
//!   values with defaults and bounds.
//! - How many calls may be in flight, before a channel or in a server: [`Lanes`].
//! - For one method of a `.proto` that cannot be changed: [`MethodPolicy`].
//! - For one request: [`RequestExt`] and [`Criticality`].
//! - What passes through a server to the calls that it makes: [`InheritLayer`].
//! - What a process that starts goes on from: [`Learned`], [`LanesLearned`].
//! - What happened: [`ResponseExt`] and [`CallLog`] for one call, [`Measured`] for the channel.
//!
//! The options of a `.proto` that go beyond `idempotency_level` are in `hedge/v1/hedge.proto`,
//! which the crate `tonic-hedge-build` resolves and keeps intact.
//!
//! # Crate features
//!
//! - `telemetry` (on by default): spans and metrics through the OpenTelemetry API. No SDK comes with
//!   it, and without a provider nothing is recorded.
//! - `serde`: what [`HedgedChannel::measured`] returns can be serialized, and what a process hands on
//!   to the next ([`Learned`], [`LanesLearned`]) also read again.
//! - `reflection`: `Builder::reflection`, which learns a channel's methods from its server.
//! - `service-config`: gRPC's service config, `Builder::service_config`.
//! - `quantiles`: the CKMS summary of the crate `quantiles` as a second `Estimator`.
//!
//! Features only add. `__proto`, `__fuzz` and `__bench` are for this crate's own tests.
//!
//! # What is not supported
//!
//! - Hedging a call that streams, in either direction: it passes as it is, with one attempt. The one
//!   exception is the wait for the first message of a streamed answer, where it is asked for.
//! - Hedging a method that neither a descriptor set nor [`Builder::method`] knows.
//! - Runtimes other than tokio.

mod background;
#[cfg(feature = "__bench")]
#[doc(hidden)]
pub mod bench;
mod budget;
mod call;
mod channel;
mod circuit;
mod criticality;
mod descriptor;
mod endpoint;
mod error;
mod hooks;
mod inherit;
mod lane;
mod learned;
mod log;
mod measured;
mod method;
mod nanos;
#[cfg(feature = "reflection")]
mod reflection;
mod request;
mod saturation;
mod sealed;
#[cfg_attr(
    not(feature = "service-config"),
    allow(dead_code, reason = "without the feature there is only the empty one")
)]
mod service_config;
mod status;
mod telemetry;

pub use budget::{Budget, RetryBudget};
pub use channel::{Builder, HedgedChannel, IntoDnsEndpoint, IntoEndpoint, ResponseFuture};
pub use circuit::BreakerScope;
pub use criticality::Criticality;
pub use descriptor::DescriptorError;
pub use endpoint::{Destination, EndpointSpec, EndpointState};
pub use error::BuildError;
pub use hooks::{AttemptResult, Classification, NextAttempt};
pub use inherit::{
    InheritBody, InheritFuture, InheritLayer, InheritScope, InheritService, Inherited,
};
pub use lane::{
    LaneBody, LaneFuture, LaneLayer, LaneMeasured, LaneService, Lanes, LanesBuilder, LanesError,
    TenantMeasured,
};
pub use learned::{LanesLearned, Learned};
pub use log::{AttemptKind, AttemptLog, AttemptOutcome, CallLog, ResponseExt};
pub use measured::{BreakerMeasured, EndpointMeasured, EstimateMeasured, Measured, MethodMeasured};
pub use method::{Estimator, MethodPolicy};
#[cfg(feature = "reflection")]
pub use reflection::ReflectionState;
pub use request::RequestExt;
pub use status::StatusExt;
pub use telemetry::{HedgeEvent, HedgeEventKind, HedgeStart};
pub use tonic_hedge_engine::{
    gate::BreakerState,
    lane::{
        LaneAlgorithm, LaneOutcome, LanePolicy, LaneSample, LimitAlgorithm, RoundTrip, TenantPolicy,
    },
    plan::{PlanReading as PlanMeasured, PlanState},
    policy::{
        BreakerPolicy, BudgetPolicy, Delay, Hedge, PolicyError, RequestView, Retry, Saturation,
        Scope, Target, Timing, Upcoming, WinRate,
    },
};

/// What the fuzz targets in `fuzz/` call, a function of bytes for each. Not for users: no stability.
#[cfg(feature = "__fuzz")]
#[doc(hidden)]
pub mod fuzz {
    #[cfg(feature = "service-config")]
    pub use crate::service_config::fuzz::service_config;
    pub use crate::{
        call::fuzz::{pushback, status, timeout, trailers},
        descriptor::fuzz::descriptor_set,
    };
}

/// Compiles README.md's blocks.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
