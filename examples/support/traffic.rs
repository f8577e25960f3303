//! Open-loop traffic: calls come when they come, however long the ones before them take.

use std::time::Duration;

use tokio::{
    task::JoinError,
    time::{Instant, sleep_until},
};
use tonic::Code;
use tonic_hedge::HedgedChannel;

use crate::script::probe::{ProbeRequest, probe_client::ProbeClient};

/// One call, as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Since it was due, so that a late generator does not flatter anybody.
    pub(crate) latency: Duration,
    pub(crate) code: Code,
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

/// Makes the calls of `schedule`, named from `first` on, and waits for the last one's end. What
/// was seen comes in their order.
///
/// # Errors
/// A call panicked.
pub(crate) async fn offer(
    channel: &HedgedChannel,
    first: u64,
    schedule: &[Duration],
) -> Result<Vec<Seen>, JoinError> {
    let start = Instant::now();
    let client = ProbeClient::new(channel.clone());
    let mut calls = Vec::with_capacity(schedule.len());
    for (id, at) in (first..).zip(schedule) {
        let due = start + *at;
        sleep_until(due).await;
        calls.push(tokio::spawn(make(client.clone(), id, due)));
    }
    let mut seen = Vec::with_capacity(calls.len());
    for call in calls {
        seen.push(call.await?);
    }
    Ok(seen)
}

async fn make(mut client: ProbeClient<HedgedChannel>, id: u64, due: Instant) -> Seen {
    let request = ProbeRequest {
        id: id.to_string(),
        ..ProbeRequest::default()
    };
    let code = match client.get(request).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    };
    Seen {
        latency: due.elapsed(),
        code,
    }
}
