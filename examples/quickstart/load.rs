//! The load: a closed loop, the same for every channel.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::{task::JoinSet, time::Instant};
use tonic::{
    body::Body,
    codegen::{Service, http},
};
use tonic_hedge::{CallLog, ResponseExt};

use crate::replica::probe::{ProbeRequest, probe_client::ProbeClient};

/// Calls to make, and how.
pub(crate) struct Run {
    calls: u64,
    at_once: usize,
    next: Arc<AtomicU64>,
    bar: ProgressBar,
}

/// One call, as its caller saw it.
pub(crate) struct Seen {
    pub(crate) latency: Duration,
    pub(crate) ok: bool,
    /// What was done for it; `None` where no hedged channel made it.
    pub(crate) log: Option<CallLog>,
}

impl Run {
    pub(crate) fn new(name: &'static str, calls: u64, at_once: usize) -> Self {
        let style = ProgressStyle::with_template("{prefix:>6} {bar:40} {pos}/{len} calls");
        // On stderr, and only where that is a terminal.
        let bar = ProgressBar::new(calls)
            .with_prefix(name)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            calls,
            at_once,
            next: Arc::default(),
            bar,
        }
    }

    /// Makes the calls through `channel`. Whoever has an answer makes the next call.
    pub(crate) async fn drive<C>(self, channel: C) -> Vec<Seen>
    where
        C: Service<http::Request<Body>, Response = http::Response<Body>>
            + Clone
            + Send
            + Sync
            + 'static,
        C::Error: Into<tonic::codegen::StdError>,
        C::Future: Send,
    {
        let mut callers = JoinSet::new();
        for _ in 0..self.at_once {
            let mut client = ProbeClient::new(channel.clone());
            let (calls, next, bar) = (self.calls, Arc::clone(&self.next), self.bar.clone());
            callers.spawn(async move {
                let mut seen = Vec::new();
                loop {
                    // Relaxed: a number each, in whatever order.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= calls {
                        return seen;
                    }
                    let request = ProbeRequest {
                        id: number.to_string(),
                        ..ProbeRequest::default()
                    };
                    let started = Instant::now();
                    let answer = client.get(request).await;
                    seen.push(Seen {
                        latency: started.elapsed(),
                        ok: answer.is_ok(),
                        log: match &answer {
                            Ok(response) => response.call_log().cloned(),
                            Err(status) => CallLog::of_status(status).cloned(),
                        },
                    });
                    bar.inc(1);
                }
            });
        }
        let seen = callers.join_all().await;
        self.bar.finish_and_clear();
        seen.into_iter().flatten().collect()
    }
}
