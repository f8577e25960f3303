//! The command line.

/// What `--help` prints.
pub(crate) const HELP: &str = "\
An incident, seen through channel.measured().

Usage: cargo run --release --example incident -- [--json] [--seconds N]

  --json        one JSON object a line instead of a table
  --seconds N   of each of the six phases, 4 to 600 (default 12)
  --help        print this

JSON: each second {phase, second, threshold_ms, hedge_rate, win_rate, error_rate, breaker,
allowance, budget, held_by}; what was not measured is null. Rates are of that second but for
error_rate, which is the breaker's; a hedge started in the second before may make a win_rate
over 1. held_by is null where no hedge was due and held. At last {\"summary\": [...]}, for each phase {phase, calls,
upstream_calls, p50_ms, p99_ms, errors, without_hedging: {calls, ...}}.
";

/// Shorter, and the estimates have no time to follow.
const LEAST_SECONDS: u64 = 4;

const MOST_SECONDS: u64 = 600;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Args {
    Help,
    Run(Run),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) json: bool,
    /// Of each phase.
    pub(crate) seconds: u64,
}

/// Reads the arguments; the error says what is wrong with the first that is.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut run = Run {
        json: false,
        seconds: 12,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => run.json = true,
            "--seconds" => {
                let seconds = args.next().and_then(|value| value.parse().ok());
                run.seconds = seconds
                    .filter(|seconds| (LEAST_SECONDS..=MOST_SECONDS).contains(seconds))
                    .ok_or_else(|| {
                        format!("--seconds takes a number in [{LEAST_SECONDS}, {MOST_SECONDS}]")
                    })?;
            }
            "--help" | "-h" => return Ok(Args::Help),
            _ => return Err(format!("unknown argument: {arg}")),
        }
    }
    Ok(Args::Run(run))
}
