//! The command line of a bench, and how it ends: 0, 1 when it fails, 2 when nobody understands it.

use std::{collections::VecDeque, error::Error, process::ExitCode, str::FromStr};

/// Goes from thread to thread, as tasks do.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

pub(crate) type Outcome<T> = Result<T, BoxError>;

/// What is left of the command line.
pub(crate) struct Args(VecDeque<String>);

/// Reads the command line by `parse`, and runs what it asks for. `run` returns whether all that is
/// demanded of the figures holds.
///
/// `cargo test --all-targets` starts benches too, without cargo's `--bench`: nothing is measured then.
pub(crate) fn main<T>(
    name: &str,
    help: &str,
    parse: impl FnOnce(&mut Args) -> Result<T, String>,
    run: impl FnOnce(T) -> Outcome<bool>,
) -> ExitCode {
    let mut args = Args(std::env::args().skip(1).collect());
    if args.flag("--help") {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    if !args.flag("--bench") {
        println!("{name} measures only under `cargo bench --bench {name}`");
        return ExitCode::SUCCESS;
    }
    let asked = parse(&mut args).and_then(|asked| args.nothing_is_left(asked));
    match asked.map(run) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{help}");
            ExitCode::from(2)
        }
    }
}

impl Args {
    /// Whether `name` is there. Takes it.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|it| it == name);
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    /// The value after `name`, where that is there. Takes both.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(at) = self.0.iter().position(|it| it == name) else {
            return Ok(None);
        };
        self.0.remove(at);
        let value = self.0.remove(at).unwrap_or_default();
        let parsed = value.parse().map(Some);
        parsed.map_err(|_| format!("{name} cannot be {value:?}"))
    }

    fn nothing_is_left<T>(self, asked: T) -> Result<T, String> {
        match self.0.front() {
            None => Ok(asked),
            Some(unknown) => Err(format!("unknown argument: {unknown}")),
        }
    }
}
