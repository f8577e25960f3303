//! The command line: the user's, and that of the processes which the bench starts of itself.

use std::net::SocketAddr;

use crate::case::Case;

pub(crate) const HELP: &str = "\
Usage: cargo bench --bench overhead -- [--json] [--rounds N] [--only-instructions]
";

/// What to do.
pub(crate) enum Args {
    Measure(Measure),
    /// As a child: serve until stdin is closed.
    Serve,
    /// As a child under valgrind: make calls.
    Calls(Calls),
    NotABench,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    pub(crate) json: bool,
    pub(crate) rounds: usize,
    pub(crate) times: bool,
}

/// Calls of one case.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) case: Case,
    pub(crate) calls: usize,
    pub(crate) in_flight: usize,
    pub(crate) servers: Vec<SocketAddr>,
}

/// Rounds of each case: an odd number has a median of its own.
const ROUNDS: usize = 15;

/// Reads the arguments; an error is the first that makes no sense.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut args = args.into_iter();
    let mut bench = false;
    let mut measure = Measure {
        json: false,
        rounds: ROUNDS,
        times: true,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // What cargo adds.
            "--bench" => bench = true,
            "--json" => measure.json = true,
            "--only-instructions" => measure.times = false,
            "--rounds" => {
                let value = args.next().unwrap_or_default();
                measure.rounds = value.parse().map_err(|_| format!("{arg} {value}"))?;
            }
            "--serve" => return Ok(Args::Serve),
            "--calls" => return calls(args).map(Args::Calls).ok_or(arg),
            _ => return Err(arg),
        }
    }
    match bench {
        true => Ok(Args::Measure(measure)),
        false => Ok(Args::NotABench),
    }
}

fn calls(mut args: impl Iterator<Item = String>) -> Option<Calls> {
    Some(Calls {
        case: Case::named(&args.next()?)?,
        calls: args.next()?.parse().ok()?,
        in_flight: args.next()?.parse().ok()?,
        servers: args.map(|addr| addr.parse().ok()).collect::<Option<_>>()?,
    })
}
