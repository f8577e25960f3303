//! The command line.

use crate::read::{Source, Unit};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
What hedging would give and cost an RPC whose latencies were recorded.

Usage: cargo run --release --example tune -- FILE --load L [--quantile Q] [--column NAME|N]
       [--unit ns|us|ms|s] [--chart OUT.svg] [--json]

  FILE           latencies of answered calls, one replica's answer each: one a line, a table (CSV,
                 tabs, semicolons) or an HDR histogram log; - is the standard input
  --load L       calls that may be sent in addition, as a share of all: above 0, at most 0.5
  --quantile Q   what is to be brought down, at least 0.5 and below 1 (default 0.99)
  --column C     of a table, by name or by number from 1; of a log, a tag
  --unit U       of numbers without one (default: what a column's name ends with, what a log's head
                 tells, else ms); 12ms, 340us and 1.2s are understood anyway
  --chart FILE   draw the quantile against the extra load, as SVG
  --json         print one JSON object instead of the table
  --help         print this

JSON: {file, format, unit, values, exact, calls, load, target_quantile, clumping, policies: [{policy,
rust, delay_ms, p50_ms, p95_ms, p99_ms, p999_ms, target_ms, extra_load, hedge_wins}], advice: {verdict
(hedge, little or nothing), chosen (an index of policies), rust, delay_ms, unhedged_ms, target_ms,
extra_load, text: [...]}}. delay_ms is null where no hedge is due, clumping where slow calls don't follow
each other.
";

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Args {
    Help,
    Run(Options),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) source: Source,
    /// Extra calls, as a share of all.
    pub(crate) load: f64,
    /// The target.
    pub(crate) quantile: f64,
    /// Where to write it.
    pub(crate) chart: Option<String>,
    pub(crate) json: bool,
}

/// Reads the arguments; an error says what is wrong.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let (mut file, mut load, mut quantile) = (None, None, 0.99);
    let (mut column, mut unit, mut chart, mut json) = (None, None, None, false);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(Args::Help),
            "--load" => {
                load = Some(number(&arg, &value()?, "in (0, 0.5]", |it| {
                    it > 0.0 && it <= 0.5
                })?)
            }
            "--quantile" => {
                quantile = number(&arg, &value()?, "in [0.5, 1)", |it| {
                    (0.5..1.0).contains(&it)
                })?
            }
            "--column" => column = Some(value()?),
            "--unit" => {
                unit = Some(
                    value()?
                        .parse::<Unit>()
                        .map_err(|wrong| format!("--unit: {wrong}"))?,
                )
            }
            "--chart" => chart = Some(value()?),
            "--json" => json = true,
            _ if arg.starts_with("--") => return Err(format!("unknown argument: {arg}")),
            _ if file.is_some() => return Err(format!("one file at a time: {arg}")),
            _ => file = Some(arg),
        }
    }
    let source = Source {
        file: file.ok_or("which file?")?,
        column,
        unit,
    };
    Ok(Args::Run(Options {
        source,
        load: load.ok_or("how much --load?")?,
        quantile,
        chart,
        json,
    }))
}

fn number(
    name: &str,
    text: &str,
    bounds: &str,
    holds: impl Fn(f64) -> bool,
) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| holds(*number));
    number.ok_or_else(|| format!("{name}: {text} is not {bounds}"))
}
