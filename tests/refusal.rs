//! A refusal without pushback, by a full queue, in a race: whole channels in virtual time. No
//! further attempt starts for it, and none that is in flight is given up for it.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, get};
use support::{Answer, Arrival, ProbeClient};
use tonic::{Code, Status};
use tonic_hedge::{AttemptOutcome, CallLog, Hedge, ResponseExt};

const MS: Duration = Duration::from_millis(1);

/// By attempt: how long it takes, and whether it is refused then.
type Script = &'static [(u32, bool)];

async fn play(script: Script, arrival: Arrival) -> Answer {
    let (takes, refused) = script[arrival.previous() as usize];
    tokio::time::sleep(takes * MS).await;
    match refused {
        true => Err(Status::resource_exhausted("full")),
        false => arrival.ok(),
    }
}

/// One call on three replicas, a hedge each 20 ms: its answer, its log, and when it came.
async fn call(script: Script) -> (Result<(), Code>, CallLog, Duration) {
    let names = ["a", "b", "c"];
    let replicas = names.map(|name| InMemory::start(name, move |arrival| play(script, arrival)));
    let hedge = Hedge::after(20 * MS).max_concurrent(3);
    let channel = builder(&replicas).hedge(hedge).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let start = tokio::time::Instant::now();
    let result = client.get(asked(0, Code::Ok)).await;
    let took = start.elapsed();
    let log = result.call_log().unwrap().clone();
    let attempts: u64 = replicas.iter().map(|it| it.seen.calls() as u64).sum();
    assert_eq!(get(&channel).attempts, attempts);
    (result.map(drop).map_err(|it| it.code()), log, took)
}

fn outcomes(log: &CallLog) -> Vec<AttemptOutcome> {
    log.attempts().iter().map(|it| it.outcome()).collect()
}

const REFUSED: AttemptOutcome = AttemptOutcome::Failed(Code::ResourceExhausted);
const WON: AttemptOutcome = AttemptOutcome::Won(Code::Ok);

#[tokio::test(start_paused = true)]
async fn a_refused_hedge_does_not_end_the_call() {
    let (result, log, took) = call(&[(50, false), (1, true)]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(outcomes(&log), [WON, REFUSED]);
    assert_eq!(took, 50 * MS);
    assert!(log.hedged() && !log.hedge_won());
}

#[tokio::test(start_paused = true)]
async fn a_refused_original_waits_for_its_hedge() {
    let (result, log, took) = call(&[(25, true), (50, false)]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(outcomes(&log), [REFUSED, WON]);
    assert_eq!(took, 70 * MS);
    assert!(log.hedge_won());
}

#[tokio::test(start_paused = true)]
async fn refused_by_all_it_ends_with_the_last() {
    let (result, log, took) = call(&[(50, true), (1, true)]).await;
    assert_eq!(result, Err(Code::ResourceExhausted));
    assert_eq!(outcomes(&log), [REFUSED, REFUSED]);
    assert_eq!(took, 50 * MS);
}

/// Alone it ends the call at once, and is not retried.
#[tokio::test(start_paused = true)]
async fn a_refusal_alone_is_the_answer() {
    let (result, log, took) = call(&[(1, true)]).await;
    assert_eq!(result, Err(Code::ResourceExhausted));
    assert_eq!(outcomes(&log), [REFUSED]);
    assert_eq!(took, MS);
}
