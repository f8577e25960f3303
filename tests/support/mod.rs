//! Real tonic replicas on loopback ports that do what a test's script says, and tell what they saw.
//!
//! Nothing here sleeps to wait for something: a script holds its answer until the test
//! releases it ([`Latch`]), and a test waits for an event ([`Seen::until`]).

#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used
)]

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap, transport::Server};

pub mod compiled;
mod fleet;
pub mod proxy;
pub mod raw;
pub mod wire;

pub mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

pub use fleet::{Fleet, connected, settled, until_measured};

use self::wire::{Rewrite, unchanged};
pub use probe::{
    ProbeReply, ProbeRequest,
    probe_client::ProbeClient,
    probe_server::{Probe, ProbeServer},
};

/// Longer than anything here takes; only a broken test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A call as it reached a replica.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub replica: String,
    pub method: &'static str,
    pub metadata: MetadataMap,
    pub request: ProbeRequest,
    /// 0 for the first call that this replica saw.
    pub index: usize,
}

impl Arrival {
    /// An OK that names the replica and repeats the request's id.
    pub fn ok(&self) -> Answer {
        Ok(Response::new(ProbeReply {
            replica: self.replica.clone(),
            id: self.request.id.clone(),
            payload: vec![7; self.request.response_bytes as usize],
            previous_attempts: self.previous(),
        }))
    }

    /// Attempts of its call before it: 0 is the original.
    pub fn previous(&self) -> u32 {
        let value = self.metadata.get("grpc-previous-rpc-attempts");
        value.map_or(0, |value| value.to_str().unwrap().parse().unwrap())
    }
}

pub type Answer = Result<Response<ProbeReply>, Status>;
type Reacting = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a replica saw of the calls that reached it.
#[derive(Debug, Default)]
pub struct Seen {
    arrivals: Mutex<Vec<Arrival>>,
    running: AtomicUsize,
    finished: AtomicUsize,
    cancelled: AtomicUsize,
    changed: Notify,
}

impl Seen {
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().clone()
    }

    /// The attempts of one call.
    pub fn of(&self, id: &str) -> Vec<Arrival> {
        let mut arrivals = self.arrivals();
        arrivals.retain(|arrival| arrival.request.id == id);
        arrivals
    }

    /// Calls that reached the handler.
    pub fn calls(&self) -> usize {
        self.arrivals.lock().len()
    }

    /// Forgets the calls, so that a long run keeps no record of each.
    pub fn forget(&self) {
        *self.arrivals.lock() = Vec::new();
    }

    /// Handlers that ran to their end.
    pub fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    /// Handlers whose future was dropped: the server saw the cancellation.
    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Handlers at work.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Waits until `holds`.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!(
                "{what}: {} calls, {} running, {} finished, {} cancelled",
                self.calls(),
                self.running(),
                self.finished(),
                self.cancelled()
            );
        }
    }
}

/// Dropped with its handler: says whether that had ended.
struct Guard {
    seen: Arc<Seen>,
    ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.seen.running.fetch_sub(1, Ordering::SeqCst);
        let count = match self.ended {
            true => &self.seen.finished,
            false => &self.seen.cancelled,
        };
        count.fetch_add(1, Ordering::SeqCst);
        self.seen.changed.notify_waiters();
    }
}

/// Holds handlers back until it is opened.
#[derive(Clone, Debug)]
pub struct Latch(tokio::sync::watch::Sender<bool>);

impl Latch {
    pub fn closed() -> Self {
        Self(tokio::sync::watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn passed(&self) {
        let mut receiver = self.0.subscribe();
        receiver.wait_for(|open| *open).await.unwrap();
    }
}

/// A real tonic server with a script. Dropping it kills it with its connections.
pub struct Replica {
    pub name: String,
    pub addr: SocketAddr,
    pub seen: Arc<Seen>,
    server: JoinHandle<()>,
}

impl Replica {
    /// Starts one that reacts to each call by `script`.
    pub async fn start<F, R>(name: &str, script: F) -> Self
    where
        F: Fn(Arrival) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(name, listener, Server::builder(), script)
    }

    /// On a listener, and with a server, of the test's own.
    pub fn serve<F, R>(name: &str, listener: TcpListener, server: Server, script: F) -> Self
    where
        F: Fn(Arrival) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::serve_seen(name, listener, server, Arc::default(), unchanged(), script)
    }

    fn serve_seen<F, R>(
        name: &str,
        listener: TcpListener,
        mut server: Server,
        seen: Arc<Seen>,
        rewrite: Rewrite,
        script: F,
    ) -> Self
    where
        F: Fn(Arrival) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let addr = listener.local_addr().unwrap();
        let service = Scripted {
            name: name.to_owned(),
            seen: Arc::clone(&seen),
            script: Arc::new(move |arrival| Box::pin(script(arrival))),
        };
        let service = ProbeServer::new(service)
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .send_compressed(tonic::codec::CompressionEncoding::Gzip)
            .max_decoding_message_size(64 << 20)
            .max_encoding_message_size(64 << 20);
        let service = wire::Rewriting::new(service, rewrite);
        let incoming = TcpListenerStream::new(listener);
        let server = tokio::spawn(async move {
            let served = server.add_service(service).serve_with_incoming(incoming);
            served.await.unwrap();
        });
        Self {
            name: name.to_owned(),
            addr,
            seen,
            server,
        }
    }

    /// One that answers at once.
    pub async fn fast(name: &str) -> Self {
        Self::start(name, |arrival| async move { arrival.ok() }).await
    }

    /// One that never answers.
    pub async fn stuck(name: &str) -> Self {
        Self::start(name, |_| std::future::pending()).await
    }

    /// One whose every answer is a status.
    pub async fn failing(name: &str, status: Status) -> Self {
        Self::start(name, move |_| {
            let status = status.clone();
            async move { Err(status) }
        })
        .await
    }

    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A replica's service, for a server of the test's own.
pub fn scripted<F, R>(name: &str, seen: Arc<Seen>, script: F) -> ProbeServer<impl Probe>
where
    F: Fn(Arrival) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    ProbeServer::new(Scripted {
        name: name.to_owned(),
        seen,
        script: Arc::new(move |arrival| Box::pin(script(arrival))),
    })
}

struct Scripted {
    name: String,
    seen: Arc<Seen>,
    script: Arc<dyn Fn(Arrival) -> Reacting + Send + Sync>,
}

impl Scripted {
    async fn react(&self, method: &'static str, request: Request<ProbeRequest>) -> Answer {
        let arrival = {
            let mut arrivals = self.seen.arrivals.lock();
            let arrival = Arrival {
                replica: self.name.clone(),
                method,
                metadata: request.metadata().clone(),
                request: request.into_inner(),
                index: arrivals.len(),
            };
            arrivals.push(arrival.clone());
            arrival
        };
        self.seen.running.fetch_add(1, Ordering::SeqCst);
        self.seen.changed.notify_waiters();
        let mut guard = Guard {
            seen: Arc::clone(&self.seen),
            ended: false,
        };
        let answer = (self.script)(arrival).await;
        guard.ended = true;
        answer
    }
}

type Replies = Pin<Box<dyn tokio_stream::Stream<Item = Result<ProbeReply, Status>> + Send>>;

#[tonic::async_trait]
impl Probe for Scripted {
    type WatchStream = Replies;
    type ChatStream = Replies;

    async fn get(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Get", request).await
    }
    async fn put(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Put", request).await
    }
    async fn keyed(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Keyed", request).await
    }
    async fn vetoed(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Vetoed", request).await
    }
    async fn off(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Off", request).await
    }
    async fn tuned(&self, request: Request<ProbeRequest>) -> Answer {
        self.react("Tuned", request).await
    }

    /// As many copies of the script's answer as the request asks for.
    async fn watch(&self, request: Request<ProbeRequest>) -> Result<Response<Replies>, Status> {
        let messages = request.get_ref().messages as usize;
        let slow = request.get_ref().only_replica == self.name;
        let pause = slow.then(|| Duration::from_millis(request.get_ref().delay_ms.into()));
        let reply = self.react("Watch", request).await?.into_inner();
        let replies = std::iter::repeat_n(Ok(reply), messages);
        let Some(pause) = pause else {
            return Ok(Response::new(Box::pin(tokio_stream::iter(replies))));
        };
        // The head goes out at once; the replica that is named takes its time for each message.
        self.seen.running.fetch_add(1, Ordering::SeqCst);
        let guard = Guard {
            seen: Arc::clone(&self.seen),
            ended: false,
        };
        let state = (guard, replies);
        let replies =
            futures_util::stream::unfold(state, move |(mut guard, mut replies)| async move {
                tokio::time::sleep(pause).await;
                match replies.next() {
                    Some(reply) => Some((reply, (guard, replies))),
                    None => {
                        guard.ended = true;
                        drop(guard);
                        None
                    }
                }
            });
        Ok(Response::new(Box::pin(replies)))
    }

    /// The script's answer to the last message.
    async fn upload(&self, request: Request<Streaming<ProbeRequest>>) -> Answer {
        let (metadata, extensions, mut messages) = request.into_parts();
        let mut last = ProbeRequest::default();
        while let Some(message) = messages.message().await? {
            last = message;
        }
        self.react("Upload", Request::from_parts(metadata, extensions, last))
            .await
    }

    /// The script's answer to each message.
    async fn chat(
        &self,
        request: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Replies>, Status> {
        let (metadata, _, mut messages) = request.into_parts();
        let this = Scripted {
            name: self.name.clone(),
            seen: Arc::clone(&self.seen),
            script: Arc::clone(&self.script),
        };
        let (replies, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                let mut request = Request::new(message);
                *request.metadata_mut() = metadata.clone();
                let answer = this.react("Chat", request).await;
                if replies
                    .send(answer.map(Response::into_inner))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        let replies = tokio_stream::wrappers::ReceiverStream::new(receiver);
        Ok(Response::new(Box::pin(replies)))
    }
}

/// A request that names its call.
pub fn request(id: &str) -> ProbeRequest {
    ProbeRequest {
        id: id.to_owned(),
        ..ProbeRequest::default()
    }
}

/// Polls until `holds`: for what tells nobody that it changed.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        panic!("{what}: not within {PATIENCE:?}");
    }
}
