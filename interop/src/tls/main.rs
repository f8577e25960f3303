//! Drives a `HedgedChannel` over TLS: right certificates, wrong ones, and none.
//!
//! `interop-tls CASE COMMAND...`: `COMMAND` starts a server of the Go peer, `CASE` is the name of a
//! case or `all`. All other servers are tonic's, in this process. Every certificate is made here,
//! by an authority of its own.

mod authority;
mod cases;
mod client;
mod go;
#[allow(dead_code, reason = "no script here draws a latency")]
#[path = "../../../examples/support/script.rs"]
mod script;
mod servers;

use std::{error::Error, process::ExitCode, time::Duration};

use cases::CASES;
use interop::{Mode, Report};

/// A case that hangs has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(wanted) = arguments.next() else {
        return Err("usage: interop-tls CASE|all COMMAND...".into());
    };
    let go: Vec<String> = arguments.collect();
    if wanted != "all" && !CASES.contains(&&*wanted) {
        return Err(format!("no case {wanted}; there are: {}", CASES.join(", ")).into());
    }

    let mut report = Report::new("tls");
    for case in CASES
        .iter()
        .filter(|case| wanted == "all" || wanted == **case)
    {
        for mode in Mode::ALL {
            let outcome = tokio::time::timeout(PATIENCE, cases::run(case, mode, &go))
                .await
                .unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()));
            report.add_in(case, mode, outcome);
        }
    }
    Ok(report.close()?)
}
