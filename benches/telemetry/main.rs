//! What telemetry costs a call that is not hedged, over the crate built without its feature.
//! `cargo bench --bench telemetry [-- --rounds N]`
//!
//! The crate is built twice, so each build makes its calls in a process of its own
//! (`caller/`). They take turns in short rounds; each ratio is of one round. Where valgrind is
//! installed it counts instructions as well, of client and server together.

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` starts benches too.
    if !arguments.iter().any(|it| it == "--bench") {
        println!("telemetry measures only under `cargo bench --bench telemetry`");
        return ExitCode::SUCCESS;
    }
    let at = arguments.iter().position(|it| it == "--rounds");
    let rounds = at.map_or(Some(31), |at| arguments.get(at + 1)?.parse().ok());
    let Some(rounds) = rounds else {
        eprintln!("--rounds takes a number");
        return ExitCode::from(2);
    };
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: usize) -> Outcome<()> {
    let programs = [build(false)?, build(true)?];
    let program = |feature: bool| &programs[usize::from(feature)];
    let mut callers = Vec::new();
    for (_, feature, mode) in CASES {
        callers.push(Caller::start(program(feature), mode)?);
    }
    let mut costs = vec![Vec::new(); CASES.len()];
    for round in 0..rounds {
        // Who goes first changes, since the first finds other caches than the last.
        for turn in 0..callers.len() {
            let index = (round + turn) % callers.len();
            costs[index].push(callers[index].round()?);
        }
    }
    println!(
        "{:<22}{:>14}{:>10}{:>16}{:>10}",
        "", "CPU ns/call", "ratio", "instructions", "ratio"
    );
    let base = program(false);
    let counted = counted(base, CASES[0].2)?;
    for ((name, feature, mode), cost) in CASES.into_iter().zip(&costs) {
        let ratios = cost.iter().zip(&costs[0]).map(|(cost, base)| cost / base);
        print!(
            "{name:<22}{:>14.0}{:>10.3}",
            median(cost.clone()),
            median(ratios.collect())
        );
        match (counted, self::counted(program(feature), mode)?) {
            (Some(base), Some(count)) => println!("{count:>16.0}{:>10.3}", count / base),
            _ => println!("{:>16}", "no valgrind"),
        }
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

/// Instructions per call; `None` where there is no valgrind.
fn counted(program: &Path, mode: &str) -> Outcome<Option<f64>> {
    let mut counts = [0.0; 2];
    for (count, calls) in counts.iter_mut().zip([COUNTED, 2 * COUNTED]) {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args([mode, &calls.to_string()])
            .output();
        let Ok(output) = output else { return Ok(None) };
        let text = String::from_utf8_lossy(&output.stderr);
        // "==123== Collected : 456"
        let collected = text.lines().find_map(|line| line.split_once("Collected :"));
        *count = collected
            .ok_or("valgrind counted nothing")?
            .1
            .trim()
            .parse()?;
    }
    Ok(Some((counts[1] - counts[0]) / COUNTED as f64))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
