//! A snapshot of lanes.

use std::{sync::Arc, time::Duration};

use super::{Named, Shared};

/// What was measured of one lane. Counts are since it was made.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LaneMeasured {
    /// The lane's name.
    pub name: Arc<str>,
    /// The most calls in flight, as of now.
    pub limit: u32,
    /// Calls in flight, and their hedges. It may be over a limit that has shrunk.
    pub in_flight: u32,
    /// Calls that were let in.
    pub admitted: u64,
    /// Calls that were shed.
    pub shed: u64,
    /// How long a call holds its place, averaged over the last ones; what ends early
    /// without an answer does not count. `None` before the first that does.
    pub held: Option<Duration>,
    /// The tenants that use it, by name; the last is `other`, all those that have no name or no
    /// place among the known. Empty without tenants.
    pub tenants: Vec<TenantMeasured>,
}

/// What was measured of one tenant in one lane. Counts are since it is known.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TenantMeasured {
    /// The tenant's name.
    pub name: Arc<str>,
    /// Its calls in flight, and their hedges.
    pub in_flight: u32,
    /// Calls that were let in.
    pub admitted: u64,
    /// Calls that were shed.
    pub shed: u64,
}

impl LaneMeasured {
    pub(super) fn all(shared: &Shared, now: Duration) -> Vec<Self> {
        let lanes = shared.lanes.iter().enumerate();
        lanes
            .map(|(number, lane)| Self::of(lane, TenantMeasured::all(shared, now, number)))
            .collect()
    }

    fn of(named: &Named, tenants: Vec<TenantMeasured>) -> Self {
        let reading = named.lane.reading();
        Self {
            name: Arc::clone(&named.name),
            limit: reading.limit,
            in_flight: reading.in_flight,
            admitted: reading.admitted,
            shed: reading.shed,
            held: reading.held,
            tenants,
        }
    }
}

impl TenantMeasured {
    fn all(shared: &Shared, now: Duration, lane: usize) -> Vec<Self> {
        let Some((_, tenants)) = &shared.tenants else {
            return Vec::new();
        };
        let readings = tenants.readings(now, lane).into_iter();
        readings
            .map(|reading| Self {
                name: reading.name,
                in_flight: reading.in_flight,
                admitted: reading.admitted,
                shed: reading.shed,
            })
            .collect()
    }
}
