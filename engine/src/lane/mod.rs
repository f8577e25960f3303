//! How many calls may be in flight: lanes with limits of their own, and tenants' shares of them.
//!
//! A [`Lane`] admits a call or sheds it, at once: nobody waits in a lane, so nothing can be
//! overtaken there, and a place is never held for a call that has given up. Its limit follows what
//! the calls' ends tell, by a [`LimitAlgorithm`]. A class of less important calls gets a lane of its
//! own, and so sheds without touching what the others have. [`Tenants`] divide each lane among
//! those who use it.
//!
//! `now` is the time since an epoch that the owner chooses and that all callers of one lane share.
//!
//! ```
//! use std::time::Duration;
//! use tonic_hedge_engine::lane::{Lane, LanePolicy, LaneOutcome};
//!
//! let at = Duration::from_millis;
//! let lane = Lane::new(&LanePolicy::default().initial(2))?;
//! let first = lane.try_admit(at(0)).unwrap();
//! let second = lane.try_admit(at(0)).unwrap();
//! assert!(lane.try_admit(at(0)).is_none(), "shed");
//! first.finish(at(50), LaneOutcome::Answered);
//! assert_eq!((lane.limit(), lane.in_flight()), (3, 1));
//! drop(second); // Cancelled: its place is back, and nothing is learnt.
//! assert_eq!((lane.limit(), lane.in_flight()), (3, 0));
//! # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
//! ```

mod admission;
mod aimd;
mod gradient;
mod limit;
mod permit;
mod policy;
mod pressure;
mod tenants;

pub use admission::{Lane, LaneReading};
pub use aimd::Aimd;
pub use gradient::Gradient;
pub use limit::{LaneOutcome, LaneSample, LimitAlgorithm};
pub use permit::{Extra, Permit, Room};
pub use policy::{LaneAlgorithm, LanePolicy, RoundTrip, TenantPolicy};
pub use tenants::{TenantReading, Tenants};

use std::time::Duration;

/// Whole milliseconds: as exact as anything here that compares times has to be.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
