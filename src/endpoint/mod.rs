//! The endpoints of a channel: where they come from, whether they are connected, which one an attempt takes.
//!
//! - [`EndpointSpec`]: what the user says about one.
//! - [`EndpointSet`]: all of one channel; the call path picks from it.
//! - [`Endpoint`]: one of them: its load, its reset ration, its current connection.
//! - `connection`: one connection and its loss; `line`: what an attempt takes of it; `keeper`:
//!   connecting again and again;
//!   `supervisor`, `source`, `dns`: who comes and who goes.

mod connection;
mod destination;
mod dns;
mod keeper;
mod line;
mod members;
mod random;
mod set;
mod sheds;
mod source;
mod spec;
mod supervisor;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tonic_hedge_engine::endpoint::{Load, Losses, ResetRation};

use crate::criticality::Criticality;

use self::{connection::Link, sheds::Sheds, spec::Route};
pub use self::{destination::Destination, spec::EndpointSpec};
pub(crate) use self::{
    dns::RESOLVE_INTERVAL,
    line::Line,
    random::fraction,
    set::{EndpointSet, Picked, Purpose, Unavailable, Wanted},
};

/// The longest that calls keep away from an endpoint by its own word: what lanes of ours say at most.
const LONGEST_SHED: Duration = Duration::from_secs(10);

/// One endpoint. Attempts hold it for as long as they run, whether or not it is still in the set.
#[repr(C)]
pub(crate) struct Endpoint {
    /// What a pick looks at. First, beside the count of those that hold the endpoint.
    hot: Hot,
    /// Of the source's key: a replacement keeps it.
    key: u64,
    name: Arc<str>,
    server: Option<(Arc<str>, u16)>,
    locality: Option<Arc<str>>,
    ration: ResetRation,
    losses: Losses,
    /// Kept for the next attempt.
    spare: Mutex<Option<Line>>,
    /// Whether any answer came over the current connection.
    served: AtomicBool,
    /// Bytes kept for attempts that run out here with nobody waiting.
    detached: AtomicU32,
    /// Connections that were made.
    connections: AtomicU64,
    route: Route,
    /// What the keeper is at. Never read where a connected endpoint is found.
    status: Mutex<Status>,
}

/// What a pick looks at, side by side: among a thousand endpoints, each cache line is a miss.
struct Hot {
    load: Load,
    sheds: Sheds,
    /// The number of the connection that may be used; 0 is none.
    up: AtomicU64,
    /// The current connection. Written by the keeper alone.
    link: ArcSwapOption<Link>,
    /// The hashes of its name and its locality: two that differ need no look at the texts.
    name: u64,
    locality: u64,
}

/// Whether an endpoint is connected, for `measured()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum EndpointState {
    /// No call has come yet, so nothing has been tried.
    Idle,
    /// A connection is being made.
    Connecting,
    /// Connected: attempts may go there.
    Ready,
    /// Connecting failed; it is tried again after a pause.
    Backoff,
}

struct Status {
    state: EndpointState,
    /// Why it is not connected. Kept until it is, so that a call does not wait for an endpoint that
    /// is merely between two failures.
    error: Option<Arc<str>>,
}

impl Endpoint {
    fn new(key: u64, spec: EndpointSpec) -> Self {
        let made = match &spec.route {
            Route::Made(channel) => Some(Arc::new(Link::made(channel.clone()))),
            _ => None,
        };
        let state = if made.is_some() {
            EndpointState::Ready
        } else {
            EndpointState::Idle
        };
        // Unix sockets keep their paths to themselves.
        let name = spec.name.unwrap_or_else(|| format!("unix#{key}").into());
        Self {
            key,
            server: spec.server,
            hot: Hot {
                load: Load::new(),
                sheds: Sheds::default(),
                // A ready-made channel is never lost.
                up: AtomicU64::new(u64::from(made.is_some())),
                link: ArcSwapOption::new(made),
                name: hash(&name),
                locality: hash(&spec.locality),
            },
            name,
            locality: spec.locality,
            ration: ResetRation::new(),
            losses: Losses::new(),
            spare: Mutex::new(None),
            served: AtomicBool::new(false),
            detached: AtomicU32::new(0),
            connections: AtomicU64::new(0),
            route: spec.route,
            status: Mutex::new(Status { state, error: None }),
        }
    }

    /// The name in logs and spans, like `10.0.0.1:50051`.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// `server.address`: the host that the user wrote, or the name of a ready-made channel.
    pub(crate) fn server_address(&self) -> &Arc<str> {
        self.server.as_ref().map_or(&self.name, |(host, _)| host)
    }

    /// `server.port`, if known.
    pub(crate) fn server_port(&self) -> Option<u16> {
        self.server.as_ref().map(|(_, port)| *port)
    }

    /// Where it is, if the user said so.
    pub(crate) fn locality(&self) -> Option<&Arc<str>> {
        self.locality.as_ref()
    }

    /// How busy and slow it is.
    pub(crate) fn load(&self) -> &Load {
        &self.hot.load
    }

    /// One of its lanes had no place for a call of this criticality, which is to come again after
    /// `delay`.
    pub(crate) fn shed(&self, now: Duration, criticality: Criticality, delay: Duration) {
        let until = now.saturating_add(delay.min(LONGEST_SHED));
        self.hot.sheds.note(now, criticality, until);
    }

    /// How many resets it may be sent.
    pub(crate) fn ration(&self) -> &ResetRation {
        &self.ration
    }

    /// When it last lost a connection under an attempt.
    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The bytes kept for attempts that run out here with nobody waiting.
    pub(crate) fn detached(&self) -> &AtomicU32 {
        &self.detached
    }

    /// It answered an attempt that was launched at `launched`: it has accepted all before, and
    /// its connection has proved itself.
    pub(crate) fn answered(&self, launched: Duration) {
        self.ration.answered(launched);
        // Read first: every answered call comes here, and only the first has something to write.
        if !self.has_served() {
            self.served.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any answer came over the last connection.
    fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// What it is at.
    pub(crate) fn state(&self) -> EndpointState {
        match (self.is_ready(), self.status.lock().state) {
            (true, _) => EndpointState::Ready,
            // Lost a moment ago; its keeper has not noticed.
            (false, EndpointState::Ready) => EndpointState::Connecting,
            (false, state) => state,
        }
    }

    /// Why it is not connected, once an attempt to connect has failed.
    pub(crate) fn last_error(&self) -> Option<Arc<str>> {
        self.status.lock().error.clone()
    }

    fn is_ready(&self) -> bool {
        // Relaxed: a pick that misses the change by a moment is one made a moment earlier.
        self.hot.up.load(Ordering::Relaxed) > 0
    }

    /// Whether both are the same process, as far as names tell.
    fn same_place(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.hot.name == other.hot.name && self.name == other.name
    }

    /// Whether both are in one locality.
    fn is_near(&self, other: &Self) -> bool {
        self.hot.locality == other.hot.locality
            && self.locality.is_some()
            && self.locality == other.locality
    }

    fn connecting(&self) {
        self.status.lock().state = EndpointState::Connecting;
    }

    fn connected(self: &Arc<Self>, link: &Arc<Link>) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        link.health.tells(Arc::downgrade(self), number);
        self.served.store(false, Ordering::Relaxed);
        self.hot.link.store(Some(Arc::clone(link)));
        self.hot.up.store(number, Ordering::Relaxed);
        // SeqCst, with the one in `Health::lose`: each side writes before it and reads what the other
        // writes after it, so one of them sees that the connection was lost while it was made known.
        fence(Ordering::SeqCst);
        if !link.health.is_up() {
            self.lost(number);
        }
        *self.status.lock() = Status {
            state: EndpointState::Ready,
            error: None,
        };
    }

    /// The connection of this number is of no more use.
    fn lost(&self, number: u64) {
        let up = &self.hot.up;
        // A failure means that a later one is up.
        let _ = up.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn disconnected(&self) {
        self.hot.up.store(0, Ordering::Relaxed);
        self.hot.link.store(None);
        // After `up` is 0, and dropped without the lock: see `keep`.
        let _spare = self.spare.lock().take();
        self.connecting();
    }

    fn failed(&self, error: Arc<str>) {
        *self.status.lock() = Status {
            state: EndpointState::Backoff,
            error: Some(error),
        };
    }
}

/// The same for the same value, in all of the process.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("name", &self.name)
            .field("locality", &self.locality)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
