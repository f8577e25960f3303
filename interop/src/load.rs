//! Calls at a steady pace, and what becomes of them.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tonic::{Code, Response, Status};
use tonic_hedge::{AttemptKind, AttemptOutcome, ResponseExt as _};

/// What became of one caller's calls. Attempts are counted by the call logs; without one a call was one.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// From when a call was due to its end, whatever that was: a caller that waited for one call before
    /// the next would not see the others that a fault holds up.
    pub latencies: Vec<Duration>,
    /// How calls ended, by the names of the codes.
    pub codes: BTreeMap<String, u64>,
    /// Attempts that may have reached a server: a replacement stands for one that provably did not.
    pub sent: u64,
    /// The most of one call.
    pub most_sent: u64,
    /// Those beyond the first of their call.
    pub extra: u64,
    /// Those whose answer nobody waited for.
    pub discarded: u64,
    /// Those that were hedges.
    pub hedges: u64,
    /// Calls whose answer a hedge gave.
    pub hedges_won: u64,
}

impl Told {
    /// The calls that have ended.
    pub fn calls(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// The calls that did not end with OK.
    pub fn failed(&self) -> u64 {
        self.calls() - self.codes.get("OK").copied().unwrap_or(0)
    }

    /// The latency that this share of the calls does not exceed; 0 without calls.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut latencies = self.latencies.clone();
        latencies.sort();
        let rank = (latencies.len() as f64 * share).ceil() as usize;
        let at = rank.saturating_sub(1);
        latencies.get(at).copied().unwrap_or_default()
    }

    /// One more call has ended.
    pub fn add<T>(&mut self, took: Duration, result: &Result<Response<T>, Status>) {
        self.latencies.push(took);
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        *self.codes.entry(name(code)).or_default() += 1;
        let Some(log) = result.call_log() else {
            self.sent += 1;
            self.most_sent = self.most_sent.max(1);
            return;
        };
        let mut sent = 0;
        for attempt in log.attempts() {
            sent += u64::from(attempt.kind() != AttemptKind::Replacement);
            self.hedges += u64::from(attempt.kind() == AttemptKind::Hedge);
            let given_up = [AttemptOutcome::Discarded, AttemptOutcome::Detached];
            self.discarded += u64::from(given_up.contains(&attempt.outcome()));
        }
        self.sent += sent;
        self.most_sent = self.most_sent.max(sent);
        self.extra += sent.saturating_sub(1);
        self.hedges_won += u64::from(log.hedge_won());
    }
}

/// Makes so many calls, one each `pace` whatever becomes of those before, and waits for the end of all.
///
/// # Errors
/// A call panicked.
pub async fn open_loop<T, R>(
    calls: u32,
    pace: Duration,
    call: impl Fn(u32) -> R,
) -> Result<Told, JoinError>
where
    R: Future<Output = Result<Response<T>, Status>> + Send + 'static,
{
    let told = Arc::new(Mutex::new(Told::default()));
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..calls {
        let due = start + pace * number;
        sleep_until(due).await;
        let call = call(number);
        let told = Arc::clone(&told);
        running.spawn(async move {
            let result = call.await;
            told.lock().add(due.elapsed(), &result);
        });
    }
    while let Some(ended) = running.join_next().await {
        ended?;
    }
    let told = told.lock().clone();
    Ok(told)
}

/// As gRPC spells it, like `DEADLINE_EXCEEDED`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
