//! Who is raced, who wins, and what an attempt says of itself.

use std::time::Duration;

use interop::{
    Mode, Outcome, ensure,
    probe::{ProbeReply, ProbeRequest},
};
use tonic::{Code, Request, Response};
use tonic_hedge::{AttemptLog, AttemptOutcome, CallLog, ResponseExt as _};

use super::{
    Failed,
    replicas::{Client, NEVER_MS, ROUNDS, Replicas, either, failure, log_of, request, request_in},
};

/// How long the winner of a race holds its answer: by then the loser, too, has told that it was
/// reached, or its cancellation could come before the call.
const WINNER_MS: u32 = 150;

/// The deadline of a raced call.
const TIMEOUT: Duration = Duration::from_secs(50);

/// A call that was made, and which server it was first sent to.
struct Raced {
    id: String,
    response: Response<ProbeReply>,
    log: CallLog,
}

/// The slow server loses, and its own cancellation hook runs.
pub(super) async fn hedge_wins(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let raced = race(replicas, &mut client).await?;
    let (log, id) = (&raced.log, raced.id.as_str());
    let [original, hedge] = log.attempts() else {
        return Err(format!("not two attempts: {log}").into());
    };
    ensure!(original.outcome() == AttemptOutcome::Discarded, "{log}");
    ensure!(original.endpoint() != hedge.endpoint(), "{log}");
    let (winner, loser) = replicas.by_name(&raced.response.get_ref().replica)?;
    let port = format!(":{}", winner.port);
    ensure!(hedge.endpoint().ends_with(&port), "{log}");
    loser.event("cancelled", id).await?;
    winner.event("finished", id).await?;
    let finished = loser.events("finished", id);
    ensure!(finished.is_empty(), "the loser finished too");
    Ok(())
}

/// While one replica answers nothing, the other answers every call.
pub(super) async fn slow_replica(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let (mut calls, mut won) = (0, 0);
    // The picker would learn at once which is the slow one, and ask it no more.
    while calls < 10 || (won == 0 && calls < ROUNDS) {
        let (slow, fast) = replicas.by_name(either())?;
        let message = ProbeRequest {
            slow_replica: slow.name.to_owned(),
            slow_ms: NEVER_MS,
            ..request()
        };
        let response = client.probe.get(message).await?;
        ensure!(response.get_ref().replica == fast.name, "{response:?}");
        calls += 1;
        won += usize::from(response.hedge_won());
    }
    ensure!(won > 0, "no hedge won in {calls} calls");
    Ok(())
}

/// A hedge says that it is one, and has less time left than its original had; so does a retry.
pub(super) async fn attempt_headers(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    if mode != Mode::Off {
        let raced = race(replicas, &mut client).await?;
        let (winner, loser) = replicas.by_name(&raced.response.get_ref().replica)?;
        let original = loser.event("arrived", &raced.id).await?;
        let hedge = winner.event("arrived", &raced.id).await?;
        ensure!(original.previous_attempts.is_none(), "{original:?}");
        ensure!(hedge.previous_attempts == Some(1), "{hedge:?}");
        let (Some(first), Some(second)) = (original.timeout, hedge.timeout) else {
            return Err(format!("no deadline: {original:?}, {hedge:?}").into());
        };
        ensure!(first <= TIMEOUT && !first.is_zero(), "{first:?}");
        // Servers count in whole milliseconds, from when they look: of two that are reached within
        // one, the later may see more.
        let threshold = raced.log.attempts()[1].start();
        let most = TIMEOUT - threshold + Duration::from_millis(1);
        ensure!(
            second <= most && !second.is_zero(),
            "{second:?} of {most:?}"
        );
    }

    for _ in 0..ROUNDS {
        let message = ProbeRequest {
            status: Code::Unavailable as u32,
            only_replica: either().to_owned(),
            ..request()
        };
        let id = message.id.clone();
        let response = client.probe.get(message).await?;
        let reply = response.get_ref();
        let log = log_of(&response)?;
        let won = |attempt: &&AttemptLog| matches!(attempt.outcome(), AttemptOutcome::Won(_));
        if log
            .attempts()
            .iter()
            .find(won)
            .is_none_or(|a| a.number() == 0)
        {
            continue;
        }
        ensure!(reply.previous_attempts == 1, "{reply:?}, {log}");
        let (answered, _) = replicas.by_name(&reply.replica)?;
        let retry = answered.event("arrived", &id).await?;
        ensure!(retry.previous_attempts == Some(1), "{retry:?}");
        return Ok(());
    }
    Err("no call needed a second attempt".into())
}

/// What is not declared idempotent reaches one server, once, slow or failing.
pub(super) async fn non_idempotent_once(mode: Mode, replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(mode).await?;
    let slow = ProbeRequest {
        delay_ms: 200,
        ..request_in(mode)
    };
    let response = client.probe.put(slow.clone()).await?;
    ensure!(!response.hedged(), "{}", log_of(&response)?);
    let arrivals = replicas.arrivals(&slow.id).await?;
    ensure!(arrivals == 1, "{arrivals}");

    let failing = ProbeRequest {
        status: Code::Unavailable as u32,
        ..request_in(mode)
    };
    let status = failure(client.probe.put(failing.clone()).await)?;
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let arrivals = replicas.arrivals(&failing.id).await?;
    ensure!(arrivals == 1, "{arrivals}");
    Ok(())
}

/// A call whose original went to a server that never answers it.
async fn race(replicas: &Replicas, client: &mut Client) -> Result<Raced, Failed> {
    // The picker chooses which of them gets the original.
    for _ in 0..ROUNDS {
        let (held, winner) = replicas.by_name(either())?;
        let message = ProbeRequest {
            delay_ms: NEVER_MS,
            only_replica: held.name.to_owned(),
            slow_replica: winner.name.to_owned(),
            slow_ms: WINNER_MS,
            ..request()
        };
        let id = message.id.clone();
        let mut request = Request::new(message);
        request.set_timeout(TIMEOUT);
        let response = client.probe.get(request).await?;
        let log = log_of(&response)?.clone();
        if log.hedge_won() {
            return Ok(Raced { id, response, log });
        }
    }
    Err(format!("no hedge won in {ROUNDS} calls").into())
}
