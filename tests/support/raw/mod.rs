//! A raw HTTP/2 server that does to each stream what a script says, legal or not.
//!
//! It writes its frames by hand, because what is tested is what no HTTP/2 library would send:
//! a GOAWAY below a stream that it has seen, a status given twice, a window that never opens.
//! Request headers are skipped, not decoded; a call is known by the id in its message.

mod connection;
mod frames;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prost::Message as _;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::{JoinHandle, JoinSet},
};

use super::{Latch, PATIENCE, ProbeReply};
pub use frames::{CONTINUATION, END_HEADERS, HEADERS, MAX_FRAME, block};

/// HTTP/2 error codes (RFC 9113, section 7).
pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// A setting's identifier (RFC 9113, section 6.5.2).
pub const MAX_CONCURRENT_STREAMS: u16 = 3;

/// What is done to a stream, one step after the other.
#[derive(Clone, Debug)]
pub enum Step {
    /// Waits for the end of the request.
    Body,
    /// Waits for the test.
    Wait(Latch),
    /// HTTP 200 with `content-type: application/grpc`.
    Head,
    /// A head of any kind; the stream stays open.
    HeadOf(Vec<(&'static str, Vec<u8>)>),
    /// Bytes of the body, as they are; keeps to the client's windows.
    Data(Vec<u8>),
    /// Headers that end the stream: trailers.
    Trailers(Vec<(&'static str, Vec<u8>)>),
    /// An empty DATA frame that ends the stream.
    End,
    /// Bytes of the body, one after the other, so far apart.
    Trickle(Vec<u8>, Duration),
    /// Opens the stream's and the connection's window by as much.
    Grant(u32),
    /// RST_STREAM.
    Reset(u32),
    /// GOAWAY with this last stream, or with that of this stream.
    GoAway(Last, u32),
    /// SETTINGS with this one.
    Setting(u16, u32),
    /// PING.
    Ping,
    /// So many frames of this type, with these flags, on the stream.
    Frames(usize, u8, u8, Vec<u8>),
    /// Closes the listener: no further connection.
    Deaf,
    /// Closes the connection's socket.
    Close,
}

/// The last stream that a GOAWAY says was processed.
#[derive(Clone, Copy, Debug)]
pub enum Last {
    /// The stream before this one.
    Before,
    /// This one.
    This,
}

/// A header or trailer.
pub fn header(name: &'static str, value: &str) -> (&'static str, Vec<u8>) {
    (name, value.as_bytes().to_vec())
}

/// A gRPC message: prefix and bytes.
pub fn message(bytes: &[u8]) -> Step {
    let mut framed = vec![0];
    framed.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    framed.extend(bytes);
    Step::Data(framed)
}

/// A [`ProbeReply`] that names the replica.
pub fn reply(replica: &str) -> Step {
    let reply = ProbeReply {
        replica: replica.to_owned(),
        ..ProbeReply::default()
    };
    message(&reply.encode_to_vec())
}

/// Trailers with a status.
pub fn status(code: &str) -> Step {
    Step::Trailers(vec![header("grpc-status", code)])
}

/// A head that carries the status, without a body.
pub fn trailers_only(code: &str) -> Step {
    Step::Trailers(vec![
        header(":status", "200"),
        header("content-type", "application/grpc"),
        header("grpc-status", code),
    ])
}

/// A whole OK, once the request is read.
pub fn ok(replica: &str) -> Vec<Step> {
    vec![Step::Body, Step::Head, reply(replica), status("0")]
}

/// How a server treats its connections.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Accepts and never says a byte.
    pub mute: bool,
    /// Gives window back as it reads, so that a request over 64 KiB gets through.
    pub grants: bool,
    /// What its first SETTINGS say of the streams that it takes at once.
    pub streams: Option<u32>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            mute: false,
            grants: true,
            streams: None,
        }
    }
}

/// What a raw server saw.
#[derive(Debug, Default)]
pub struct Log {
    /// Connections accepted.
    pub connections: usize,
    /// Connections that have ended.
    pub closed: usize,
    /// Streams opened: header frames seen.
    pub streams: usize,
    /// The same, by connection.
    pub by_connection: Vec<usize>,
    /// The most streams that were open at once on one connection.
    pub most_open: usize,
    /// PINGs of the client's own.
    pub pings: usize,
    /// PINGs of the server's that the client has answered.
    pub ponged: usize,
    /// The ids of the requests that came whole.
    pub ids: Vec<String>,
    /// Body bytes.
    pub bytes: usize,
    /// The codes of RST_STREAM frames, in order.
    pub resets: Vec<u32>,
    /// Code of each GOAWAY from the client.
    pub goaways: Vec<u32>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    changed: Notify,
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.lock());
        self.changed.notify_waiters();
    }
}

/// The steps for the next stream.
pub type Script = Arc<dyn Fn() -> Vec<Step> + Send + Sync>;

/// A script that is told the number of the stream, among all of the servers that share it.
pub fn script(steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Script {
    let seen = AtomicUsize::new(0);
    Arc::new(move || steps(seen.fetch_add(1, Ordering::SeqCst)))
}

/// The server. Dropping it ends its connections.
pub struct Raw {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Raw {
    pub async fn start(script: Script) -> Self {
        Self::with(Manner::default(), script).await
    }

    pub async fn with(manner: Manner, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), manner, script));
        Self {
            addr,
            shared,
            accepting,
        }
    }

    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn log<T>(&self, read: impl FnOnce(&Log) -> T) -> T {
        read(&self.shared.log.lock())
    }

    /// Waits until the log `holds`.
    pub async fn until(&self, what: &str, holds: impl Fn(&Log) -> bool) {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.log(&holds) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("{what}: {:?}", self.shared.log.lock());
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, manner: Manner, script: Script) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    let (deaf, mut deafened) = mpsc::channel::<()>(1);
    while let Some(open) = &listener {
        tokio::select! {
            accepted = open.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                let number = shared.log.lock().connections;
                shared.note(|log| {
                    log.connections += 1;
                    log.by_connection.push(0);
                });
                let (shared, script, deaf) = (Arc::clone(&shared), Arc::clone(&script), deaf.clone());
                connections.spawn(async move {
                    if manner.mute {
                        return mute(socket).await;
                    }
                    connection::serve(socket, number, &shared, manner, script, deaf).await;
                    shared.note(|log| log.closed += 1);
                });
            }
            _ = deafened.recv() => listener = None,
        }
    }
    drop(deafened);
    while connections.join_next().await.is_some() {}
}

async fn mute(mut socket: TcpStream) {
    let mut buffer = [0; 1024];
    while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
