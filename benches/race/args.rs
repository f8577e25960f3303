//! The command line.

pub(crate) const HELP: &str = "\
Policies of hedging on models of replicas.

Usage: cargo bench --bench race -- [--json] [--calls N] [--seeds N]
       cargo bench --bench race -- --real [--json] [--seconds N]

  --json        print one JSON object instead of tables
  --calls N     of each simulation (default 20000)
  --seeds N     of each model (default 5)
  --real        compare the simulation with real servers: the exit status is 1 if they differ
  --seconds N   of each model on real servers, the first 5 of which do not count (default 30)
";

/// What to do.
#[derive(Debug)]
pub(crate) enum Args {
    Race(Race),
    Real(Real),
    Help,
    NotABench,
}

/// The race on the simulated models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    pub(crate) json: bool,
    pub(crate) calls: usize,
    pub(crate) seeds: u64,
}

/// The comparison with real servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Real {
    pub(crate) json: bool,
    pub(crate) seconds: u64,
}

/// Reads the arguments; an error says what makes no sense.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let (mut bench, mut real, mut json) = (false, false, false);
    let (mut calls, mut seeds, mut seconds) = (20_000, 5, 30);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut number = |least: u64| {
            let number = args.next().and_then(|value| value.parse().ok());
            number
                .filter(|number| *number >= least)
                .ok_or_else(|| format!("{arg} takes a number from {least} on"))
        };
        match arg.as_str() {
            // cargo's own.
            "--bench" => bench = true,
            "--json" => json = true,
            "--real" => real = true,
            // What comes after the warm-up of 30 s at the slowest model's rate.
            "--calls" => calls = number(10_000)? as usize,
            "--seeds" => seeds = number(1)?,
            "--seconds" => seconds = number(10)?,
            "--help" | "-h" => return Ok(Args::Help),
            _ => return Err(format!("unknown argument: {arg}")),
        }
    }
    Ok(match (bench, real) {
        (false, _) => Args::NotABench,
        (true, false) => Args::Race(Race { json, calls, seeds }),
        (true, true) => Args::Real(Real { json, seconds }),
    })
}
