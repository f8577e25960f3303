//! What the gateway is set to: its channel to the replicas, and its lanes.

use std::{error::Error, sync::Arc};

use opentelemetry_sdk::metrics::SdkMeterProvider;
use tonic_hedge::{
    BreakerPolicy, BudgetPolicy, Hedge, HedgedChannel, LanePolicy, Lanes, LanesError, RoundTrip,
    Scope,
};

use crate::{api, fleet::Fleet, memory::Memory, scale::chat};

/// The lanes' names.
pub(crate) const INTERACTIVE: &str = "interactive";
pub(crate) const BATCH: &str = "batch";

/// What names a tenant.
pub(crate) const TENANT: &str = "x-tenant";

/// What metrics call the gateway.
const NAME: &str = "gateway";

/// Whether a gateway has what this library adds, or only what it takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Retries, budget and breaker.
    Plain,
    /// And hedges and lanes.
    Whole,
}

/// The channel to the replicas. Both kinds have one picker, one budget and one breaker.
pub(crate) fn channel(
    kind: Kind,
    fleet: &Fleet,
    memory: &Memory,
    meters: Arc<SdkMeterProvider>,
) -> Result<HedgedChannel, Box<dyn Error>> {
    let builder = HedgedChannel::builder()
        .endpoints(fleet.endpoints()?)
        .descriptors(api::FILE_DESCRIPTOR_SET)
        .budget(BudgetPolicy::default())
        .breaker(breaker())
        .target_name(match kind {
            Kind::Plain => "plain",
            Kind::Whole => NAME,
        })
        .meter_provider(meters);
    Ok(match kind {
        Kind::Plain => builder,
        Kind::Whole => memory.of_channel(builder.hedge(hedge())),
    }
    .build()?)
}

/// When calls to the replicas stop.
fn breaker() -> BreakerPolicy {
    BreakerPolicy::default()
        // The defaults of 30 s and 5 s, on this clock.
        .window(chat(30.0))
        .cool_down(chat(5.0))
        // At half, and not at a tenth: a replica that is full refuses, and for a part of the calls
        // to be refused is no reason to refuse the rest.
        .floor(0.5)
        .consecutive(20)
}

/// When a second replica is asked for its first token.
fn hedge() -> Hedge {
    Hedge::at(0.95)
        .scope(Scope::Locality)
        // Sooner no healthy first token comes, and later nothing is saved: a region that is slow as
        // a whole raises its own threshold up to here and no further.
        .minimum_delay(chat(0.5))
        .maximum_delay(chat(0.8))
        // Of a region that nothing is known of yet, or that hardly gets any calls.
        .cold_start(chat(0.8))
        .minimum_samples(32)
        // A copy of an answer is dear: one, also where it fails early.
        .max_hedges(1)
        // A minute. The last 30 s would do, but of a slow region they have few samples.
        .window(chat(60.0))
}

/// The lanes before the gateway's handlers. What batch may have and what users always have is less
/// than the replicas' slots: the rest is for hedges, and for a region that is avoided.
pub(crate) fn lanes(memory: &Memory, meters: Arc<SdkMeterProvider>) -> Result<Lanes, LanesError> {
    let slots = u32::try_from(Fleet::slots()).unwrap_or(u32::MAX);
    let policy = LanePolicy::default().round_trip(RoundTrip::FirstMessage);
    let lanes = Lanes::builder()
        // A user waits: all that there is, and never less than half of it.
        .lane(
            INTERACTIVE,
            policy
                .clone()
                .minimum(slots / 2)
                .maximum(slots)
                .initial(slots)
                .target(chat(20.0)),
        )
        // What may take a slow region's time, and no longer.
        .lane(
            BATCH,
            policy
                .minimum(slots / 10)
                .maximum(slots * 2 / 5)
                .target(chat(20.0)),
        )
        .tenant_key(TENANT)
        .name(NAME)
        .meter_provider(meters)
        .build()?;
    memory.of_lanes(&lanes);
    Ok(lanes)
}
