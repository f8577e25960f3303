//! The command line.

/// What `--help` prints.
pub(crate) const HELP: &str = "\
The same slow service through tonic's Channel, and through a HedgedChannel.

Usage: cargo run --release --example quickstart -- [--json] [--otlp URL]

  --json       print one JSON object instead of a table
  --otlp URL   also send the hedged side's spans to the OTLP collector (gRPC) at this address, as
               the service quickstart
  --help       print this

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
    Run(Options),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) output: Output,
    /// The collector's address.
    pub(crate) otlp: Option<String>,
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
}

/// Reads the arguments; an error says what is wrong.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut options = Options {
        output: Output::Text,
        otlp: None,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.output = Output::Json,
            "--otlp" => options.otlp = Some(args.next().ok_or("--otlp wants a URL")?),
            "--help" | "-h" => return Ok(Args::Help),
            _ => return Err(format!("unknown argument: {arg}")),
        }
    }
    Ok(Args::Run(options))
}
