//! What is learnt while running: latency window, budget, breaker, win rate.
//!
//! Everything here is shared by the calls of a channel, changes by single atomic steps, and is
//! told the time: `now` is the time since an epoch that the owner chooses and that all callers
//! of one object share. A `now` that is a little late, because another thread overtook its
//! caller, is harmless everywhere.
//!
//! - [`LatencyEstimator`]: how long calls take. [`Ring`] is the default; `Ckms`, behind the
//!   feature `quantiles`, is the alternative.
//! - [`Latencies`]: what a window holds, for a process that starts to go on from.
//! - [`Budget`]: how many further attempts the channel may start.
//! - [`Breaker`]: whether the dependency works at all, and how often it fails.
//! - [`Lag`]: whether this process is the bottleneck.
//! - [`WinRateMeter`]: whether hedges are worth their load.

mod breaker;
mod buckets;
mod budget;
mod cell;
#[cfg(feature = "quantiles")]
mod ckms;
mod counts;
mod lag;
mod latencies;
mod page;
mod ring;
pub(crate) mod survival;
mod wheel;
mod win_rate;
mod window;

pub use breaker::{Admission, Breaker, Probe};
pub use budget::Budget;
#[cfg(feature = "quantiles")]
pub use ckms::Ckms;
pub use lag::Lag;
pub use latencies::Latencies;
pub use ring::Ring;
pub use survival::Survival;
pub use win_rate::WinRateMeter;
pub use window::LatencyEstimator;

use std::time::Duration;

/// Whole nanoseconds. They saturate after 584 years, which no process reaches.
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(time.subsec_nanos()))
}

/// Whole microseconds in 32 bits. Everything from 71.6 minutes on is the same: too long.
pub(crate) fn micros(time: Duration) -> u32 {
    let micros = time
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(time.subsec_micros()));
    u32::try_from(micros).unwrap_or(u32::MAX)
}
