//! What grows with endpoints, methods and threads: the time of a pick, of a look-up and of what all
//! calls share, the memory of an endpoint and of a method, and what a plan costs.
//!
//! ```text
//! cargo bench --bench scaling
//! cargo bench --bench scaling -- --json
//! ```
//!
//! Times are CPU time of the process, which other processes stretch less than they do the clock's.
//! Each is measured in rounds in which all sizes take turns; a ratio is within a round.

#[path = "../support/args.rs"]
#[expect(dead_code, reason = "no argument here has a value")]
mod args;
#[path = "../support/cpu.rs"]
mod cpu;
mod endpoints;
mod methods;
mod planner;
mod report;
mod service;
#[path = "../support/spread.rs"]
mod spread;
mod threads;
mod timing;

use std::process::ExitCode;

use peak_alloc::PeakAlloc;
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

use args::Outcome;

const HELP: &str = "\
Usage: cargo bench --bench scaling -- [--json]

  --json  print JSON instead of a table
";

/// Rounds of each measurement: an odd number has a median of its own.
const ROUNDS: usize = 15;

fn main() -> ExitCode {
    args::main("scaling", HELP, |args| Ok(args.flag("--json")), run)
}

fn run(json: bool) -> Outcome<bool> {
    report::print(&all()?, json);
    Ok(true)
}

fn all() -> Outcome<Vec<report::Row>> {
    let mut rows = endpoints::times()?;
    rows.extend(endpoints::memory()?);
    rows.extend(methods::times()?);
    rows.extend(methods::memory()?);
    rows.extend(threads::times()?);
    rows.extend(planner::times()?);
    Ok(rows)
}

/// One thread: nobody else's CPU time is counted.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The bytes on the heap.
fn bytes() -> f64 {
    MEMORY.current_usage() as f64
}
