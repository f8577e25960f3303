//! The endpoints of a channel: where they come from, whether they are connected, which one an attempt takes.
//!
//! - [`EndpointSpec`]: what the user says about one.
//! - [`EndpointSet`]: all of one channel; the call path picks from it.
//! - [`Endpoint`]: one of them: its load, its reset ration, its current connection.
//! - `connection`: one connection and its loss; `keeper`: connecting again and again;
//!   `supervisor`, `source`, `dns`: who comes and who goes.

mod connection;
mod destination;
mod dns;
mod keeper;
mod random;
mod set;
mod source;
mod spec;
mod supervisor;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic_hedge_engine::endpoint::{Load, Losses, ResetRation};

use self::{connection::Link, spec::Route};
pub use self::{destination::Destination, spec::EndpointSpec};
pub(crate) use self::{
    dns::RESOLVE_INTERVAL,
    random::fraction,
    set::{EndpointSet, Picked, Purpose, Unavailable, Wanted},
};

/// One endpoint. Attempts hold it for as long as they run, whether or not it is still in the set.
pub(crate) struct Endpoint {
    /// Of the source's key: a replacement keeps it.
    key: u64,
    name: Arc<str>,
    server: Option<(Arc<str>, u16)>,
    locality: Option<Arc<str>>,
    load: Load,
    ration: ResetRation,
    losses: Losses,
    /// Bytes kept for attempts that run out here with nobody waiting.
    detached: AtomicU32,
    route: Route,
    /// The current connection. Written by the keeper alone.
    link: ArcSwapOption<Link>,
    /// What the keeper is at. Never read where a connected endpoint is found.
    status: Mutex<Status>,
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
        Self {
            key,
            // Unix sockets keep their paths to themselves.
            name: spec.name.unwrap_or_else(|| format!("unix#{key}").into()),
            server: spec.server,
            locality: spec.locality,
            load: Load::new(),
            ration: ResetRation::new(),
            losses: Losses::new(),
            detached: AtomicU32::new(0),
            route: spec.route,
            link: ArcSwapOption::new(made),
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
        &self.load
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
        if let Some(link) = &*self.link.load() {
            link.health.answered();
        }
    }

    /// The current connection, if there is one that is not known to be lost.
    pub(crate) fn channel(&self) -> Option<Channel> {
        let link = self.link.load();
        link.as_ref()
            .filter(|link| link.health.is_up())
            .map(|link| link.channel.clone())
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
        let link = self.link.load();
        link.as_ref().is_some_and(|link| link.health.is_up())
    }

    /// Whether both are the same process, as far as names tell.
    fn same_place(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.name == other.name
    }

    fn connecting(&self) {
        self.status.lock().state = EndpointState::Connecting;
    }

    fn connected(&self, link: &Arc<Link>) {
        self.link.store(Some(Arc::clone(link)));
        *self.status.lock() = Status {
            state: EndpointState::Ready,
            error: None,
        };
    }

    fn disconnected(&self) {
        self.link.store(None);
        self.connecting();
    }

    fn failed(&self, error: Arc<str>) {
        *self.status.lock() = Status {
            state: EndpointState::Backoff,
            error: Some(error),
        };
    }
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
