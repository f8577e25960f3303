//! Open-loop traffic: calls come when they come, however long the ones before them take.

use std::time::Duration;

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tonic_hedge::HedgedChannel;

use crate::replica::probe::{ProbeRequest, probe_client::ProbeClient};

/// One call, as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The call's place in the schedule.
    pub(crate) index: usize,
    /// Since it was due, so that a late generator does not flatter anybody.
    pub(crate) latency: Duration,
    pub(crate) code: tonic::Code,
}

/// When the calls of a Poisson process come, in order, for as long as `length`. `rate` is the
/// calls per second at a time; it must not be zero.
pub(crate) fn schedule(
    seed: u64,
    length: Duration,
    rate: impl Fn(Duration) -> f64,
) -> Vec<Duration> {
    let mut draws = fastrand::Rng::with_seed(seed);
    let mut schedule = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_secs_f64(exponential(&mut draws) / rate(at));
        if at >= length {
            return schedule;
        }
        schedule.push(at);
    }
}

/// An exponential draw with mean 1.
pub(crate) fn exponential(draws: &mut fastrand::Rng) -> f64 {
    // In (0, 1], whose logarithm is finite.
    -(1.0 - draws.f64()).ln()
}

/// Makes the calls of `schedule`, named from `first` on, and waits for the last one's end.
pub(crate) async fn offer(channel: &HedgedChannel, first: u64, schedule: &[Duration]) -> Vec<Seen> {
    let start = Instant::now();
    let client = ProbeClient::new(channel.clone());
    let mut calls = JoinSet::new();
    for (index, at) in schedule.iter().enumerate() {
        let due = start + *at;
        sleep_until(due).await;
        let mut client = client.clone();
        calls.spawn(async move {
            let request = ProbeRequest {
                id: (first + index as u64).to_string(),
                ..ProbeRequest::default()
            };
            let code = match client.get(request).await {
                Ok(_) => tonic::Code::Ok,
                Err(status) => status.code(),
            };
            Seen {
                index,
                latency: due.elapsed(),
                code,
            }
        });
    }
    calls.join_all().await
}

/// The least of the latencies that a share `q` of them did not exceed, in milliseconds; 0 for none.
pub(crate) fn quantile(mut latencies: Vec<Duration>, q: f64) -> f64 {
    latencies.sort_unstable();
    let rank = (q * latencies.len() as f64).ceil() as usize;
    let latency = latencies.get(rank.saturating_sub(1));
    latency.map_or(0.0, Duration::as_secs_f64) * 1e3
}
