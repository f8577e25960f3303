//! The client's instructions per call, counted by callgrind in a process of their own.
//!
//! A run of N calls and one of 2N: the difference is N calls without start, connecting and warm-up.
//! Under valgrind a call takes some 50 times as long, so what runs by the clock weighs more than it
//! does: the threshold's refresh, once in 100 ms, is about 4,500 instructions of `hedgeable` here
//! and less than 100 at full speed.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
};

use crate::{Outcome, args::Calls, case::Case, in_process, runtime};

/// The N above.
const CALLS: usize = 1_500;

/// Calls before them: connections, buffers that grow, the estimate's first samples.
const WARM_UP: usize = 300;

/// Instructions per call of `case`, with the service in the same process where there are no
/// `servers`; `None` where there is no valgrind.
pub(crate) fn per_call(
    case: Case,
    servers: &[SocketAddr],
    in_flight: usize,
) -> Outcome<Option<f64>> {
    let Some(once) = count(case, servers, in_flight, CALLS)? else {
        return Ok(None);
    };
    let twice = count(case, servers, in_flight, 2 * CALLS)?;
    Ok(twice.map(|twice| (twice - once) / CALLS as f64))
}

fn count(
    case: Case,
    servers: &[SocketAddr],
    in_flight: usize,
    calls: usize,
) -> Outcome<Option<f64>> {
    let child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--calls", case.name(), &calls.to_string()])
        .arg(in_flight.to_string())
        .args(servers.iter().map(SocketAddr::to_string))
        .stderr(Stdio::piped())
        .output();
    let Ok(output) = child else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&output.stderr);
    // "==123== Collected : 456"
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse().ok());
    match collected {
        Some(count) if output.status.success() => Ok(Some(count)),
        _ => Err(format!("valgrind failed:\n{text}").into()),
    }
}

/// The work of the counted process.
pub(crate) fn make_calls(calls: &Calls) -> Outcome<()> {
    runtime()?.block_on(async {
        let client = match calls.servers.is_empty() {
            true => in_process::client(calls.case).await?,
            false => calls.case.client(&calls.servers)?,
        };
        client.drive(WARM_UP, calls.in_flight).await?;
        client.drive(calls.calls, calls.in_flight).await
    })
}
