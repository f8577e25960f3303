//! Calls three tonic replicas through a real Toxiproxy: each fault alone, before one replica and
//! before all.
//!
//! `interop-faults FAULT|all`; `interop/run faults` prepares what it needs and calls this. It prints
//! the table of `docs/faults.md`, whose statements it checks.

mod caller;
mod checks;
mod documented;
mod fault;
mod replica;
mod round;
mod standing;
mod toxiproxy;

use std::{env, error::Error, process::ExitCode, time::Duration};

use interop::{Mode, Report};

use documented::Document;
use fault::{Extent, Fault};
use round::World;

/// A round takes some seconds, most of them for the breaker to close.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = env::args()
        .nth(1)
        .ok_or("usage: interop-faults FAULT|all")?;
    let chosen = Fault::ALL
        .iter()
        .filter(|it| wanted == "all" || wanted == it.name());
    let chosen: Vec<_> = chosen.copied().collect();
    if chosen.is_empty() {
        let names: Vec<_> = Fault::ALL.iter().map(|it| it.name()).collect();
        return Err(format!("no fault {wanted}; there are: {}", names.join(", ")).into());
    }
    let document = Document::read()?;
    let world = World::start().await?;
    let mut report = Report::new("faults");
    let mut rows = Vec::new();
    for fault in chosen {
        for extent in Extent::BOTH {
            let case = format!("{}_{}", fault.name(), extent.name());
            let round = tokio::time::timeout(PATIENCE, world.round(fault, extent)).await;
            let round = round.unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()));
            let round = match round {
                Ok(round) => round,
                Err(error) => {
                    report.add(&case, Err(error));
                    // What it left behind would spoil the next.
                    world.clear().await?;
                    continue;
                }
            };
            for row in &round.rows {
                report.add_in(&case, row.mode, checks::holds(row, &document));
            }
            report.impossible(&case, Mode::Slow, "the fault is what is slow");
            report.add(&format!("{case} leaves nothing behind"), round.left);
            rows.extend(round.rows);
        }
    }
    world.stop().await?;
    println!("\n{}", documented::HEAD);
    for row in &rows {
        println!("{row}");
    }
    println!();
    Ok(report.close()?)
}
