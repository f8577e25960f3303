//! A replica: a real tonic server on a loopback port.

use std::{convert::Infallible, io, net::SocketAddr};

use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    transport::{Server, server::TcpIncoming},
};

/// A running replica. Dropped, it is killed with its connections.
pub(crate) struct Replica {
    addr: SocketAddr,
    server: JoinHandle<()>,
}

impl Replica {
    /// Starts one that serves this, for example a script's `service`.
    pub(crate) async fn start<S>(service: S) -> io::Result<Self>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // As `Server::serve` does: else an answer's last frames wait for the client's delayed
            // acknowledgement, 40 ms.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let serving = Server::builder().add_service(service);
            if let Err(error) = serving.serve_with_incoming(incoming).await {
                eprintln!("replica {addr}: {error}");
            }
        });
        Ok(Self { addr, server })
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.server.abort();
    }
}
