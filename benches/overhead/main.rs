//! What a call that is not hedged costs over tonic's own `Channel::balance_list`.
//!
//! ```text
//! cargo bench --bench overhead
//! cargo bench --bench overhead -- --json
//! ```
//!
//! CPU time and throughput are measured side by side in one run, in short rounds that take turns,
//! since the machine's mood changes more from minute to minute than the cases differ. The
//! servers run in a process of their own, so that the CPU time is the client's alone. Where
//! valgrind is installed, it counts instructions, also of an immediate service in the same process:
//! repeatable where times are not.

mod args;
mod at_once;
mod case;
mod in_process;
mod instructions;
mod report;
mod rounds;
mod server;

use std::{error::Error, process::ExitCode};

use tokio::runtime::{Builder, Runtime};

use args::Args;

fn main() -> ExitCode {
    let result = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Measure(measure)) => report::all(&measure),
        Ok(Args::Serve) => server::serve(),
        Ok(Args::Calls(calls)) => instructions::make_calls(&calls),
        // `cargo test --all-targets` starts benches too.
        Ok(Args::NotABench) => {
            println!("overhead measures only under `cargo bench --bench overhead`");
            Ok(())
        }
        Err(unknown) => {
            eprintln!("unknown argument: {unknown}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One thread: the CPU time holds no spinning of idle workers.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
