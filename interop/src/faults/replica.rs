//! A tonic replica that counts what arrives, by call, and can hang up on all its clients.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use interop::probe::{
    ProbeReply, ProbeRequest,
    probe_server::{Probe, ProbeServer},
};
use parking_lot::Mutex;
use tokio::{
    io::{DuplexStream, copy_bidirectional, duplex},
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc},
    task::JoinHandle,
    time::sleep,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming, codegen::BoxStream, transport::Server};

/// What a call takes: longer than [`Mode::Forced`](interop::Mode::Forced) waits, shorter than any
/// threshold that is measured.
const WORK: Duration = Duration::from_millis(3);

/// Between a connection and the server that has it.
const BUFFER: usize = 64 << 10;

/// How often each call has arrived, by its id, at whichever replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals(Arc<Mutex<BTreeMap<String, u64>>>);

impl Arrivals {
    /// Of all calls whose ids begin so: how often all of them arrived, and the most of one.
    pub(crate) fn of(&self, prefix: &str) -> (u64, u64) {
        let arrivals = self.0.lock();
        let such = || arrivals.iter().filter(|(id, _)| id.starts_with(prefix));
        let most = such().map(|(_, count)| *count).max();
        (such().map(|(_, count)| count).sum(), most.unwrap_or(0))
    }

    fn add(&self, id: &str) {
        *self.0.lock().entry(id.to_owned()).or_default() += 1;
    }
}

/// One replica, until it is dropped.
pub(crate) struct Replica {
    pub(crate) port: u16,
    hang_up: broadcast::Sender<()>,
    tasks: [JoinHandle<()>; 2],
}

impl Replica {
    pub(crate) async fn start(arrivals: Arrivals) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let hang_up = broadcast::Sender::new(1);
        let (accepted, incoming) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(accept(listener, accepted, hang_up.clone()));
        let serving = tokio::spawn(async move {
            let incoming = UnboundedReceiverStream::new(incoming);
            let server = Server::builder().add_service(ProbeServer::new(Counting(arrivals)));
            if let Err(error) = server.serve_with_incoming(incoming).await {
                eprintln!("replica {port}: {error}");
            }
        });
        Ok(Self {
            port,
            hang_up,
            tasks: [accepting, serving],
        })
    }

    /// Ends all connections, in the middle of whatever they do.
    pub(crate) fn hang_up(&self) {
        // An error says that there is none.
        let _connections = self.hang_up.send(());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

type Accepted = Result<DuplexStream, std::io::Error>;

async fn accept(
    listener: TcpListener,
    accepted: mpsc::UnboundedSender<Accepted>,
    hang_up: broadcast::Sender<()>,
) {
    while let Ok((socket, _)) = listener.accept().await {
        let (near, far) = duplex(BUFFER);
        tokio::spawn(pass(socket, far, hang_up.subscribe()));
        if accepted.send(Ok(near)).is_err() {
            return;
        }
    }
}

async fn pass(mut socket: TcpStream, mut server: DuplexStream, mut until: broadcast::Receiver<()>) {
    tokio::select! {
        // A connection that breaks is what is looked for here.
        _broken = copy_bidirectional(&mut socket, &mut server) => {}
        _told = until.recv() => {}
    }
}

struct Counting(Arrivals);

impl Counting {
    async fn answer(&self, request: Request<ProbeRequest>) -> Answer {
        let request = request.into_inner();
        self.0.add(&request.id);
        sleep(WORK).await;
        Ok(Response::new(ProbeReply {
            id: request.id,
            payload: vec![7; request.response_bytes as usize],
            ..ProbeReply::default()
        }))
    }
}

type Answer = Result<Response<ProbeReply>, Status>;

#[tonic::async_trait]
impl Probe for Counting {
    type WatchStream = BoxStream<ProbeReply>;
    type ChatStream = BoxStream<ProbeReply>;

    async fn get(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn put(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn keyed(&self, _: Request<ProbeRequest>) -> Answer {
        Err(not_called())
    }
    async fn vetoed(&self, _: Request<ProbeRequest>) -> Answer {
        Err(not_called())
    }
    async fn off(&self, _: Request<ProbeRequest>) -> Answer {
        Err(not_called())
    }
    async fn tuned(&self, _: Request<ProbeRequest>) -> Answer {
        Err(not_called())
    }
    async fn watch(&self, _: Request<ProbeRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(not_called())
    }
    async fn upload(&self, _: Request<Streaming<ProbeRequest>>) -> Answer {
        Err(not_called())
    }
    async fn chat(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Err(not_called())
    }
}

fn not_called() -> Status {
    Status::unimplemented("no fault is shown by it")
}
