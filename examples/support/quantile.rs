//! A quantile of latencies.

use std::time::Duration;

/// The least of the latencies that a share `q` of them did not exceed, in milliseconds; 0 for none.
pub(crate) fn quantile(mut latencies: Vec<Duration>, q: f64) -> f64 {
    latencies.sort_unstable();
    let rank = (q * latencies.len() as f64).ceil() as usize;
    let latency = latencies.get(rank.saturating_sub(1));
    latency.map_or(0.0, Duration::as_secs_f64) * 1e3
}
