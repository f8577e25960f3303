//! A small LLM gateway: replicas in two regions, hedged first tokens, lanes, and a live page.
//!
//! ```text
//! cargo run --release --example gateway                        # serves until it is stopped
//! cargo run --release --example gateway -- --replay            # an incident, and what it came to
//! ```
//!
//! docs/gateway.md explains it. All runs in this process, on loopback ports: six replicas that
//! write tokens, the gateway before them, its page, and in a replay its callers.

mod api;
mod args;
mod closing;
mod fleet;
mod front;
mod gateway;
mod load;
mod memory;
mod metrics;
mod model;
mod policy;
mod recent;
mod region;
mod remote;
mod replay;
mod scale;
mod stats;
mod tokens;
mod web;

#[path = "../../benches/support/cpu.rs"]
mod cpu;
#[path = "../support/quantile.rs"]
mod quantile;
#[path = "../support/replica.rs"]
mod replica;

use std::{error::Error, process::ExitCode, sync::Arc};

use tokio::signal::unix::{SignalKind, signal};

use args::{Args, Serve};
use gateway::Gateway;
use memory::Memory;
use metrics::Metrics;
use policy::Kind;
use replay::plan::Plan;
use web::Web;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Serve(asked)) => serve(&asked).await,
        Ok(Args::Load(asked)) => load::load(&asked, stopped()).await,
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            Ok(true)
        }
        Err(wrong) => {
            eprintln!("{wrong}; --help says what there is");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether a replay went as it must; without one, whether it could start.
async fn serve(asked: &Serve) -> Result<bool, Box<dyn Error>> {
    let metrics = Metrics::new()?;
    let learned = asked.learned.as_deref();
    let memory = learned.map(Memory::open).transpose()?.unwrap_or_default();
    let gateway = Gateway::start(Kind::Whole, asked.grpc, &memory, metrics.provider()).await?;
    let gateway = Arc::new(gateway);
    let phase = web::Phase::default();
    let (shown, told) = (Arc::clone(&gateway), Arc::clone(&phase));
    let web = Web::start(shown, metrics.clone(), told, asked.web).await?;
    let addresses = addresses(&gateway, &web);
    match asked.json {
        true => eprint!("{addresses}"),
        false => print!("{addresses}"),
    }
    let mut holds = true;
    if asked.replay {
        let any = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let plain =
            Gateway::start(Kind::Plain, any, &Memory::default(), metrics.provider()).await?;
        let plan = Plan::document();
        let told = Arc::clone(&phase);
        let outcome = replay::replay(&plan, Arc::new(plain), Arc::clone(&gateway), told).await?;
        *phase.lock() = None;
        match asked.json {
            true => println!("{}", outcome.json()),
            false => print!("\n{}", outcome.text()),
        }
        holds = outcome.holds();
    }
    if asked.stay {
        stopped().await?;
        let closed = tokio::join!(web.close(), gateway.close());
        if closed != (true, true) {
            eprintln!("some were still being answered");
        }
        if let Some(path) = learned {
            let wrong = |error| format!("--learned {}: {error}", path.display());
            Memory::write(&gateway, path).map_err(wrong)?;
        }
    }
    Ok(holds)
}

/// Until somebody stops it: at its terminal, or as service managers do.
async fn stopped() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}

fn addresses(gateway: &Gateway, web: &Web) -> String {
    let mut text = format!("page     {}/\n", web.uri());
    text += &format!("gRPC     {}   gateway.v1.Chat\n", gateway.uri());
    for (name, uri) in gateway.fleet.addresses() {
        text += &format!("replica  {uri}   {name}\n");
    }
    text
}

#[cfg(test)]
mod tests;
