//! What telemetry costs a call that is not hedged, over the crate built without its feature.
//! `cargo bench --bench telemetry [-- --json] [--rounds N]`
//!
//! The crate is built twice, so each build makes its calls in a process of its own
//! (`caller/`). They take turns in short rounds; each ratio is of one round. Where valgrind is
//! installed it counts instructions as well, of client and server together.

#[path = "../support/args.rs"]
mod args;
#[path = "../support/callgrind.rs"]
mod callgrind;
#[path = "../support/rounds.rs"]
mod rounds;
#[path = "../support/spread.rs"]
mod spread;
#[path = "../support/table.rs"]
mod table;
#[path = "../support/thousands.rs"]
mod thousands;
#[path = "../support/valgrind.rs"]
mod valgrind;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
};

use serde_json::json;

use args::{Args, Outcome};
use rounds::take_turns;
use spread::Spread;
use table::Table;
use thousands::thousands;

const HELP: &str = "\
Usage: cargo bench --bench telemetry -- [--json] [--rounds N]

  --json      print one JSON object instead of a table
  --rounds N  of each case (default 31)
";

const ROUNDS: usize = 31;

/// What is compared: its name, whether it has the feature, and the caller's mode.
const CASES: [(&str, bool, &str); 5] = [
    ("without the feature", false, "silent"),
    ("no provider", true, "silent"),
    ("spans, unsampled", true, "unsampled"),
    ("metrics", true, "metrics"),
    ("spans, sampled", true, "sampled"),
];

/// Calls of one round.
const CALLS: usize = 4_000;

/// Calls of the shorter of two counted runs: the longer has twice as many, and the difference is
/// without start and warm-up.
const COUNTED: usize = 2_000;

fn main() -> ExitCode {
    args::main("telemetry", HELP, parse, |(json, rounds)| {
        measure(json, rounds).map(|()| true)
    })
}

fn parse(args: &mut Args) -> Result<(bool, usize), String> {
    let rounds = args.value("--rounds")?.unwrap_or(ROUNDS);
    Ok((args.flag("--json"), rounds))
}

fn measure(json: bool, rounds: usize) -> Outcome<()> {
    let programs = [build(false)?, build(true)?];
    let program = |feature: bool| &programs[usize::from(feature)];
    let mut callers = Vec::new();
    for (_, feature, mode) in CASES {
        callers.push(Caller::start(program(feature), mode)?);
    }
    let costs = take_turns(
        callers.len(),
        |round| round < rounds,
        |case| callers[case].round(),
    )?;
    let mut counts = Vec::new();
    for (_, feature, mode) in CASES {
        let args = [mode.to_owned()];
        counts.push(callgrind::per_call(program(feature), &args, COUNTED)?);
    }
    let mut table = Table::new(["", "CPU ns/call", "ratio", "instructions", "ratio"]);
    let mut cases = Vec::new();
    for (((name, ..), cost), count) in CASES.into_iter().zip(&costs).zip(&counts) {
        let cpu = Spread::of(cost.iter().copied()).median;
        let cpu_ratio = Spread::of_ratios(cost, &costs[0]);
        let ratio = count.zip(counts[0]).map(|(count, base)| count / base);
        table.row([
            name.to_owned(),
            thousands(cpu),
            cpu_ratio.to_string(),
            count.map_or("no valgrind".to_owned(), thousands),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
        ]);
        cases.push(json!({
            "case": name,
            "cpu_ns_per_call": cpu,
            "cpu_ratio": cpu_ratio.json(),
            "instructions": count.map(f64::round),
            "instructions_ratio": ratio,
        }));
    }
    match json {
        true => println!("{}", json!({ "rounds": rounds, "cases": cases })),
        false => print!("{table}"),
    }
    Ok(())
}

/// The caller, built with the feature or without it, in a target folder for each, so that the next
/// run finds both.
fn build(feature: bool) -> Outcome<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root
        .join("target/telemetry")
        .join(if feature { "with" } else { "without" });
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "-p",
            "telemetry-caller",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(root);
    if feature {
        cargo.args(["--features", "telemetry"]);
    }
    if !cargo.status()?.success() {
        return Err("the caller could not be built".into());
    }
    Ok(target.join("release/telemetry-caller"))
}

struct Caller {
    process: Child,
    told: BufReader<ChildStdout>,
}

impl Caller {
    fn start(program: &Path, mode: &str) -> Outcome<Self> {
        let mut process = Command::new(program)
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = process.stdout.take().ok_or("no output")?;
        let mut caller = Self {
            process,
            told: BufReader::new(told),
        };
        caller.line()?;
        Ok(caller)
    }

    /// Nanoseconds of CPU per call.
    fn round(&mut self) -> Outcome<f64> {
        let stdin = self.process.stdin.as_mut().ok_or("no input")?;
        writeln!(stdin, "{CALLS}")?;
        Ok(self.line()?.trim().parse()?)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.told.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // The end of its input ends it; without waiting it would stay a zombie.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
