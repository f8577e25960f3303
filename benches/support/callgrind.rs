//! Instructions per call, of all of a process in user space.

use std::path::Path;

use crate::{
    args::Outcome,
    valgrind::{self, number},
};

/// `None` where valgrind is not installed.
pub(crate) fn per_call(program: &Path, args: &[String], calls: usize) -> Outcome<Option<f64>> {
    let tool = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let read = |text: &str| Some([number(text, "Collected :")?]);
    let count = valgrind::per_call(&tool, program, args, calls, read)?;
    Ok(count.map(|[instructions]| instructions))
}
