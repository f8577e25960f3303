//! Who hears that a call is over: each server's own cancellation hook.

use std::time::Duration;

use interop::{Mode, Outcome, ensure, probe::ProbeRequest};
use tonic::{Code, Request};
use tonic_hedge::CallLog;

use super::{
    Failed,
    replicas::{NEVER_MS, Replicas, failure, request},
};

/// The deadline ends the call, and every server that works for it hears of it.
pub(super) async fn deadline(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let message = held();
    let id = message.id.clone();
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(1));
    let status = failure(client.probe.get(request).await)?;
    ensure!(status.code() == Code::DeadlineExceeded, "{status:?}");
    let log = CallLog::of_status(&status).ok_or("no call log")?;
    ensure!(log.hedged() == (mode != Mode::Off), "{log}");
    all_cancelled(mode, replicas, &id).await
}

/// A caller that goes away cancels all attempts.
pub(super) async fn caller_gone(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let message = held();
    let id = message.id.clone();
    let call = tokio::spawn(async move { client.probe.get(message).await.map(drop) });
    match mode {
        Mode::Off => replicas.arrival(&id).await.map(drop)?,
        _ => {
            replicas.a.event("arrived", &id).await?;
            replicas.b.event("arrived", &id).await?;
        }
    }
    call.abort();
    all_cancelled(mode, replicas, &id).await
}

fn held() -> ProbeRequest {
    ProbeRequest {
        delay_ms: NEVER_MS,
        ..request()
    }
}

/// Each server that the call reached has heard of its end: both, where it was hedged.
async fn all_cancelled(mode: Mode, replicas: &Replicas, id: &str) -> Result<(), Failed> {
    let arrivals = replicas.arrivals(id).await?;
    let expected = if mode == Mode::Off { 1 } else { 2 };
    ensure!(arrivals == expected, "{arrivals}");
    for peer in [&replicas.a, &replicas.b] {
        if !peer.events("arrived", id).is_empty() {
            peer.event("cancelled", id).await?;
            ensure!(peer.events("finished", id).is_empty(), "{}", peer.name);
        }
    }
    Ok(())
}
