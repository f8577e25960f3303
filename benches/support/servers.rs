//! Three tonic servers that answer at once, in a process of their own.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use tokio::{net::TcpListener, runtime::Builder};
use tonic::transport::{Server, server::TcpIncoming};

use crate::{
    args::Outcome,
    at_once::{AtOnce, probe::probe_server::ProbeServer},
};

/// What a bench calls itself with to [`serve`].
pub(crate) const SERVE: &str = "--serve";

/// The servers' process. It ends with this.
pub(crate) struct Servers {
    pub(crate) addrs: Vec<SocketAddr>,
    process: Child,
}

impl Servers {
    pub(crate) fn start() -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--bench", SERVE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let addrs: Result<Vec<_>, _> = line.split_whitespace().map(str::parse).collect();
        Ok(Self {
            addrs: addrs?,
            process,
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The end of its stdin ends it; without waiting it would stay a zombie.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The process's work: prints the three addresses, and serves until stdin is closed. On one
/// thread, so that there is a core left for the client.
pub(crate) fn serve() -> Outcome<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut addrs = Vec::new();
        for _ in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addrs.push(listener.local_addr()?.to_string());
            let serving = Server::builder().add_service(ProbeServer::new(AtOnce::default()));
            // As `Server::serve` has it: otherwise an answer of two packets waits 40 ms for the
            // first one's acknowledgement.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            tokio::spawn(serving.serve_with_incoming(incoming));
        }
        println!("{}", addrs.join(" "));
        let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        closed.await??;
        Ok(())
    })
}
