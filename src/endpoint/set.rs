//! All endpoints of one channel, and the choice among them.

use std::{collections::HashSet, error::Error, fmt, hash::Hash, sync::Arc, time::Duration};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tonic::transport::{Channel, Endpoint as TonicEndpoint};
use tonic_hedge_engine::endpoint::pick;
use tower::discover::Change;

use super::{
    Destination, Endpoint, EndpointSpec, Line,
    members::Members,
    random,
    source::{Numbered, Source},
    spec::server_of,
    supervisor::{Shared, supervise},
};
use crate::{background::Background, criticality::Criticality};

/// The endpoints of one channel. Dropping it ends its background work.
pub(crate) struct EndpointSet {
    shared: Arc<Shared>,
    opaque: bool,
    supervisor: Background,
}

/// What an attempt is for, which decides what it may share with the others of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Any ready endpoint; waits for the first connection.
    Original,
    /// Only where no attempt of the call has been.
    Hedge,
    /// Rather where none has been, else anywhere that is ready: it waits for nothing.
    HedgeAnywhere,
    /// Rather where none has been, else anywhere; waits like an original.
    Retry,
    /// For an attempt that never left: only where none has been.
    Replacement,
}

/// What an attempt is for, and where it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) purpose: Purpose,
    pub(crate) criticality: Criticality,
    /// The user's choice: nowhere else.
    pub(crate) only: Option<&'a Destination>,
}

impl From<Purpose> for Wanted<'_> {
    fn from(purpose: Purpose) -> Self {
        Self {
            purpose,
            criticality: Criticality::Default,
            only: None,
        }
    }
}

/// An endpoint that sheds such calls is asked where all others that the call has not used do too, or
/// are not to be had.
const SHEDS: u8 = 2;

/// And after those, where the call has been.
const AGAIN: u8 = 4;

/// What came of a pick.
#[derive(Debug)]
pub(crate) enum Picked {
    /// Send it there.
    Endpoint(Arc<Endpoint>, Line),
    /// None is ready, but one may become so: wait for [`EndpointSet::changed`].
    Wait,
    /// There is none, and nothing to wait for.
    None(Unavailable),
}

/// Why no endpoint serves: the text of an UNAVAILABLE.
#[derive(Clone, Debug)]
pub(crate) enum Unavailable {
    /// The set is empty; and why, if its source said.
    Empty(Option<Arc<str>>),
    /// The last attempt to connect failed at each: the first of them, and how many others.
    Unreachable {
        endpoint: Arc<str>,
        error: Arc<str>,
        others: usize,
    },
    /// All that are ready are in use by this call.
    NoOther,
}

/// Picks that may meet an endpoint in the moment that it is lost, before the set counts as down.
const RACES: usize = 4;

/// Endpoints of a list that its name has: all would be a long attribute of every metric.
const NAMED: usize = 3;

impl EndpointSet {
    /// A fixed list. An address that is in it twice counts once, the first.
    pub(crate) fn list(specs: impl IntoIterator<Item = EndpointSpec>) -> Self {
        let mut names = HashSet::new();
        let endpoints = specs
            .into_iter()
            // A Unix socket has no name to compare.
            .filter(|spec| spec.name.clone().is_none_or(|name| names.insert(name)))
            .zip(0..)
            .map(|(spec, key)| Arc::new(Endpoint::new(key, spec)))
            .collect();
        Self::of(Shared::new(endpoints, Source::Fixed))
    }

    /// What metrics call it, unless the user has a name for it.
    pub(crate) fn target(&self) -> String {
        match &self.shared.source {
            Source::Fixed if self.opaque => "channel".to_owned(),
            Source::Fixed => {
                let all = self.snapshot();
                let names: Vec<&str> = all.iter().take(NAMED).map(|it| &**it.name()).collect();
                match all.len().saturating_sub(NAMED) {
                    0 => names.join(","),
                    more => format!("{},+{more}", names.join(",")),
                }
            }
            Source::Stream(_) => "discover".to_owned(),
            Source::Dns(endpoint, _) => match server_of(endpoint.uri()) {
                Some((host, port)) => format!("dns:///{host}:{port}"),
                None => "dns:///".to_owned(),
            },
        }
    }

    /// Endpoints that come and go. A key inserted again replaces its endpoint, whose statistics
    /// start anew; attempts in flight run on. Two keys of one address are two endpoints, but
    /// one place to a hedge. An error leaves the set as it is, and so does the stream's end.
    pub(crate) fn stream<S, K, V, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<Change<K, V>, E>> + Send + 'static,
        K: Hash + Eq + Clone + Send + 'static,
        V: Into<EndpointSpec>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let stream = Numbered::<_, K>::new(Box::pin(stream));
        let source = Source::Stream(Mutex::new(Box::pin(stream)));
        Self::of(Shared::new(Members::default(), source))
    }

    /// The addresses of the name in the URI of `endpoint`, A and AAAA, resolved again at each
    /// `interval` and sooner after failures. `None` if the URI has no host.
    ///
    /// All else is as `endpoint` has it: TLS asks for its name, not for an address. An
    /// address that vanishes from the name leaves the set; one that stays keeps its connection.
    pub(crate) fn dns(endpoint: TonicEndpoint, interval: Duration) -> Option<Self> {
        server_of(endpoint.uri())?;
        let source = Source::Dns(Arc::new(endpoint), interval);
        Some(Self::of(Shared::new(Members::default(), source)))
    }

    /// One channel whose balancer, if any, decides: every attempt goes through it.
    pub(crate) fn opaque(channel: Channel) -> Self {
        let spec = EndpointSpec::channel("channel", channel);
        let mut set = Self::list([spec]);
        set.opaque = true;
        set
    }

    fn of(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            opaque: false,
            supervisor: Background::default(),
        }
    }

    /// Starts connecting and discovery on the current runtime, unless they run.
    pub(crate) fn ensure_started(&self) {
        self.supervisor
            .ensure_started(|| supervise(Arc::clone(&self.shared)));
    }

    /// Chooses an endpoint. `tried` are those that attempts of the call went to.
    ///
    /// Allocates nothing. Of the endpoints that `purpose` allows, those that have a place for the call,
    /// as far as is known, come first, and of them those in a locality that no attempt has been to.
    pub(crate) fn pick<'a>(
        &self,
        now: Duration,
        tried: &[Arc<Endpoint>],
        wanted: impl Into<Wanted<'a>>,
    ) -> Picked {
        let wanted = wanted.into();
        let endpoints = self.shared.endpoints.load();
        for _ in 0..RACES {
            let Some(index) = self.choose(&endpoints, now, tried, wanted) else {
                break;
            };
            if let Some(line) = endpoints[index].line() {
                return Picked::Endpoint(Arc::clone(&endpoints[index]), line);
            }
        }
        match wanted.purpose {
            Purpose::Original | Purpose::Retry => self.none_ready(&endpoints, wanted),
            Purpose::Hedge | Purpose::HedgeAnywhere | Purpose::Replacement => {
                Picked::None(Unavailable::NoOther)
            }
        }
    }

    /// Ends when an endpoint is connected, or none will be for now.
    pub(crate) async fn connected(&self) -> Result<(), Unavailable> {
        loop {
            // Before the look, so that no change in between is missed.
            let changed = self.changed();
            if self.has_ready(&[], Purpose::Original) {
                return Ok(());
            }
            let endpoints = self.shared.endpoints.load_full();
            match self.none_ready(&endpoints, Purpose::Original.into()) {
                Picked::None(why) => return Err(why),
                _ => changed.await,
            }
        }
    }

    /// The choice alone, for a bench: which of the endpoints.
    #[cfg(feature = "__bench")]
    pub(crate) fn choice(
        &self,
        now: Duration,
        tried: &[Arc<Endpoint>],
        purpose: Purpose,
    ) -> Option<usize> {
        self.choose(&self.shared.endpoints.load(), now, tried, purpose.into())
    }

    fn choose(
        &self,
        among: &Members,
        now: Duration,
        tried: &[Arc<Endpoint>],
        wanted: Wanted<'_>,
    ) -> Option<usize> {
        pick(
            among.len(),
            |index| {
                let endpoint = &among[index];
                let rank = self.rank(among, endpoint, tried, wanted)?;
                let sheds = endpoint.hot.sheds.apply(now, wanted.criticality);
                Some(if sheds { rank + SHEDS } else { rank })
            },
            |index| among[index].hot.load.cost(now),
            &mut random::below,
        )
    }

    #[inline]
    fn rank(
        &self,
        among: &Members,
        endpoint: &Endpoint,
        tried: &[Arc<Endpoint>],
        wanted: Wanted<'_>,
    ) -> Option<u8> {
        let Wanted { purpose, only, .. } = wanted;
        if !endpoint.is_ready() {
            return None;
        }
        if self.opaque {
            return Some(0);
        }
        if only.is_some_and(|only| !only.includes(endpoint)) {
            return None;
        }
        if tried.iter().any(|tried| tried.same_place(endpoint)) {
            let again = !matches!(purpose, Purpose::Hedge | Purpose::Replacement);
            return again.then_some(AGAIN);
        }
        let near = among.are_in_localities() && tried.iter().any(|tried| tried.is_near(endpoint));
        Some(u8::from(near))
    }

    #[cold]
    fn none_ready(&self, endpoints: &[Arc<Endpoint>], wanted: Wanted<'_>) -> Picked {
        let mut failed = None;
        let mut others = 0;
        let wanted = |endpoint: &Endpoint| wanted.only.is_none_or(|only| only.includes(endpoint));
        for endpoint in endpoints.iter().filter(|endpoint| wanted(endpoint)) {
            match endpoint.last_error() {
                // In its first connect, or back in one after a loss.
                None => return Picked::Wait,
                Some(error) if failed.is_none() => failed = Some((&endpoint.name, error)),
                Some(_) => others += 1,
            }
        }
        let discovery = self.shared.discovery.lock();
        if discovery.pending {
            return Picked::Wait;
        }
        Picked::None(match failed {
            Some((endpoint, error)) => Unavailable::Unreachable {
                endpoint: Arc::clone(endpoint),
                error,
                others,
            },
            None => Unavailable::Empty(discovery.error.clone()),
        })
    }

    /// Ends when an endpoint became ready or failed, or the set changed, after this was called.
    ///
    /// Call it before the [`pick`](Self::pick) that may say [`Picked::Wait`]; then no change in between is missed.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.shared.changed.notified()
    }

    /// Whether an attempt for `purpose` would find an endpoint. Has no side effect.
    pub(crate) fn has_ready<'a>(
        &self,
        tried: &[Arc<Endpoint>],
        wanted: impl Into<Wanted<'a>>,
    ) -> bool {
        let wanted = wanted.into();
        let endpoints = self.shared.endpoints.load();
        endpoints
            .iter()
            .any(|endpoint| self.rank(&endpoints, endpoint, tried, wanted).is_some())
    }

    /// Whether an attempt for `purpose` finds none ready now, but one may become so before long:
    /// it is being connected, for the first time or after a loss.
    pub(crate) fn is_worth_waiting(&self, tried: &[Arc<Endpoint>], wanted: Wanted<'_>) -> bool {
        let endpoints = self.shared.endpoints.load();
        let elsewhere = matches!(wanted.purpose, Purpose::Hedge | Purpose::Replacement);
        let mut coming = false;
        for endpoint in endpoints.iter() {
            if self.rank(&endpoints, endpoint, tried, wanted).is_some() {
                return false;
            }
            let taken = elsewhere && tried.iter().any(|tried| tried.same_place(endpoint))
                || wanted.only.is_some_and(|only| !only.includes(endpoint));
            coming |= !taken && !endpoint.is_ready() && endpoint.last_error().is_none();
        }
        coming
    }

    /// Whether one of these endpoints is connected, or being connected with nothing known against it.
    pub(crate) fn may_serve(&self, destination: &Destination) -> bool {
        let endpoints = self.shared.endpoints.load();
        let up = |it: &Endpoint| it.is_ready() || it.last_error().is_none();
        let mut chosen = endpoints.iter().filter(|it| destination.includes(it));
        self.opaque || chosen.any(|it| up(it))
    }

    /// A call could not connect.
    ///
    /// Of a connection that is watched this is known already, and better: the call may have met the one
    /// before. A Unix socket leaves the ready ones and is connected again. A ready-made channel stays.
    pub(crate) fn report_unreachable(&self, endpoint: &Arc<Endpoint>, error: impl Into<Arc<str>>) {
        if let super::Route::Tonic(_) = endpoint.route
            && let Some(link) = &*endpoint.hot.link.load()
            && !link.watched
        {
            link.health.lose(error);
        }
    }

    /// Whether all attempts go through one channel that hides where they go.
    pub(crate) fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// All endpoints, connected or not.
    pub(crate) fn snapshot(&self) -> Arc<Members> {
        self.shared.endpoints.load_full()
    }
}

impl fmt::Debug for EndpointSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSet")
            .field("endpoints", &&***self.shared.endpoints.load())
            .field("opaque", &self.opaque)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(None) => f.write_str("the channel has no endpoint"),
            Self::Empty(Some(error)) => write!(f, "the channel has no endpoint: {error}"),
            Self::Unreachable {
                endpoint,
                error,
                others,
            } => {
                write!(f, "no endpoint is connected: {endpoint}: {error}")?;
                match others {
                    0 => Ok(()),
                    others => write!(f, " (and {others} more)"),
                }
            }
            Self::NoOther => f.write_str("no other endpoint is connected"),
        }
    }
}
