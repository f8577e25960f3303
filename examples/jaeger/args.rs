//! The command line.

/// Where collectors listen for OTLP over gRPC.
const DEFAULT_ENDPOINT: &str = "http://localhost:4317";

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Sends traces of hedged, held-back, retried and failed calls to an OTLP collector, for example a
Jaeger, and prints their ids and what to look for in each.

Usage: cargo run --release --example jaeger -- [--endpoint URL]

  --endpoint URL   the collector's address for OTLP over gRPC; default http://localhost:4317
  --help           print this

Exits with an error if nothing at that address takes spans.
";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Args {
    Help,
    Run { endpoint: String },
}

/// Reads the arguments; an error says what is wrong.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut endpoint = DEFAULT_ENDPOINT.to_owned();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--endpoint" => endpoint = args.next().ok_or("--endpoint wants a URL")?,
            "--help" | "-h" => return Ok(Args::Help),
            _ => return Err(format!("unknown argument: {arg}")),
        }
    }
    Ok(Args::Run { endpoint })
}
