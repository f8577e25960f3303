//! The decision logic of tonic-hedge, free of tonic, http and hyper.
//!
//! Users of tonic want the crate `tonic-hedge`, which carries out on tonic channels what is
//! decided here. This crate is for that one, for simulations, and for an adapter to another
//! transport.
//!
//! Everything here that decides takes its inputs, the time among them, as values and
//! returns an answer. Time is a [`Duration`](std::time::Duration) since an epoch that the
//! owner chooses (a channel counts from its construction, a race from the start of its
//! call), so one logic serves a live channel, a paused test and a simulation.
//!
//! ```
//! use std::time::Duration;
//! use tonic_hedge_engine::{measure::Budget, policy::BudgetPolicy};
//!
//! let budget = Budget::new(&BudgetPolicy::default().initial(0.0))?;
//! let now = Duration::ZERO;
//! assert!(!budget.try_withdraw(now));
//! for _call in 0..5 {
//!     budget.deposit(now); // 0.2 tokens each
//! }
//! assert!(budget.try_withdraw(now) && !budget.try_withdraw(now));
//! # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
//! ```
//!
//! - [`policy`]: what the user asks for; validated, immutable, cheap to share.
//! - [`race`]: the pure state machine of one call, and the async driver that performs it.
//! - [`measure`]: what is learnt while running: latency window, budget, breaker, win rate.
//! - [`plan`]: when to hedge for a share of load that the user grants ([`policy::Hedge::within`]).
//! - [`gate`]: the seven conditions of a hedge, judged over a snapshot of the above.
//! - [`lane`]: how many calls may be in flight, by class and by tenant.
//! - [`endpoint`]: load, choice and reset ration of endpoints, without the connections.
//!
//! # Crate features
//!
//! - `quantiles`: the CKMS summary of the crate of that name as an estimator.
//! - `serde`: the breaker's state and a plan can be serialized, and a window's
//!   [`Latencies`](measure::Latencies) also read again.

pub mod endpoint;
pub mod gate;
pub mod lane;
pub mod measure;
pub mod plan;
pub mod policy;
pub mod race;
mod sync;
