//! What grows with endpoints, methods and threads: the time of a pick, of a look-up and of what all
//! calls share, and the memory of an endpoint and of a method.
//!
//! ```text
//! cargo bench --bench scaling
//! cargo bench --bench scaling -- --json
//! ```
//!
//! Times are CPU time of the process, which other processes stretch less than they do the clock's.
//! Each is measured in rounds in which all sizes take turns; a ratio is within a round.

mod endpoints;
mod methods;
mod report;
mod service;
mod threads;
mod timing;

use std::{error::Error, process::ExitCode};

use peak_alloc::PeakAlloc;
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds of each measurement: an odd number has a median of its own.
const ROUNDS: usize = 15;

fn main() -> ExitCode {
    let mut json = false;
    let mut bench = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--json" => json = true,
            // What cargo adds; `cargo test --all-targets` starts benches too, without it.
            "--bench" => bench = true,
            _ => {
                eprintln!(
                    "unknown argument: {arg}\n\nUsage: cargo bench --bench scaling -- [--json]"
                );
                return ExitCode::from(2);
            }
        }
    }
    if !bench {
        println!("scaling measures only under `cargo bench --bench scaling`");
        return ExitCode::SUCCESS;
    }
    match all() {
        Ok(rows) => report::print(&rows, json),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn all() -> Outcome<Vec<report::Row>> {
    let mut rows = endpoints::times()?;
    rows.extend(endpoints::memory()?);
    rows.extend(methods::times()?);
    rows.extend(methods::memory()?);
    rows.extend(threads::times()?);
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
