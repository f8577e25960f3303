//! An incident from beginning to end: what hedging does in it, and what it leaves undone.
//!
//! Three replicas run in this process and go through steady traffic, a tail, a brownout, failing
//! calls, an overload, and recovery. Each second prints what `channel.measured()` says; at the
//! end stands what hedging added to the load of the replicas in each phase. A second fleet gets the same
//! calls at the same times through a channel without hedging, to compare with.
//!
//! ```text
//! cargo run --release --example incident
//! ```

mod args;
mod fleet;
mod reading;
mod summary;

#[path = "../support/quantile.rs"]
mod quantile;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/replica.rs"]
mod replica;
#[path = "../support/script.rs"]
mod script;
#[path = "../support/traffic.rs"]
mod traffic;

use std::{error::Error, process::ExitCode, time::Duration};

use tokio::time::{Instant, sleep_until};
use tonic_hedge::{BreakerPolicy, Builder, Hedge, HedgedChannel, Measured, WinRate};

use args::{Args, Run};
use fleet::{Fleet, Phase, RATE};
use reading::Reading;
use summary::{Side, Summary};

/// When the calls come; nothing depends on a particular one.
const SEED: u64 = 0x001c_1de7;

#[tokio::main]
async fn main() -> ExitCode {
    let run = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Run(run)) => run,
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match incident(&run).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn incident(run: &Run) -> Result<(), Box<dyn Error>> {
    let (hedged_fleet, plain_fleet) = (Fleet::start().await?, Fleet::start().await?);
    // An incident of a minute needs shorter memories than the defaults: half a phase.
    let memory = Duration::from_secs(run.seconds) / 2;
    let hedge = Hedge::at(0.95)
        .window(memory)
        .win_rate(WinRate::at_least(0.2).window(memory));
    let hedged = common(&hedged_fleet, memory).hedge(hedge).build()?;
    let plain = common(&plain_fleet, memory).build()?;

    if !run.json {
        println!("{}", Reading::head());
    }
    let mut summaries = Vec::new();
    let mut next = 0;
    for (number, phase) in (0..).zip(Phase::ALL) {
        hedged_fleet.enter(phase);
        plain_fleet.enter(phase);
        let length = Duration::from_secs(run.seconds);
        let calls = traffic::schedule(SEED + number, length, |_| RATE);
        let before = [hedged.measured(), plain.measured()];
        let (with, without, ()) = tokio::join!(
            traffic::offer(&hedged, next, &calls),
            traffic::offer(&plain, next, &calls),
            watch(run, &hedged, phase, number * run.seconds),
        );
        next += calls.len() as u64;
        summaries.push(Summary {
            phase,
            hedged: Side::new(&with?, reading::attempts(&before[0], &hedged.measured())),
            plain: Side::new(&without?, reading::attempts(&before[1], &plain.measured())),
        });
    }
    match run.json {
        true => println!("{}", summary::json(&summaries)),
        false => print!("{}", summary::table(&summaries)),
    }
    Ok(())
}

/// What both channels have in common.
fn common(fleet: &Fleet, memory: Duration) -> Builder {
    // The trip point is fixed at one half. By default it is three times the usual failure rate
    // of ten minutes, and this incident has no ten minutes behind it.
    let breaker = BreakerPolicy::default()
        .window(memory)
        .floor(0.5)
        .cool_down(memory / 4);
    HedgedChannel::builder()
        .endpoints(fleet.uris())
        .descriptors(script::probe::FILE_DESCRIPTOR_SET)
        .breaker(breaker)
}

/// Prints each second of a phase as it ends; `past` are those before it.
async fn watch(run: &Run, channel: &HedgedChannel, phase: Phase, past: u64) {
    let start = Instant::now();
    let mut before: Measured = channel.measured();
    for second in 1..=run.seconds {
        sleep_until(start + Duration::from_secs(second)).await;
        let now = channel.measured();
        let reading = Reading::between(phase, past + second, &before, &now);
        match run.json {
            true => println!("{}", reading.json()),
            false => println!("{}", reading.row()),
        }
        before = now;
    }
}
