//! The command line.

/// What `--help` prints.
pub(crate) const HELP: &str = "\
The same slow service through tonic's Channel, and through a HedgedChannel.

Usage: cargo run --release --example quickstart -- [--json]

  --json   print one JSON object instead of a table
  --help   print this

JSON: {\"plain\": {...}, \"hedged\": {...}}. In both: p50_ms, p95_ms, p99_ms, p999_ms, calls,
upstream_calls (calls that reached a replica), cancelled_upstream (those of them that were
cancelled before they had answered), errors. In hedged also: hedges, hedge_wins,
same_endpoint_hedges (hedges that met the endpoint of an earlier attempt of their call), and
detached (losers that were run out, to spare their connection a reset).
";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Args {
    Help,
    Run(Output),
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
}

/// Reads the arguments; an error is the first unknown one.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut output = Output::Text;
    for arg in args {
        match arg.as_str() {
            "--json" => output = Output::Json,
            "--help" | "-h" => return Ok(Args::Help),
            _ => return Err(arg),
        }
    }
    Ok(Args::Run(output))
}
