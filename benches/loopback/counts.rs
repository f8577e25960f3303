//! The client's instructions and allocations per call, one call in flight: the same from run to run,
//! where times are not.

use std::{net::SocketAddr, sync::mpsc};

use crate::{
    args::Outcome,
    callgrind,
    case::Case,
    dhat::{self, Allocated},
    frozen,
    times::Load,
};

/// Calls whose instructions are counted.
const CALLS: usize = 1_000;

/// Calls whose allocations are counted: they hardly differ.
const ALLOCATING: usize = 200;

/// Calls before them: connections, buffers that grow, the first samples.
const WARM_UP: usize = 200;

const LOAD: Load = Load {
    in_flight: 1,
    bytes: 0,
};

/// Per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocated: Allocated,
}

/// What the process whose calls are counted is told.
pub(crate) struct Make {
    pub(crate) case: Case,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) calls: usize,
}

impl Counts {
    /// `None` where valgrind is not installed.
    pub(crate) fn of(case: Case, servers: &[SocketAddr]) -> Outcome<Option<Self>> {
        let program = std::env::current_exe()?;
        let servers: Vec<_> = servers.iter().map(SocketAddr::to_string).collect();
        let servers = servers.join(",");
        let args = [
            "--bench",
            "--case",
            case.name(),
            "--servers",
            &servers,
            "--make",
        ];
        let args = args.map(String::from);
        let instructions = callgrind::per_call(&program, &args, CALLS)?;
        let allocated = dhat::per_call(&program, &args, ALLOCATING)?;
        Ok(instructions
            .zip(allocated)
            .map(|(instructions, allocated)| Self {
                instructions,
                allocated,
            }))
    }
}

impl Make {
    /// The work of the counted process.
    pub(crate) fn make(&self) -> Outcome<()> {
        let request = LOAD.request();
        // Time that stands still moves on when a runtime has nothing to do but to wait for a
        // timer, and that it has with every answer of another process. Not while
        // something blocks.
        let (end, ended) = mpsc::channel::<()>();
        frozen::runtime()?.block_on(async {
            let _blocking = tokio::task::spawn_blocking(move || ended.recv());
            let mut callers = self.case.callers(&self.servers, LOAD.in_flight)?;
            callers.make(WARM_UP, &request, None).await?;
            frozen::refresh().await;
            callers.make(WARM_UP, &request, None).await?;
            callers.make(self.calls, &request, None).await?;
            drop(end);
            Ok(())
        })
    }
}
