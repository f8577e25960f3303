//! What a call costs over loopback TCP that is not hedged, over tonic's own
//! `Channel::balance_list`: to three real tonic servers in a process of their own.
//!
//! ```text
//! cargo bench --bench loopback
//! cargo bench --bench loopback -- --json
//! cargo bench --bench loopback -- --only counts
//! cargo bench --bench loopback -- --rounds 5 --in-flight 64 --bytes 100
//! ```
//!
//! Times are measured side by side in one run, in rounds that take turns; a ratio is of one
//! round, and the CPU time is the client's alone. Where valgrind is installed, it counts instructions
//! and allocations: repeatable where times are not.

mod case;
mod counts;
mod report;
mod times;

#[path = "../support/args.rs"]
mod args;
#[path = "../support/at_once.rs"]
mod at_once;
#[path = "../support/callgrind.rs"]
mod callgrind;
#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/cpu.rs"]
mod cpu;
#[path = "../support/dhat.rs"]
mod dhat;
#[path = "../support/frozen.rs"]
mod frozen;
#[path = "../support/rounds.rs"]
mod rounds;
#[path = "../support/servers.rs"]
mod servers;
#[path = "../support/spread.rs"]
mod spread;
#[path = "../support/table.rs"]
mod table;
#[path = "../support/thousands.rs"]
mod thousands;
#[path = "../support/tower_hedge.rs"]
mod tower_hedge;
#[path = "../support/valgrind.rs"]
mod valgrind;

use std::process::ExitCode;

use serde_json::{Value, json};

use args::{Args, Outcome};
use case::Case;
use counts::{Counts, Make};
use servers::Servers;
use times::Load;

const HELP: &str = "\
Usage: cargo bench --bench loopback -- [--json] [--rounds N] [--only times | counts]
                                       [--in-flight N] [--bytes N] [--case NAME]

  --json         print one JSON object instead of tables
  --rounds N     of each load (default 15; fewer where they take too long)
  --only WHAT    times: CPU, throughput, latency; counts: instructions, allocations
  --in-flight N  only so many calls at a time (default 1, 16, 64, 256)
  --bytes N      only messages of this size (default 100, 10000, 1000000)
  --case NAME    only this one, and plain
";

/// An odd number has a median of its own.
const ROUNDS: usize = 15;

const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

const BYTES: [usize; 3] = [100, 10_000, 1_000_000];

enum Asked {
    Measure(Measure),
    /// As a child: serve until stdin is closed.
    Serve,
    /// As a child under valgrind: make calls.
    Make(Make),
}

struct Measure {
    json: bool,
    rounds: usize,
    times: bool,
    counts: bool,
    loads: Vec<Load>,
    cases: Vec<Case>,
}

fn main() -> ExitCode {
    args::main("loopback", HELP, parse, |asked| {
        match asked {
            Asked::Measure(measure) => measure.run(),
            Asked::Serve => servers::serve(),
            Asked::Make(make) => make.make(),
        }
        .map(|()| true)
    })
}

fn parse(args: &mut Args) -> Result<Asked, String> {
    if args.flag(servers::SERVE) {
        return Ok(Asked::Serve);
    }
    let case: Option<String> = args.value("--case")?;
    let case = case.map(|name| Case::named(&name)).transpose()?;
    if let (Some(case), Some(calls)) = (case, args.value("--make")?) {
        let servers: String = args.value("--servers")?.unwrap_or_default();
        let servers: Result<_, _> = servers.split(',').map(str::parse).collect();
        return Ok(Asked::Make(Make {
            case,
            servers: servers.map_err(|_| "--servers takes addresses")?,
            calls,
        }));
    }
    let only: Option<String> = args.value("--only")?;
    if let Some(wrong) = only
        .as_deref()
        .filter(|it| !["times", "counts"].contains(it))
    {
        return Err(format!("--only cannot be {wrong:?}"));
    }
    let in_flight = args.value("--in-flight")?;
    let bytes = args.value("--bytes")?;
    let mut loads = Vec::new();
    for bytes in bytes.map_or(BYTES.to_vec(), |it| vec![it]) {
        for in_flight in in_flight.map_or(IN_FLIGHT.to_vec(), |it| vec![it]) {
            loads.push(Load { in_flight, bytes });
        }
    }
    Ok(Asked::Measure(Measure {
        json: args.flag("--json"),
        rounds: args.value("--rounds")?.unwrap_or(ROUNDS),
        times: only.as_deref() != Some("counts"),
        counts: only.as_deref() != Some("times"),
        loads,
        cases: Case::ALL
            .into_iter()
            .filter(|it| *it == Case::Plain || case.is_none_or(|case| case == *it))
            .collect(),
    }))
}

impl Measure {
    fn run(&self) -> Outcome<()> {
        let servers = Servers::start()?;
        let mut json = json!({ "counts": Value::Null, "times": [] });
        if self.counts {
            let counted = self.counted(&servers)?;
            if let Some(counted) = &counted {
                json["counts"] = report::counts_json(counted);
            }
            if !self.json {
                match counted {
                    Some(counted) => println!("{}", report::counts_table(&counted)),
                    None => println!("valgrind is not installed: nothing is counted\n"),
                }
            }
        }
        let mut times = Vec::new();
        for load in self.loads.iter().filter(|_| self.times) {
            let compared = times::compare(&self.cases, &servers.addrs, self.rounds, *load)?;
            if !self.json {
                println!("{}", report::times_table(*load, &compared));
            }
            times.push(report::times_json(*load, &compared));
        }
        json["times"] = Value::Array(times);
        if self.json {
            println!("{json}");
        }
        Ok(())
    }

    fn counted(&self, servers: &Servers) -> Outcome<Option<Vec<(Case, Counts)>>> {
        let mut counted = Vec::new();
        for case in &self.cases {
            let Some(counts) = Counts::of(*case, &servers.addrs)? else {
                return Ok(None);
            };
            counted.push((*case, counts));
        }
        Ok(Some(counted))
    }
}
