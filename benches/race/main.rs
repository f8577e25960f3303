//! The race of policies on the latency models: what each brings for which load.
//!
//! ```text
//! cargo bench --bench race
//! cargo bench --bench race -- --json
//! cargo bench --bench race -- --real
//! ```
//!
//! The models and the simulated world are the package `tonic-hedge-models`; every policy meets the
//! same luck there. `--real` lets the same models answer on real tonic servers, and fails if
//! what real calls see is not what the simulation says.

mod args;
mod real;
mod search;
mod simulated;
mod table;

#[path = "../../examples/support/quantile.rs"]
mod quantile;
#[path = "../../examples/support/replica.rs"]
mod replica;
#[path = "../../examples/support/script.rs"]
#[expect(dead_code, reason = "the models draw")]
mod script;
#[path = "../../examples/support/traffic.rs"]
#[expect(dead_code, reason = "the simulation schedules")]
mod traffic;

use std::{error::Error, process::ExitCode};

use args::Args;

fn main() -> ExitCode {
    let result = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Race(race)) => simulated::all(race).map(|cases| {
            match race.json {
                true => println!("{}", table::as_json(&cases)),
                false => table::print(race, &cases),
            }
            true
        }),
        Ok(Args::Real(args)) => real::all(args),
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            Ok(true)
        }
        // `cargo test --all-targets` starts benches too.
        Ok(Args::NotABench) => {
            println!("race runs only under `cargo bench --bench race`");
            Ok(true)
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;
