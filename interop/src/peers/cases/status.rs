//! Failures as the caller gets them, and what a server's pushback does to further attempts.

use std::time::Duration;

use interop::{Mode, Outcome, ensure, probe::ProbeRequest};
use tonic::{Code, Status};
use tonic_hedge::{AttemptKind, AttemptOutcome, CallLog};

use super::replicas::{
    Client, NEVER_MS, ROUNDS, Replicas, either, failure, log_of, request, request_in,
};

/// A pushback that is no delay: letters, nothing, and more than 2^31 milliseconds.
const UNREADABLE: [&str; 3] = ["abc", "", "99999999999"];

/// A status arrives whole: code, message and binary details. Of a race it is the winner's.
pub(super) async fn status_details(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let message = ProbeRequest {
        status: Code::FailedPrecondition as u32,
        payload: vec![0, 1, 2, 253, 254, 255],
        ..request_in(mode)
    };
    let status = failure(client.probe.get(message.clone()).await)?;
    is_whole(&status, &message)?;
    if mode == Mode::Off {
        return Ok(());
    }

    // Either answers at once with details of its own, and the other never.
    for _ in 0..ROUNDS {
        let (winner, held) = replicas.by_name(either())?;
        let message = ProbeRequest {
            status: Code::FailedPrecondition as u32,
            payload: winner.name.as_bytes().to_owned(),
            only_replica: winner.name.to_owned(),
            slow_replica: held.name.to_owned(),
            slow_ms: NEVER_MS,
            ..request()
        };
        let status = failure(client.probe.get(message.clone()).await)?;
        is_whole(&status, &message)?;
        if log_of(&status)?.hedge_won() {
            return Ok(());
        }
    }
    Err("no hedge won".into())
}

fn is_whole(status: &Status, asked: &ProbeRequest) -> Outcome {
    ensure!(status.code() as u32 == asked.status, "{status:?}");
    let message = format!("scripted {}", asked.id);
    ensure!(status.message() == message, "{status:?}");
    ensure!(status.details() == asked.payload, "{status:?}");
    log_of(status)?;
    Ok(())
}

/// RESOURCE_EXHAUSTED ends all further attempts, unless a pushback says when to come again.
pub(super) async fn resource_exhausted(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let plain = ProbeRequest {
        status: Code::ResourceExhausted as u32,
        ..request_in(mode)
    };
    stops(mode, replicas, &mut client, plain.clone()).await?;

    let pushed_back = ProbeRequest {
        pushback_ms: Some(50),
        id: request().id,
        ..plain
    };
    let status = failure(client.probe.get(pushed_back).await)?;
    ensure!(status.code() == Code::ResourceExhausted, "{status:?}");
    let log = log_of(&status)?;
    // All that a call may have.
    ensure!(failures(log).len() == 3, "{log}");
    Ok(())
}

/// Negative pushback ends all further attempts of a call that would have been retried.
pub(super) async fn pushback_stops(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let unasked = ProbeRequest {
        status: Code::Unavailable as u32,
        ..request_in(mode)
    };
    let status = failure(client.probe.get(unasked.clone()).await)?;
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let arrivals = replicas.arrivals(&unasked.id).await?;
    ensure!(arrivals == 3, "{arrivals}");

    let stopped = ProbeRequest {
        pushback_ms: Some(-1),
        ..failing(mode)
    };
    stops(mode, replicas, &mut client, stopped).await
}

/// What cannot be read as a delay is as good as a negative one.
pub(super) async fn pushback_unreadable(mode: Mode, replicas: &Replicas) -> Outcome {
    for words in UNREADABLE {
        let mut client = replicas.client(mode).await?;
        let stopped = ProbeRequest {
            pushback_text: Some(words.to_owned()),
            ..failing(mode)
        };
        let stops = stops(mode, replicas, &mut client, stopped).await;
        stops.map_err(|error| format!("{words:?}: {error}"))?;
    }
    Ok(())
}

fn failing(mode: Mode) -> ProbeRequest {
    ProbeRequest {
        status: Code::Unavailable as u32,
        ..request_in(mode)
    }
}

/// The first failure is the last chance: no attempt starts after it.
async fn stops(
    mode: Mode,
    replicas: &Replicas,
    client: &mut Client,
    stopped: ProbeRequest,
) -> Outcome {
    let (id, code) = (stopped.id.clone(), stopped.status);
    let status = failure(client.probe.get(stopped).await)?;
    ensure!(status.code() as u32 == code, "{status:?}");
    let log = log_of(&status)?;
    let first = failures(log).into_iter().min().ok_or("nothing failed")?;
    let late = log.attempts().iter().any(|attempt| attempt.start() > first);
    ensure!(!late, "{log}");
    let arrivals = replicas.arrivals(&id).await?;
    ensure!(arrivals == log.attempts().len(), "{arrivals}, {log}");
    // Two, where both were under way by then.
    ensure!(arrivals == 1 || mode != Mode::Off, "{log}");
    ensure!(arrivals <= 2, "{log}");
    Ok(())
}

/// A pushback is how long the next attempt waits.
pub(super) async fn pushback_delays(mode: Mode, replicas: &Replicas) -> Outcome {
    let pushback = Duration::from_millis(300);
    let mut client = replicas.client(mode).await?;
    let request = ProbeRequest {
        pushback_ms: Some(i32::try_from(pushback.as_millis())?),
        ..failing(mode)
    };
    let status = failure(client.probe.get(request).await)?;
    let log = log_of(&status)?;
    let failures = failures(log);
    ensure!(failures.len() == 3, "{log}");
    for attempt in log.attempts() {
        let before = failures.iter().filter(|end| **end <= attempt.start());
        for end in before {
            ensure!(attempt.start() >= *end + pushback, "{log}");
        }
    }
    let last = log.attempts().last().ok_or("no attempt")?;
    ensure!(last.kind() == AttemptKind::Retry, "{log}");
    Ok(())
}

/// When each failed attempt ended.
fn failures(log: &CallLog) -> Vec<Duration> {
    let failed = |outcome| matches!(outcome, AttemptOutcome::Failed(_));
    let attempts = log.attempts().iter().filter(|a| failed(a.outcome()));
    attempts.map(|a| a.start() + a.duration()).collect()
}
