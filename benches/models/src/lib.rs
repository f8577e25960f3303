//! Latency models of replicas, and a simulated world in which policies of hedging meet them.
//!
//! A [`Model`] says what an attempt meets at a replica. A [`World`] lets many calls meet it under
//! virtual time, by the engine's own race, window, budget, win rate and picker, and returns their
//! [`History`], which a [`Summary`] sums up.
//!
//! All that is drawn depends on the seed, the call and the attempt alone (common random numbers):
//! two policies meet the same luck, and differ by what they do. The same seed repeats exactly.
//!
//! ```
//! use tonic_hedge_engine::policy::Hedge;
//! use tonic_hedge_models::{Latency, Model, World};
//!
//! let world = World::new(Model::Independent(Latency::BIMODAL));
//! let hedged = World {
//!     hedge: Some(Hedge::at(0.88)),
//!     ..world.clone()
//! };
//! let (without, with) = (world.run().summary(), hedged.run().summary());
//! assert!(with.p95 < without.p95 / 3);
//! assert!(with.extra_load < 0.15);
//! ```

mod draws;
mod history;
mod latency;
mod model;
mod world;

pub use draws::{Draws, Purpose};
pub use history::{Fate, History, Sample, Summary};
pub use latency::Latency;
pub use model::{
    Attempt, Brownout, Met, Model, Pauses, Place, Queue, QueueModel, Recorded, Scripted,
    SlowReplica, Spells,
};
pub use world::World;
