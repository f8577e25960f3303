//! Lanes: adaptive limits of concurrency by importance, before a channel or in a server.

mod body;
mod builder;
mod error;
mod held;
mod layer;
mod learned;
mod measured;
mod scope;
mod shed;
mod unread;

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, request::Parts};
use tokio::time::Instant;
use tonic_hedge_engine::lane::{Lane, Permit, RoundTrip, Tenants};

pub use body::LaneBody;
pub use builder::LanesBuilder;
pub use error::LanesError;
pub use layer::{LaneFuture, LaneLayer, LaneService};
pub(crate) use scope::current;
pub(crate) use shed::LANE_SHED;

pub use measured::{LaneMeasured, TenantMeasured};

use self::layer::Side;
use crate::{
    criticality::Criticality,
    telemetry::{Measure, Measures, Metrics},
};

/// Adaptive limits of concurrency, a lane for each class of calls. A clone is the same lanes.
///
/// A call gets a place in its lane, or is shed at once: before anything is buffered, spawned or
/// connected, and without waiting. Each lane has a limit of its own that follows what its calls
/// meet ([`LanePolicy`](crate::LanePolicy)), so that a flood of batch calls sheds batch calls. A
/// lane's `minimum` is what it has whatever happens: give the important ones a generous one.
///
/// They work in two places, and in both at once:
/// - in a client, around a [`HedgedChannel`](crate::HedgedChannel) ([`Lanes::client_layer`]): one
///   place for a call. A call that is shed never reaches the channel, nor its breaker;
/// - in a tonic server, as a layer of its `Server::builder()` ([`Lanes::server_layer`]).
///
/// A hedge needs a place of its own: of its call in the client's lane, else of the request that
/// its call is made for in the server's lane. It gets one only where a call would, and is else held
/// (`lane`). A call that is polled by a task which the handler spawned is for no request.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge::{LanePolicy, Lanes};
///
/// let policy = LanePolicy::default().target(Duration::from_secs(8));
/// let lanes = Lanes::builder()
///     // From the most to the least important.
///     .lane("interactive", policy.clone().minimum(50).maximum(900))
///     .lane("batch", policy.maximum(300))
///     .tenant_key("x-tenant")
///     .build()?;
/// // tower::ServiceBuilder::new().layer(lanes.client_layer()).service(channel)
/// // tonic::transport::Server::builder().layer(lanes.server_layer())
/// for lane in lanes.measured() {
///     println!("{}: {} of {}", lane.name, lane.in_flight, lane.limit);
/// }
/// # Ok::<(), tonic_hedge::LanesError>(())
/// ```
///
/// # Which lane
/// By the call's [`Criticality`]: a critical one has the first lane, a sheddable one the last, and
/// one that says nothing the second of three or more, else the first. Or by a function of the
/// user's ([`LanesBuilder::lane_of`]).
///
/// # What is shed
/// A gRPC call ends with RESOURCE_EXHAUSTED, in a response that is nothing but a status: with
/// `google.rpc.RetryInfo` and `grpc-retry-pushback-ms`, which a [`HedgedChannel`](crate::HedgedChannel)
/// and gRPC's own clients honour, and `x-lane-shed` with the lane's name. Any other request gets
/// HTTP's 429 with `retry-after`. The time is about a round trip, longer the more are shed, and
/// drawn so that those who were shed together do not come back together: 100 ms to 10 s.
///
/// # What a lane learns from
/// The time from admission to the end of the answer (or its first message), and the status.
/// RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, a service that fails without a status, and
/// a call that is dropped when its `grpc-timeout` has passed are overloads. All other ends are
/// answers. A call that is cancelled, one that a lane further in has shed, and one of which its
/// channel has sent nothing (its breaker is open) say nothing.
///
/// # Tenants
/// With [`LanesBuilder::tenant_key`] or [`LanesBuilder::tenant_of`] each lane is divided among the
/// tenants that use it: see [`TenantPolicy`](crate::TenantPolicy).
#[derive(Clone)]
pub struct Lanes(Arc<Shared>);

struct Shared {
    epoch: Instant,
    /// From the most to the least important; at least one.
    lanes: Box<[Named]>,
    lane_of: Option<Function>,
    tenants: Option<(TenantOf, Tenants)>,
    metrics: Metrics,
}

struct Named {
    name: Arc<str>,
    /// The name, for a response.
    value: HeaderValue,
    round_trip: RoundTrip,
    lane: Lane,
}

/// Reads a name from a request's head.
type Function = Box<dyn for<'a> Fn(&'a Parts) -> Option<&'a str> + Send + Sync>;

enum TenantOf {
    Key(HeaderName),
    Function(Function),
}

impl Lanes {
    /// What lanes are made from.
    pub fn builder() -> LanesBuilder {
        LanesBuilder::default()
    }

    /// A layer for a client, around a [`HedgedChannel`](crate::HedgedChannel). All layers of the
    /// same lanes share their limits.
    pub fn client_layer(&self) -> LaneLayer {
        LaneLayer::new(self.clone(), Side::Client)
    }

    /// A layer for a tonic server.
    ///
    /// It answers a call that it sheds once the request has arrived (the first 64 KiB of it,
    /// and for at most 50 ms), and throws that away: an answer that is sooner than its request
    /// costs the connection, if there are many.
    pub fn server_layer(&self) -> LaneLayer {
        LaneLayer::new(self.clone(), Side::Server)
    }

    /// The lanes' limits, and what they let in and shed, from the most to the least important.
    pub fn measured(&self) -> Vec<LaneMeasured> {
        LaneMeasured::all(&self.0, self.0.now())
    }

    /// Goes on from a limit that was learnt before, within the lane's bounds: a process that has
    /// just started need not find it out again. `false` if there is no such lane.
    pub fn resume(&self, lane: &str, limit: u32) -> bool {
        let known = self.0.lanes.iter().find(|known| &*known.name == lane);
        if let Some(known) = known {
            known.lane.resume(limit);
        }
        known.is_some()
    }
}

impl Shared {
    /// Since the lanes were made: the time of all that they are told.
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The lane of a request that says so little.
    fn by_criticality(&self, criticality: Criticality) -> usize {
        let last = self.lanes.len() - 1;
        match criticality {
            Criticality::Critical => 0,
            Criticality::Default if last >= 2 => 1,
            Criticality::Default => 0,
            Criticality::Sheddable => last,
        }
    }

    /// The lane that the user's function names, if there is one.
    fn by_function(&self, head: &Parts) -> Option<usize> {
        let name = self.lane_of.as_ref()?(head)?;
        self.lanes.iter().position(|lane| &*lane.name == name)
    }

    fn try_admit(&self, now: Duration, head: &Parts, lane: usize) -> Option<Permit> {
        let Some((tenant_of, tenants)) = &self.tenants else {
            return self.lanes[lane].lane.try_admit(now);
        };
        let tenant = match tenant_of {
            TenantOf::Key(key) => head.headers.get(key).and_then(|it| it.to_str().ok()),
            TenantOf::Function(tenant_of) => tenant_of(head),
        };
        tenants.try_admit(now, tenant, lane)
    }
}

impl Measure for Shared {
    fn what(&self) -> Measures {
        Measures::Lanes
    }

    fn lanes(&self) -> Vec<LaneMeasured> {
        LaneMeasured::all(self, self.now())
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.lanes.iter().map(|lane| &lane.name);
        f.debug_list().entries(names).finish()
    }
}
