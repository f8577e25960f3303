//! A replica: a real tonic server on a loopback port, fast nine times of ten.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::sleep};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status, Streaming, codegen::BoxStream, metadata::MetadataMap,
    transport::Server,
};

use probe::{
    ProbeReply, ProbeRequest,
    probe_server::{Probe, ProbeServer},
};

/// The generated code of `proto/hedge/testing/v1/probe.proto`.
#[allow(missing_docs, unreachable_pub)]
pub(crate) mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

/// Changes every draw below; no result depends on a particular one.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A running replica. Dropped, it is killed with its connections.
pub(crate) struct Replica {
    addr: SocketAddr,
    counts: Arc<watch::Sender<Counts>>,
    server: JoinHandle<()>,
}

/// What replicas saw of the calls that reached them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls that reached the handler.
    pub(crate) calls: u64,
    /// Handlers that were dropped before their end: their streams were reset.
    pub(crate) cancelled: u64,
    running: u64,
}

impl Replica {
    /// Starts three, each on a port of its own.
    pub(crate) async fn start_three() -> io::Result<Vec<Self>> {
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(Self::start().await?);
        }
        Ok(replicas)
    }

    async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let counts = Arc::new(watch::Sender::new(Counts::default()));
        let service = ProbeServer::new(Slow {
            counts: Arc::clone(&counts),
        });
        let server = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            let serving = Server::builder().add_service(service);
            if let Err(error) = serving.serve_with_incoming(incoming).await {
                eprintln!("replica {addr}: {error}");
            }
        });
        Ok(Self {
            addr,
            counts,
            server,
        })
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

/// Waits until no handler is at work, then takes what all replicas have counted.
pub(crate) async fn take_counts(replicas: &[Replica]) -> Counts {
    let mut sum = Counts::default();
    for replica in replicas {
        let mut changes = replica.counts.subscribe();
        // An error says that the sender is gone; the replica holds it.
        let _ = changes.wait_for(|counts| counts.running == 0).await;
        let counts = replica.counts.send_replace(Counts::default());
        sum.calls += counts.calls;
        sum.cancelled += counts.cancelled;
    }
    sum
}

/// The service: it answers late.
struct Slow {
    counts: Arc<watch::Sender<Counts>>,
}

impl Slow {
    async fn answer(&self, request: Request<ProbeRequest>) -> Answer {
        let mut handling = Handling::start(Arc::clone(&self.counts));
        let latency = match request.get_ref().delay_ms {
            0 => latency(&request.get_ref().id, attempts_before(request.metadata())),
            asked => Duration::from_millis(asked.into()),
        };
        sleep(latency).await;
        handling.ended = true;
        Ok(Response::new(ProbeReply {
            id: request.into_inner().id,
            ..ProbeReply::default()
        }))
    }
}

/// The latency of one attempt, drawn independently of all others.
///
/// The seed is in the call's own name, so that a call draws the same latency for its original
/// whichever channel makes it: the two sides differ by what they do, not by their luck.
fn latency(id: &str, attempts_before: u64) -> Duration {
    let call = id.bytes().fold(SEED, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut draw = fastrand::Rng::with_seed(call.wrapping_add(attempts_before));
    let micros = match draw.u32(0..10) {
        0 => draw.u64(250_000..580_000),
        _ => draw.u64(20_000..44_000),
    };
    Duration::from_micros(micros)
}

/// The header that tells a server which attempt of its call it has got; absent on the first.
fn attempts_before(metadata: &MetadataMap) -> u64 {
    metadata
        .get("grpc-previous-rpc-attempts")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}

/// Counts a handler in, and out when it is dropped.
struct Handling {
    counts: Arc<watch::Sender<Counts>>,
    ended: bool,
}

impl Handling {
    fn start(counts: Arc<watch::Sender<Counts>>) -> Self {
        counts.send_modify(|counts| {
            counts.calls += 1;
            counts.running += 1;
        });
        Self {
            counts,
            ended: false,
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.counts.send_modify(|counts| {
            counts.running -= 1;
            counts.cancelled += u64::from(!self.ended);
        });
    }
}

type Answer = Result<Response<ProbeReply>, Status>;

#[tonic::async_trait]
impl Probe for Slow {
    type WatchStream = BoxStream<ProbeReply>;
    type ChatStream = BoxStream<ProbeReply>;

    async fn get(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn put(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn keyed(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn vetoed(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn off(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn tuned(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn watch(&self, _: Request<ProbeRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not in this example"))
    }
    async fn upload(&self, _: Request<Streaming<ProbeRequest>>) -> Answer {
        Err(Status::unimplemented("not in this example"))
    }
    async fn chat(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Err(Status::unimplemented("not in this example"))
    }
}
