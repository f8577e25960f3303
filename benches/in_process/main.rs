//! What a call costs with an immediate service in the same process, in instructions and
//! allocations: no socket, no other process, no clock.
//!
//! ```text
//! cargo bench --bench in_process
//! cargo bench --bench in_process -- --json
//! cargo bench --bench in_process -- --check     against the committed baseline
//! cargo bench --bench in_process -- --bless     writes the baseline
//! ```
//!
//! A `HedgedChannel` sends through tonic's channels, and those speak HTTP/2. So the counts are of
//! client and server over a pipe of memory, and the wrapper's own share is what is left when those of
//! tonic's channel over the same pipe are taken away. valgrind counts, one call at a time.

mod baseline;
mod case;
mod pipe;
mod report;

#[path = "../support/args.rs"]
mod args;
#[path = "../support/at_once.rs"]
mod at_once;
#[path = "../support/callgrind.rs"]
mod callgrind;
#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/dhat.rs"]
mod dhat;
#[path = "../support/frozen.rs"]
mod frozen;
#[path = "../support/table.rs"]
mod table;
#[path = "../support/thousands.rs"]
mod thousands;
#[path = "../support/tower_hedge.rs"]
mod tower_hedge;
#[path = "../support/valgrind.rs"]
mod valgrind;

use std::process::ExitCode;

use args::{Args, Outcome};
use case::Case;

const HELP: &str = "\
Usage: cargo bench --bench in_process -- [--json] [--case NAME] [--check | --bless]

  --json       print one JSON object instead of a table
  --case NAME  only this one, and what it is measured against
  --check      fail if a count is more than 3 % over the baseline
  --bless      write the counts into the baseline
";

enum Asked {
    Measure(Measure),
    /// As a child under valgrind: make calls.
    Make(Case, usize),
}

struct Measure {
    json: bool,
    case: Option<Case>,
    check: bool,
    bless: bool,
}

fn main() -> ExitCode {
    args::main("in_process", HELP, parse, |asked| match asked {
        Asked::Measure(measure) => run(&measure),
        Asked::Make(case, calls) => case.make(calls).map(|()| true),
    })
}

fn parse(args: &mut Args) -> Result<Asked, String> {
    let case: Option<String> = args.value("--case")?;
    let case = case.map(|name| Case::named(&name)).transpose()?;
    if let (Some(case), Some(calls)) = (case, args.value("--make")?) {
        return Ok(Asked::Make(case, calls));
    }
    Ok(Asked::Measure(Measure {
        json: args.flag("--json"),
        case,
        check: args.flag("--check"),
        bless: args.flag("--bless"),
    }))
}

fn run(measure: &Measure) -> Outcome<bool> {
    let wanted = |case: &Case| {
        measure
            .case
            .is_none_or(|only| *case == only || *case == only.base())
    };
    let mut counted = Vec::new();
    for case in Case::ALL.into_iter().filter(wanted) {
        counted.push((case, Counts::of(case)?));
    }
    if measure.json {
        println!("{}", report::json(&counted));
    } else {
        print!("{}", report::table(&counted));
    }
    let counts = report::counts(&counted);
    if measure.bless {
        baseline::bless(&counts)?;
    }
    match measure.check {
        true => baseline::check(&counts),
        false => Ok(true),
    }
}

/// Calls whose instructions are counted. Which connection a call takes is chance, and with it what
/// the allocator finds: counts with three connections differ by up to 1 % from run to run, and not
/// by less if there are more calls. With one they differ by 3 instructions.
const CALLS: usize = 1_000;

/// Calls whose allocations are counted: they are the same for each.
const ALLOCATING: usize = 200;

/// Per call.
#[derive(Clone, Copy, Debug)]
struct Counts {
    instructions: f64,
    allocations: f64,
    bytes: f64,
}

impl Counts {
    fn of(case: Case) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let args = ["--bench", "--case", case.name(), "--make"].map(String::from);
        let instructions = callgrind::per_call(&program, &args, CALLS)?;
        let allocated = dhat::per_call(&program, &args, ALLOCATING)?;
        match (instructions, allocated) {
            (Some(instructions), Some(allocated)) => Ok(Self {
                instructions,
                allocations: allocated.blocks,
                bytes: allocated.bytes,
            }),
            _ => Err("valgrind is not installed, and nothing else counts".into()),
        }
    }

    fn minus(self, base: Self) -> Self {
        Self {
            instructions: self.instructions - base.instructions,
            allocations: self.allocations - base.allocations,
            bytes: self.bytes - base.bytes,
        }
    }
}
