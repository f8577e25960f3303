//! A line for each check, and the count of them at the end, as `interop/run` reads it.

use std::{
    error::Error,
    io::{self, Write as _},
    process::ExitCode,
};

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
