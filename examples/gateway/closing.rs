//! How a server starts and ends: at an address that an error names, and with those whom it still
//! answers.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, sync::watch};

/// The longest that answers under way are waited for: a whole one is written in less.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn bind(argument: &str, addr: SocketAddr) -> io::Result<TcpListener> {
    let wrong =
        |error: io::Error| io::Error::new(error.kind(), format!("{argument}: {addr}: {error}"));
    TcpListener::bind(addr).await.map_err(wrong)
}

/// Asks a server to end, and waits until it has.
#[derive(Debug)]
pub(crate) struct Closing(watch::Sender<bool>);

impl Default for Closing {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Closing {
    /// Ends when the server is to end.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut asked = self.0.subscribe();
        async move {
            // An error is the end of whoever asks.
            let _ended = asked.wait_for(|asked| *asked).await;
        }
    }

    /// Kept by the server for as long as it runs.
    pub(crate) fn open(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Whether it has ended in time.
    pub(crate) async fn close(&self) -> bool {
        self.0.send_replace(true);
        let closed = tokio::time::timeout(PATIENCE, self.0.closed()).await;
        closed.is_ok()
    }
}
