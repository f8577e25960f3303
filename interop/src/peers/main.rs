//! Drives a `HedgedChannel` against two servers of another gRPC implementation.
//!
//! `interop-peers PEER CASE COMMAND...`: `COMMAND` starts one server of the peer, `CASE` is the
//! name of a case or `all`. `interop/run` prepares the peer and calls this; `README.md` says what
//! a peer's server has to do.

mod cases;

use std::{error::Error, process::ExitCode};

use cases::CASES;
use interop::{Report, dials, official, probe};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(peer), Some(wanted)) = (arguments.next(), arguments.next()) else {
        return Err("usage: interop-peers PEER CASE|all COMMAND...".into());
    };
    let command: Vec<String> = arguments.collect();
    let chosen: Vec<&str> = CASES
        .iter()
        .copied()
        .filter(|case| wanted == "all" || wanted == *case)
        .collect();
    let official: Vec<&str> = official::CASES
        .iter()
        .copied()
        .filter(|case| wanted == "all" || wanted == *case)
        .collect();
    if chosen.is_empty() && official.is_empty() {
        let known = [official::CASES, CASES].concat().join(", ");
        return Err(format!("no case {wanted}; there are: {known}").into());
    }

    // For peers that read a descriptor set instead of generating code.
    let descriptors = std::env::temp_dir().join(format!("interop-{}.binpb", std::process::id()));
    std::fs::write(&descriptors, probe::FILE_DESCRIPTOR_SET)?;

    dials::count()?;
    let mut report = Report::new(&peer);
    let environment = [(
        "INTEROP_DESCRIPTORS",
        descriptors.to_str().ok_or("not a path of text")?,
    )];
    official::run(&official, &command, &environment, &mut report).await;
    cases::play(&chosen, &mut report, &command, &descriptors).await;
    std::fs::remove_file(&descriptors)?;
    Ok(report.close()?)
}
