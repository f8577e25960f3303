//! What hedging would give and cost an RPC, from latencies that were recorded of it.
//!
//! ```text
//! cargo run --release --example tune -- examples/tune/sample.csv --load 0.12 --chart tune.svg
//! ```
//!
//! The recorded latencies meet a range of policies: the library's own race, window and planner, under
//! virtual time. It prints what each comes to and which to take.

mod advice;
mod args;
mod axis;
mod chart;
mod latencies;
mod outcome;
mod policy;
mod read;
mod replay;
mod report;
mod units;

use std::{fs, process::ExitCode};

use advice::{Advice, Asked};
use args::{Args, Options};
use policy::Policy;
use replay::Replay;
use report::Report;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Run(options)) => options,
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match tune(&options) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what is to be printed.
fn tune(options: &Options) -> Result<String, String> {
    let recorded = read::read(&options.source)?;
    let asked = Asked {
        load: options.load,
        quantile: options.quantile,
    };
    let policies = Policy::all(&recorded.latencies, asked.load, asked.quantile);
    let replay = Replay::new(recorded.latencies.values());
    let outcomes = replay.run(&policies);
    let advice = Advice::new(asked, &recorded.latencies, &outcomes);
    let report = Report {
        source: &options.source,
        recorded: &recorded,
        asked,
        calls: replay.calls(),
        outcomes: &outcomes,
        advice: &advice,
    };
    if let Some(path) = &options.chart {
        fs::write(path, chart::svg(&report)).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(match options.json {
        true => format!("{}\n", report.json()),
        false => report.text(),
    })
}

#[cfg(test)]
mod tests;
