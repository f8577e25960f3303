//! The decision logic of tonic-hedge, free of tonic, http and hyper.
//!
//! Everything here that decides takes its inputs, the time among them, as values and
//! returns an answer. Time is a [`Duration`](std::time::Duration) since an epoch that the
//! owner chooses (a channel counts from its construction, a race from the start of its
//! call), so one logic serves a live channel, a paused test and a simulation.
//!
//! - [`policy`]: what the user asks for; validated, immutable, cheap to share.
//! - [`race`]: the pure state machine of one call, and the async driver that performs it.
//! - [`measure`]: what is learnt while running: latency window, budget, breaker, win rate.
//! - [`gate`]: the seven conditions of a hedge, judged over a snapshot of the above.
//! - [`endpoint`]: load, choice and reset ration of endpoints, without the connections.

pub mod endpoint;
pub mod gate;
pub mod measure;
pub mod policy;
pub mod race;
