//! One connection of the raw server: reads what the client sends, and plays each stream's steps.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};

use super::{
    Last, MAX_CONCURRENT_STREAMS, Manner, Script, Shared, Step,
    frames::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, MAX_FRAME, PING,
        RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, number as u32_of,
    },
    header,
};
use crate::support::ProbeRequest;

/// What the streams of one connection share.
struct Connection {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    windows: Mutex<Windows>,
    widened: Notify,
    close: watch::Sender<bool>,
    deaf: mpsc::Sender<()>,
    /// Streams that the client has to count as open.
    open: Mutex<HashSet<u32>>,
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

pub(super) async fn serve(
    socket: TcpStream,
    number: usize,
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
        open: Mutex::default(),
    });
    let mut streams = JoinSet::new();
    tokio::select! {
        _ = closing.wait_for(|close| *close) => {}
        _ = read(reader, number, shared, manner, script, &connection, &mut streams) => {}
    }
    // Ends the streams' tasks, and with them the last owners of the socket.
}

async fn read(
    mut reader: OwnedReadHalf,
    number: usize,
    shared: &Shared,
    manner: Manner,
    script: Script,
    connection: &Arc<Connection>,
    streams: &mut JoinSet<()>,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    reader.read_exact(&mut preface).await?;
    match manner.streams {
        Some(limit) => connection.setting(MAX_CONCURRENT_STREAMS, limit).await?,
        None => connection.write(SETTINGS, 0, 0, &[]).await?,
    }
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
                let open = {
                    let mut open = connection.open.lock();
                    open.insert(stream);
                    open.len()
                };
                shared.note(|log| {
                    log.streams += 1;
                    log.by_connection[number] += 1;
                    log.most_open = log.most_open.max(open);
                });
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
                connection.open.lock().remove(&stream);
                shared.note(|log| log.resets.push(u32_of(&payload[..4])));
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == [0, 4] {
                        connection.windows.lock().initial = u32_of(&setting[2..]).into();
                    }
                }
                connection.write(SETTINGS, ACK, 0, &[]).await?;
            }
            PING if flags & ACK == 0 => {
                connection.write(PING, ACK, 0, &payload).await?;
                shared.note(|log| log.pings += 1);
            }
            PING => shared.note(|log| log.ponged += 1),
            GOAWAY => shared.note(|log| log.goaways.push(u32_of(&payload[4..8]))),
            WINDOW_UPDATE => {
                connection
                    .windows
                    .lock()
                    .widen(stream, u32_of(&payload).into());
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
                    self.headers(stream, 0, &head).await?;
                }
                Step::HeadOf(head) => {
                    self.headers(stream, 0, &head).await?;
                }
                Step::Data(bytes) => self.data(stream, &bytes).await?,
                Step::Trickle(bytes, apart) => {
                    for byte in bytes {
                        self.data(stream, &[byte]).await?;
                        tokio::time::sleep(apart).await;
                    }
                }
                Step::Trailers(trailers) => {
                    self.open.lock().remove(&stream);
                    self.headers(stream, END_STREAM, &trailers).await?;
                }
                Step::End => {
                    self.open.lock().remove(&stream);
                    self.write(DATA, END_STREAM, stream, &[]).await?;
                }
                Step::Grant(window) => {
                    let window = window.to_be_bytes();
                    self.write(WINDOW_UPDATE, 0, 0, &window).await?;
                    self.write(WINDOW_UPDATE, 0, stream, &window).await?;
                }
                Step::Reset(code) => {
                    self.open.lock().remove(&stream);
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
                Step::Setting(setting, value) => self.setting(setting, value).await?,
                Step::Ping => self.write(PING, 0, 0, &[7; 8]).await?,
                Step::Frames(count, kind, flags, payload) => {
                    for _ in 0..count {
                        self.write(kind, flags, stream, &payload).await?;
                    }
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

    async fn setting(&self, setting: u16, value: u32) -> std::io::Result<()> {
        let payload = [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat();
        self.write(SETTINGS, 0, 0, &payload).await
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

    async fn headers(
        &self,
        stream: u32,
        flags: u8,
        headers: &[(&'static str, Vec<u8>)],
    ) -> std::io::Result<()> {
        let block = block(headers);
        let chunks: Vec<_> = block.chunks(MAX_FRAME).collect();
        let mut frames = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let (kind, flags) = match index {
                0 => (HEADERS, flags),
                _ => (CONTINUATION, 0),
            };
            let last = index + 1 == chunks.len();
            frames.extend(frame(
                kind,
                flags | if last { END_HEADERS } else { 0 },
                stream,
                chunk,
            ));
        }
        // In one go: no other frame may come in between.
        self.writer.lock().await.write_all(&frames).await
    }

    async fn write(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let frame = frame(kind, flags, stream, payload);
        self.writer.lock().await.write_all(&frame).await
    }
}
