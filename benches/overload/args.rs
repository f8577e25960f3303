//! The command line.

pub(crate) const HELP: &str = "\
Overload with hedging and without.

Usage: cargo bench --bench overload -- [--json] [--seconds N] [--rounds N]

  --json        print one JSON object instead of a table
  --seconds N   of each overload; a ramp takes twice as long (default 15)
  --rounds N    of each scenario (default 2)
";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) json: bool,
    pub(crate) seconds: u64,
    pub(crate) rounds: u64,
}

impl Args {
    /// `None` asks for help.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut parsed = Self {
            json: false,
            seconds: 15,
            rounds: 2,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut number = || {
                let number = args.next().and_then(|value| value.parse().ok());
                number
                    .filter(|number| *number > 0)
                    .ok_or_else(|| format!("{arg} takes a number greater than 0"))
            };
            match arg.as_str() {
                "--json" => parsed.json = true,
                "--seconds" => parsed.seconds = number()?,
                "--rounds" => parsed.rounds = number()?,
                "--help" | "-h" => return Ok(None),
                // cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument: {arg}")),
            }
        }
        Ok(Some(parsed))
    }
}
