//! A line for each check, and the count of them at the end, as `interop/run` reads it.

use std::{
    error::Error,
    io::{self, Write as _},
    process::ExitCode,
};

use crate::Mode;

/// What a check came to; an error says what was observed instead.
pub type Outcome = Result<(), Box<dyn Error>>;

/// The checks of one program so far.
#[derive(Debug)]
pub struct Report {
    about: String,
    passed: u32,
    failed: u32,
}

impl Report {
    /// `about` begins each line.
    pub fn new(about: &str) -> Self {
        Self {
            about: about.to_owned(),
            passed: 0,
            failed: 0,
        }
    }

    /// Prints the line of one case in one mode: `PEER CASE MODE ok`, which is a cell of the table.
    pub fn add_in(&mut self, case: &str, mode: Mode, outcome: Outcome) {
        self.add(&format!("{case:<32} {:<7}", mode.name()), outcome);
    }

    /// Prints the line of a case that has no meaning in a mode: it is neither passed nor failed.
    pub fn impossible(&self, case: &str, mode: Mode, reason: &str) {
        let about = &self.about;
        println!(
            "{about:<8} {case:<32} {:<7} impossible: {reason}",
            mode.name()
        );
    }

    /// Prints the line of one check.
    pub fn add(&mut self, check: &str, outcome: Outcome) {
        let about = &self.about;
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("{about:<8} {check:<40} ok");
            }
            Err(error) => {
                self.failed += 1;
                println!("{about:<8} {check:<40} FAILED: {error}");
            }
        }
    }

    /// Prints the last line.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn close(self) -> io::Result<ExitCode> {
        println!("{} passed, {} failed", self.passed, self.failed);
        io::stdout().flush()?;
        Ok(match self.failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}
