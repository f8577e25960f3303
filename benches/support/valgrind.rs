//! What a tool of valgrind counts per call, in a process of its own.
//!
//! A run of N calls and one of 2N: the difference is N calls without start, connecting and warm-up.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::args::Outcome;

/// Numbers per call that `read` finds in what the tool says; `program` takes the number of calls
/// after `args`. `None` where valgrind is not installed.
pub(crate) fn per_call<const N: usize>(
    tool: &[&str],
    program: &Path,
    args: &[String],
    calls: usize,
    read: fn(&str) -> Option<[f64; N]>,
) -> Outcome<Option<[f64; N]>> {
    let start = |calls: usize| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(tool).arg(program).args(args);
        // The tool speaks on standard error.
        valgrind.stdout(Stdio::null()).stderr(Stdio::piped());
        valgrind.arg(calls.to_string()).spawn()
    };
    let Ok(once) = start(calls) else {
        return Ok(None);
    };
    // Both at once: other processes do not change what is counted.
    let twice = start(2 * calls)?;
    let (once, twice) = (counted(once, read)?, counted(twice, read)?);
    let mut each = [0.0; N];
    for (each, (once, twice)) in each.iter_mut().zip(once.into_iter().zip(twice)) {
        *each = (twice - once) / calls as f64;
    }
    Ok(Some(each))
}

fn counted<const N: usize>(
    process: Child,
    read: fn(&str) -> Option<[f64; N]>,
) -> Outcome<[f64; N]> {
    let output = process.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    match read(&text) {
        Some(counts) if output.status.success() => Ok(counts),
        _ => Err(format!("valgrind failed:\n{text}").into()),
    }
}

/// The number after `label` on the line that has it: `==123== Collected : 4,567`.
pub(crate) fn number(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    let digits = rest.split_whitespace().next()?;
    digits.replace(',', "").parse().ok()
}
