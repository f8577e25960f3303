//! Servers that speak TLS.

use std::{error::Error, time::Duration};

use interop::Mode;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Status,
    transport::{Certificate, Server, ServerTlsConfig},
};

use crate::{
    authority::Issued,
    script::{self, Arrival, Script},
};

/// One server of tonic's. Dropped, it is gone.
pub(crate) struct Replica {
    port: u16,
    server: JoinHandle<()>,
}

impl Replica {
    /// With this certificate. It asks its clients for one by `clients`, if there is one.
    pub(crate) async fn start(
        certificate: &Issued,
        clients: Option<Certificate>,
        slowness: Duration,
    ) -> Result<Self, Box<dyn Error>> {
        let mut tls = ServerTlsConfig::new().identity(certificate.identity());
        if let Some(clients) = clients {
            tls = tls.client_ca_root(clients);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let router = Server::builder()
            .tls_config(tls)?
            .add_service(script::service(Scripted(slowness)));
        let server = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            if let Err(error) = router.serve_with_incoming(incoming).await {
                eprintln!("server: {error}");
            }
        });
        Ok(Self { port, server })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What the replica of this index adds to each of its answers.
pub(crate) fn slowness(mode: Mode, index: usize) -> Duration {
    match (mode, index) {
        (Mode::Slow, 1) => Mode::SLOWNESS,
        _ => Duration::ZERO,
    }
}

struct Scripted(Duration);

impl Script for Scripted {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        tokio::time::sleep(self.0).await;
        if is_held(arrival.call) && arrival.before == 0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Whether the original of this call is never answered.
pub(crate) fn is_held(call: u64) -> bool {
    call % 2 == 1
}
