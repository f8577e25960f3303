//! One connection: made in the background, watched until it is lost.
//!
//! tonic's `Channel` reconnects when a call comes and tells nobody that it has to. So the
//! socket is wrapped: whoever drops it, the endpoint learns at once that the connection is gone. tonic
//! may still reconnect by itself for calls that are under way (after a GOAWAY, say), but
//! not after a reconnect has failed: those calls fail at once, as never sent, instead of queueing for a timeout each.

use std::{
    error::Error,
    fmt,
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};
use tonic::transport::{Channel, Endpoint as TonicEndpoint};
use tower_service::Service;

use super::{Endpoint, spec::Route};

type BoxError = Box<dyn Error + Send + Sync>;

/// The time that TCP has to connect when the user set none: one lost SYN is enough to prefer another endpoint.
const TCP_LIMIT: Duration = Duration::from_secs(1);

/// The time that the whole handshake has when the user set none: TCP, TLS and the peer's
/// SETTINGS take four round trips, and nobody waits for it while another endpoint is connected.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// A peer's alert over TLS 1.3: the record's header, two bytes, their type and the cipher's tag.
/// Anything else that a server says first is longer: its tickets, its SETTINGS.
const TLS_ALERT: u64 = 5 + 2 + 1 + 16;

/// How long a peer may be silent after a TLS handshake: a slow round trip. One that is silent for
/// longer is taken as it is, since what it said may have come before it was waited for.
const TLS_SILENCE: Duration = Duration::from_secs(1);

/// Cancelled streams that h2 remembers. It remembers 50 otherwise, and each late frame on a
/// forgotten one counts towards 1,024 after which it closes the connection.
const REMEMBERED_RESETS: usize = 4096;

/// A connection that was up at least once.
pub(super) struct Link {
    pub(super) channel: Channel,
    pub(super) health: Arc<Health>,
    /// Whether the connection's loss shows by itself.
    pub(super) watched: bool,
}

/// What is known of a connection, without asking it.
#[derive(Default)]
pub(super) struct Health {
    lost: AtomicBool,
    /// A socket could not be opened: calls that are still queued for this link fail at once.
    refusing: AtomicBool,
    error: Mutex<Option<Arc<str>>>,
    /// The endpoint that it is the connection of, and its number there.
    of: OnceLock<(Weak<Endpoint>, u64)>,
    /// Wakes the keeper. A permit is kept if it does not wait yet.
    lost_signal: Notify,
    /// Number of the last socket that was asked for.
    dialled: AtomicU64,
    /// Number of the last socket that was opened. Only its end is the connection's: tonic opens a
    /// second one while the first drains after a GOAWAY.
    newest: AtomicU64,
    /// Bytes that came, until `settled`.
    heard: AtomicU64,
    heard_signal: Notify,
    /// The peer has said enough: nobody waits for what comes.
    settled: AtomicBool,
}

impl Link {
    /// Connects, and waits until the peer speaks HTTP/2.
    pub(super) async fn make(route: &Route) -> Result<Self, Arc<str>> {
        let (endpoint, watched) = match route {
            Route::Dial { endpoint, .. } => (&**endpoint, true),
            Route::Tonic(endpoint) => (&**endpoint, false),
            Route::Made(channel) => return Ok(Self::made(channel.clone())),
        };
        let limit = endpoint.get_connect_timeout().unwrap_or(HANDSHAKE_LIMIT);
        let health = Arc::new(Health::default());
        let started = Instant::now();
        let channel = match timeout(limit, open(route, endpoint, &health)).await {
            Ok(Ok(channel)) => channel,
            // tonic has the same limit for TCP and TLS, and says of it that a deadline has elapsed.
            Ok(Err(error)) if started.elapsed() < limit => return Err(error),
            _ => return Err(format!("no connection within {limit:?}").into()),
        };
        Ok(Self {
            watched,
            health,
            ..Self::made(channel)
        })
    }

    /// Its number at its endpoint: 1 is a ready-made channel's, which has no other.
    pub(super) fn number(&self) -> u64 {
        self.health.of.get().map_or(1, |(_, number)| *number)
    }

    /// A channel of somebody else's.
    pub(super) fn made(channel: Channel) -> Self {
        Self {
            // It is only cloned again: a clone makes room for waiting for a place in the queue when it
            // is first used, and the original has that from the start.
            channel: channel.clone(),
            health: Arc::default(),
            watched: false,
        }
    }
}

async fn open(
    route: &Route,
    endpoint: &TonicEndpoint,
    health: &Arc<Health>,
) -> Result<Channel, Arc<str>> {
    let endpoint = endpoint
        .clone()
        .http2_max_concurrent_reset_streams(REMEMBERED_RESETS);
    let Route::Dial {
        to, local_address, ..
    } = route
    else {
        return endpoint.connect().await.map_err(|error| describe(&error));
    };

    let mut tcp = HttpConnector::new();
    // The scheme says whether tonic adds TLS; to TCP it means nothing.
    tcp.enforce_http(false);
    tcp.set_nodelay(endpoint.get_tcp_nodelay());
    tcp.set_keepalive(endpoint.get_tcp_keepalive());
    tcp.set_keepalive_interval(endpoint.get_tcp_keepalive_interval());
    tcp.set_keepalive_retries(endpoint.get_tcp_keepalive_retries());
    tcp.set_local_address(*local_address);
    tcp.set_connect_timeout(Some(endpoint.get_connect_timeout().unwrap_or(TCP_LIMIT)));
    let to = match to {
        Some(address) => Some(address_uri(*address).map_err(|error| describe(&error))?),
        None => None,
    };
    let dialler = Dialler {
        tcp,
        to,
        health: Arc::clone(health),
    };
    let connected = endpoint.connect_with_connector(dialler).await;
    let channel = connected.map_err(|error| describe(&error))?;
    // hyper takes an accepted TCP connection for an HTTP/2 one. The peer's first bytes are its
    // SETTINGS, so a listener whose process hangs is told apart.
    if endpoint.uri().scheme_str() == Some("https") {
        health.verdict().await?;
    } else {
        health.hears_more_than(0).await?;
    }
    // Relaxed: a read that comes meanwhile is counted for nobody.
    health.settled.store(true, Ordering::Relaxed);
    Ok(channel)
}

fn address_uri(address: SocketAddr) -> Result<Uri, http::Error> {
    Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query("/")
        .build()
}

/// An error with its causes, each once: tonic and hyper repeat theirs.
pub(super) fn describe(error: &(dyn Error + 'static)) -> Arc<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    // tonic's outermost layer says nothing.
    text.strip_prefix("transport error: ")
        .unwrap_or(&text)
        .into()
}

impl Health {
    /// Whether calls may be sent.
    pub(super) fn is_up(&self) -> bool {
        // Relaxed: a call that misses the change by a moment fails as one sent a moment earlier.
        !self.lost.load(Ordering::Relaxed)
    }

    /// Tells this endpoint of its loss. Who tells it checks afterwards whether that was too late.
    pub(super) fn tells(&self, endpoint: Weak<Endpoint>, number: u64) {
        // Once: a connection is one endpoint's.
        let _ = self.of.set((endpoint, number));
    }

    /// Ends the connection's use, for ever. Only the first reason is kept.
    pub(super) fn lose(&self, error: impl Into<Arc<str>>) {
        self.error.lock().get_or_insert(error.into());
        self.lost.store(true, Ordering::Relaxed);
        // SeqCst: see `Endpoint::connected`.
        fence(Ordering::SeqCst);
        if let Some((endpoint, number)) = self.of.get()
            && let Some(endpoint) = endpoint.upgrade()
        {
            endpoint.lost(*number);
        }
        // Both keep a permit, so neither waiter can miss it.
        self.lost_signal.notify_one();
        self.heard_signal.notify_one();
    }

    /// Ends with the connection, and says why.
    pub(super) async fn lost(&self) -> Arc<str> {
        while self.is_up() {
            self.lost_signal.notified().await;
        }
        self.error()
    }

    /// What the peer thinks of the client. In TLS 1.3 the handshake is over for a client before the
    /// server has looked at its certificate: one that is missing or wrong is answered by an alert,
    /// and calls that were sent by then are lost.
    async fn verdict(&self) -> Result<(), Arc<str>> {
        let handshake = self.heard.load(Ordering::Relaxed);
        let verdict = self.hears_more_than(handshake + TLS_ALERT);
        match timeout(TLS_SILENCE, verdict).await {
            Ok(Err(error)) => Err(format!(
                "{error} right after the TLS handshake: the server may want a client certificate, \
                 or another one"
            )
            .into()),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    async fn hears_more_than(&self, bytes: u64) -> Result<(), Arc<str>> {
        while self.heard.load(Ordering::Relaxed) <= bytes {
            if !self.is_up() {
                return Err(self.error());
            }
            self.heard_signal.notified().await;
        }
        Ok(())
    }

    /// So many bytes came. Returns whether it wants to know of the next ones.
    fn hears(&self, bytes: u64) -> bool {
        if self.settled.load(Ordering::Relaxed) {
            return false;
        }
        self.heard.fetch_add(bytes, Ordering::Relaxed);
        self.heard_signal.notify_one();
        true
    }

    fn error(&self) -> Arc<str> {
        let error = self.error.lock().clone();
        error.unwrap_or_else(|| "connection lost".into())
    }
}

/// Opens sockets for one link.
struct Dialler {
    tcp: HttpConnector,
    to: Option<Uri>,
    health: Arc<Health>,
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<Watched>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let health = Arc::clone(&self.health);
        if health.refusing.load(Ordering::Relaxed) {
            let error = health.error();
            return Box::pin(async move { Err(BoxError::from(&*error)) });
        }
        let number = health.dialled.fetch_add(1, Ordering::Relaxed) + 1;
        let dial = self.tcp.call(self.to.clone().unwrap_or(uri));
        let mut dialling = Dialling {
            health,
            error: Some("connecting was given up".into()),
        };
        Box::pin(async move {
            match dial.await {
                Ok(socket) => Ok(TokioIo::new(dialling.opened(number, socket.into_inner()))),
                Err(error) => {
                    dialling.failed(describe(&error));
                    Err(error.into())
                }
            }
        })
    }
}

/// A socket being opened: unless it is, the link is lost. tonic drops it when the time is over.
struct Dialling {
    health: Arc<Health>,
    error: Option<Arc<str>>,
}

impl Dialling {
    fn opened(&mut self, number: u64, socket: TcpStream) -> Watched {
        self.error = None;
        self.health.newest.store(number, Ordering::Relaxed);
        Watched {
            socket,
            number,
            counts: true,
            health: Arc::clone(&self.health),
        }
    }

    fn failed(mut self, error: Arc<str>) {
        self.error = Some(error);
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            self.health.refusing.store(true, Ordering::Relaxed);
            self.health.lose(error);
        }
    }
}

/// A socket whose end the link learns of.
struct Watched {
    socket: TcpStream,
    number: u64,
    /// Whether what it reads is counted: until the link is settled.
    counts: bool,
    health: Arc<Health>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.health.newest.load(Ordering::Relaxed) == self.number {
            self.health.lose("connection closed");
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        if self.counts && bytes > 0 {
            self.counts = self.health.hears(bytes as u64);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("up", &self.health.is_up())
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}
