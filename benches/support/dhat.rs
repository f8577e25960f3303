//! Allocations per call, of all of a process, by its own allocator: one that counts would cost
//! instructions, and those are counted too.

use std::path::Path;

use crate::{
    args::Outcome,
    valgrind::{self, number},
};

/// What is allocated. A block that grows is allocated again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) blocks: f64,
    pub(crate) bytes: f64,
}

/// `None` where valgrind is not installed.
pub(crate) fn per_call(
    program: &Path,
    args: &[String],
    calls: usize,
) -> Outcome<Option<Allocated>> {
    let tool = ["--tool=dhat", "--dhat-out-file=/dev/null"];
    // "==123== Total:     4,567 bytes in 89 blocks"
    let read = |text: &str| {
        let (_, total) = text.split_once("Total:")?;
        Some([number(text, "Total:")?, number(total, " bytes in ")?])
    };
    let counts = valgrind::per_call(&tool, program, args, calls, read)?;
    Ok(counts.map(|[bytes, blocks]| Allocated { blocks, bytes }))
}
