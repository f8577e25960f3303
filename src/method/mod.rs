//! What is known of each method: its kind, its policy, and what is learnt about it.

mod layers;
mod policy;
mod state;
mod stats;
mod table;
mod windows;

pub(crate) use policy::MethodPolicies;
pub use policy::MethodPolicy;
pub use state::Estimator;
pub(crate) use state::{Defaults, Estimate, Method, Shape};
pub(crate) use stats::{HedgeEnd, Stats};
#[cfg(feature = "reflection")]
pub(crate) use table::Learner;
pub(crate) use table::{Maker, MethodTable};
