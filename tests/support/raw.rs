//! A raw HTTP/2 server that does to each stream what a script says, legal or not.
//!
//! It writes its frames by hand, because what is tested is what no HTTP/2 library would send:
//! a GOAWAY below a stream that it has seen, a status given twice, a window that never opens.
//! Request headers are skipped, not decoded; a call is known by the id in its message.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use super::{Latch, PATIENCE, ProbeReply, ProbeRequest};

/// HTTP/2 error codes (RFC 9113, section 7).
pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

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
    /// Opens the stream's and the connection's window by as much.
    Grant(u32),
    /// RST_STREAM.
    Reset(u32),
    /// GOAWAY with this last stream, or with that of this stream.
    GoAway(Last, u32),
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
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            mute: false,
            grants: true,
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
                shared.note(|log| log.connections += 1);
                let (shared, script, deaf) = (Arc::clone(&shared), Arc::clone(&script), deaf.clone());
                connections.spawn(async move {
                    if manner.mute {
                        return mute(socket).await;
                    }
                    serve(socket, &shared, manner, script, deaf).await;
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

/// What the streams of one connection share.
struct Connection {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    windows: Mutex<Windows>,
    widened: Notify,
    close: watch::Sender<bool>,
    deaf: mpsc::Sender<()>,
}

/// What the client still takes, by stream; 0 is the connection.
struct Windows {
    initial: i64,
    left: HashMap<u32, i64>,
}

/// A request on its way in.
struct Incoming {
    body: Vec<u8>,
    ended: watch::Sender<bool>,
}

async fn serve(
    socket: TcpStream,
    shared: &Shared,
    manner: Manner,
    script: Script,
    deaf: mpsc::Sender<()>,
) {
    socket.set_nodelay(true).unwrap();
    let (reader, writer) = socket.into_split();
    let (close, mut closing) = watch::channel(false);
    let connection = Arc::new(Connection {
        writer: tokio::sync::Mutex::new(writer),
        windows: Mutex::new(Windows {
            initial: 65_535,
            left: HashMap::from([(0, 65_535)]),
        }),
        widened: Notify::new(),
        close,
        deaf,
    });
    let mut streams = JoinSet::new();
    tokio::select! {
        _ = closing.wait_for(|close| *close) => {}
        _ = read(reader, shared, manner, script, &connection, &mut streams) => {}
    }
    // Ends the streams' tasks, and with them the last owners of the socket.
}

async fn read(
    mut reader: OwnedReadHalf,
    shared: &Shared,
    manner: Manner,
    script: Script,
    connection: &Arc<Connection>,
    streams: &mut JoinSet<()>,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    reader.read_exact(&mut preface).await?;
    connection.write(SETTINGS, 0, 0, &[]).await?;
    let mut incoming: HashMap<u32, Incoming> = HashMap::new();
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let mut payload = vec![0; len as usize];
        reader.read_exact(&mut payload).await?;
        match kind {
            HEADERS => {
                let (ended, ends) = watch::channel(false);
                let body = Vec::new();
                incoming.insert(stream, Incoming { body, ended });
                shared.note(|log| log.streams += 1);
                let connection = Arc::clone(connection);
                let steps = script();
                streams.spawn(async move {
                    // A write to a socket that is gone ends the script.
                    let _ = connection.play(stream, steps, ends).await;
                });
            }
            DATA => {
                shared.note(|log| log.bytes += payload.len());
                if manner.grants && len > 0 {
                    let grant = len.to_be_bytes();
                    connection.write(WINDOW_UPDATE, 0, 0, &grant).await?;
                    connection.write(WINDOW_UPDATE, 0, stream, &grant).await?;
                }
                if let Some(request) = incoming.get_mut(&stream) {
                    request.body.extend(&payload);
                }
            }
            RST_STREAM => {
                let unread = incoming
                    .remove(&stream)
                    .map_or(0, |request| request.body.len());
                if !manner.grants && unread > 0 {
                    // The window that its unread bytes took is the connection's again, as
                    // every server has it.
                    let unread = u32::try_from(unread).unwrap().to_be_bytes();
                    connection.write(WINDOW_UPDATE, 0, 0, &unread).await?;
                }
                shared.note(|log| log.resets.push(number(&payload[..4])));
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == [0, 4] {
                        connection.windows.lock().initial = number(&setting[2..]).into();
                    }
                }
                connection.write(SETTINGS, ACK, 0, &[]).await?;
            }
            PING if flags & ACK == 0 => connection.write(PING, ACK, 0, &payload).await?,
            GOAWAY => shared.note(|log| log.goaways.push(number(&payload[4..8]))),
            WINDOW_UPDATE => {
                connection
                    .windows
                    .lock()
                    .widen(stream, number(&payload).into());
                connection.widened.notify_waiters();
            }
            _ => {}
        }
        if flags & END_STREAM != 0
            && matches!(kind, HEADERS | DATA)
            && let Some(request) = incoming.remove(&stream)
        {
            let decoded = ProbeRequest::decode(request.body.get(5..).unwrap_or_default());
            shared.note(|log| log.ids.push(decoded.unwrap_or_default().id));
            request.ended.send_replace(true);
        }
    }
}

impl Windows {
    fn widen(&mut self, stream: u32, by: i64) {
        let initial = self.initial;
        *self.left.entry(stream).or_insert(initial) += by;
    }

    /// Takes up to `wanted` of both windows.
    fn take(&mut self, stream: u32, wanted: usize) -> usize {
        let initial = self.initial;
        let of_stream = *self.left.entry(stream).or_insert(initial);
        let least = of_stream.min(self.left[&0]).max(0);
        let taken = wanted.min(usize::try_from(least).unwrap()).min(MAX_FRAME);
        let taken_i64 = i64::try_from(taken).unwrap();
        *self.left.get_mut(&stream).unwrap() -= taken_i64;
        *self.left.get_mut(&0).unwrap() -= taken_i64;
        taken
    }
}

impl Connection {
    async fn play(
        &self,
        stream: u32,
        steps: Vec<Step>,
        mut ends: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        for step in steps {
            match step {
                Step::Body => {
                    if ends.wait_for(|ended| *ended).await.is_err() {
                        // Reset by the client.
                        return Ok(());
                    }
                }
                Step::Wait(latch) => latch.passed().await,
                Step::Head => {
                    let head = [
                        header(":status", "200"),
                        header("content-type", "application/grpc"),
                    ];
                    self.write(HEADERS, END_HEADERS, stream, &block(&head))
                        .await?;
                }
                Step::HeadOf(head) => {
                    self.write(HEADERS, END_HEADERS, stream, &block(&head))
                        .await?;
                }
                Step::Data(bytes) => self.data(stream, &bytes).await?,
                Step::Trailers(trailers) => {
                    let flags = END_HEADERS | END_STREAM;
                    self.write(HEADERS, flags, stream, &block(&trailers))
                        .await?;
                }
                Step::End => self.write(DATA, END_STREAM, stream, &[]).await?,
                Step::Grant(window) => {
                    let window = window.to_be_bytes();
                    self.write(WINDOW_UPDATE, 0, 0, &window).await?;
                    self.write(WINDOW_UPDATE, 0, stream, &window).await?;
                }
                Step::Reset(code) => {
                    self.write(RST_STREAM, 0, stream, &code.to_be_bytes())
                        .await?;
                }
                Step::GoAway(last, code) => {
                    let last = match last {
                        Last::Before => stream.saturating_sub(2),
                        Last::This => stream,
                    };
                    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
                    self.write(GOAWAY, 0, 0, &payload).await?;
                }
                Step::Deaf => {
                    let _ = self.deaf.send(()).await;
                    self.deaf.closed().await;
                }
                Step::Close => {
                    self.close.send_replace(true);
                }
            }
        }
        Ok(())
    }

    async fn data(&self, stream: u32, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let widened = self.widened.notified();
            tokio::pin!(widened);
            widened.as_mut().enable();
            let taken = self.windows.lock().take(stream, bytes.len());
            if taken == 0 {
                widened.await;
                continue;
            }
            let (now, rest) = bytes.split_at(taken);
            self.write(DATA, 0, stream, now).await?;
            bytes = rest;
        }
        Ok(())
    }

    async fn write(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.writer.lock().await.write_all(&frame).await
    }
}

// Frame types and flags of RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// The largest frame that a peer must take without having said so.
const MAX_FRAME: usize = 16_384;

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// A header block of literals that no table remembers (RFC 7541, section 6.2.2).
fn block(headers: &[(&'static str, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        string(&mut block, name.as_bytes());
        string(&mut block, value);
    }
    block
}

/// A string that is not Huffman-coded, behind its length with a 7-bit prefix.
fn string(block: &mut Vec<u8>, bytes: &[u8]) {
    let mut len = bytes.len();
    if len < 127 {
        block.push(len as u8);
    } else {
        block.push(127);
        len -= 127;
        while len >= 128 {
            block.push((len % 128) as u8 | 128);
            len /= 128;
        }
        block.push(len as u8);
    }
    block.extend(bytes);
}
