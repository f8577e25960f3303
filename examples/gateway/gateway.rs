//! A running gateway: its replicas, its channel to them, and its gRPC front.

use std::{error::Error, future::Future, net::SocketAddr, sync::Arc};

use opentelemetry_sdk::metrics::SdkMeterProvider;
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{Server, server::TcpIncoming};
use tonic_hedge::{HedgedChannel, InheritLayer, Lanes};

use crate::{
    api::chat_server::ChatServer,
    closing::{Closing, bind},
    fleet::Fleet,
    front::Front,
    memory::Memory,
    policy::{self, Kind},
};

/// Streams of one client at once: lanes say what is too many, not the connection.
const STREAMS: u32 = 4_096;

/// Dropped, it is killed with its connections and its replicas.
pub(crate) struct Gateway {
    pub(crate) fleet: Fleet,
    pub(crate) channel: HedgedChannel,
    /// `None` for a plain one.
    pub(crate) lanes: Option<Lanes>,
    pub(crate) front: Front,
    addr: SocketAddr,
    closing: Closing,
    server: JoinHandle<()>,
}

impl Gateway {
    /// Starts one that serves gRPC at `addr`; port 0 is any that is free. A replica is connected
    /// then.
    pub(crate) async fn start(
        kind: Kind,
        addr: SocketAddr,
        memory: &Memory,
        meters: Arc<SdkMeterProvider>,
    ) -> Result<Self, Box<dyn Error>> {
        let fleet = Fleet::start().await?;
        let channel = policy::channel(kind, &fleet, memory, meters.clone())?;
        let lanes = match kind {
            Kind::Plain => None,
            Kind::Whole => Some(policy::lanes(memory, meters)?),
        };
        let front = Front::new(channel.clone(), Arc::clone(&fleet.tokens));
        let listener = bind("--grpc", addr).await?;
        let addr = listener.local_addr()?;
        channel.connect().await?;
        let closing = Closing::default();
        let serving = serve(front.clone(), lanes.clone(), listener, closing.asked());
        let open = closing.open();
        let server = tokio::spawn(async move {
            let _open = open;
            if let Err(error) = serving.await {
                eprintln!("gateway {addr}: {error}");
            }
        });
        Ok(Self {
            fleet,
            channel,
            lanes,
            front,
            addr,
            closing,
            server,
        })
    }

    /// Takes no more calls, and says whether those that are under way have ended after a while.
    pub(crate) async fn close(&self) -> bool {
        self.closing.close().await
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    front: Front,
    lanes: Option<Lanes>,
    listener: TcpListener,
    closing: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().max_concurrent_streams(STREAMS);
    let service = ChatServer::new(front);
    // Lanes outermost: what is shed costs nothing further in. Inside, the calls to the replicas are
    // as critical as the call that causes them: what is batch here is never hedged.
    match lanes {
        Some(lanes) => {
            let server = server.layer(lanes.server_layer());
            let mut server = server.layer(InheritLayer::new());
            server
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, closing)
                .await
        }
        None => {
            let mut server = server.layer(InheritLayer::new());
            server
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, closing)
                .await
        }
    }
}
