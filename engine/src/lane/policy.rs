//! What the user asks of a lane and of tenants.

use std::{fmt, sync::Arc, time::Duration};

use super::{Aimd, Gradient, LimitAlgorithm};
use crate::policy::PolicyError;

/// Where a lane starts if nobody says: enough for a quiet service not to notice it, and few
/// enough not to hurt a small one.
const FIRST_LIMIT: u32 = 20;

/// How a lane finds its limit, and within which bounds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LanePolicy {
    /// What sets the limit. Default [`LaneAlgorithm::Aimd`].
    pub algorithm: LaneAlgorithm,
    /// The limit never falls below: what the lane has even in an overload that stays. Default 1;
    /// at least 1, at most `maximum`.
    pub minimum: u32,
    /// The limit never rises above. Default 1,000; at least `minimum`.
    pub maximum: u32,
    /// The limit at the start; `minimum` to `maximum`. Default `None`: 20, or the nearest that is
    /// within the bounds.
    pub initial: Option<u32>,
    /// The longest round trip that is healthy: from here on [`LaneAlgorithm::Aimd`] cuts. A single
    /// slow call is enough, so it belongs above the usual tail. Default 1 s; 1 ms to 1 h.
    pub target: Duration,
    /// The least time between two changes; they are a round trip apart in any case. Default
    /// 100 ms; 1 ms to 1 min.
    pub window: Duration,
    /// What a round trip is. Default [`RoundTrip::Answer`].
    pub round_trip: RoundTrip,
}

/// What sets a lane's limit.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum LaneAlgorithm {
    /// Additive increase, multiplicative decrease ([`Aimd`]).
    #[default]
    Aimd,
    /// By the gradient of latency ([`Gradient`]): no target.
    Gradient,
    /// The user's own; see [`LaneAlgorithm::custom`].
    Custom(Custom),
}

/// Makes a user's algorithm for a lane.
type Custom = Arc<dyn Fn(&LanePolicy) -> Box<dyn LimitAlgorithm> + Send + Sync>;

/// What a lane takes for a call's round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoundTrip {
    /// The whole answer.
    #[default]
    Answer,
    /// The wait for its first message: for streams whose length says nothing of the server's
    /// health. The place is held until the stream ends all the same.
    FirstMessage,
}

impl Default for LanePolicy {
    fn default() -> Self {
        Self {
            algorithm: LaneAlgorithm::default(),
            minimum: 1,
            maximum: 1_000,
            initial: None,
            target: Duration::from_secs(1),
            window: Duration::from_millis(100),
            round_trip: RoundTrip::default(),
        }
    }
}

impl LanePolicy {
    /// Sets [`LanePolicy::algorithm`].
    #[must_use]
    pub fn algorithm(mut self, algorithm: LaneAlgorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Sets [`LanePolicy::minimum`].
    #[must_use]
    pub fn minimum(mut self, calls: u32) -> Self {
        self.minimum = calls;
        self
    }

    /// Sets [`LanePolicy::maximum`].
    #[must_use]
    pub fn maximum(mut self, calls: u32) -> Self {
        self.maximum = calls;
        self
    }

    /// Sets [`LanePolicy::initial`].
    #[must_use]
    pub fn initial(mut self, calls: u32) -> Self {
        self.initial = Some(calls);
        self
    }

    /// Sets [`LanePolicy::target`].
    #[must_use]
    pub fn target(mut self, round_trip: Duration) -> Self {
        self.target = round_trip;
        self
    }

    /// Sets [`LanePolicy::window`].
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets [`LanePolicy::round_trip`].
    #[must_use]
    pub fn round_trip(mut self, round_trip: RoundTrip) -> Self {
        self.round_trip = round_trip;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            self.minimum >= 1,
            "Lane.minimum",
            self.minimum,
            "at least 1",
        )?;
        PolicyError::unless(
            self.minimum <= self.maximum,
            "Lane.minimum",
            self.minimum,
            "at most Lane.maximum",
        )?;
        if let Some(initial) = self.initial {
            PolicyError::unless(
                (self.minimum..=self.maximum).contains(&initial),
                "Lane.initial",
                initial,
                "in [Lane.minimum, Lane.maximum]",
            )?;
        }
        PolicyError::unless(
            (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&self.target),
            "Lane.target",
            self.target,
            "in [1ms, 3600s]",
        )?;
        PolicyError::unless(
            (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.window),
            "Lane.window",
            self.window,
            "in [1ms, 60s]",
        )
    }

    /// The limit at the start.
    pub(super) fn first_limit(&self) -> u32 {
        // Not `clamp`: it panics for bounds that `validate` is there to find.
        let initial = self.initial.unwrap_or(FIRST_LIMIT);
        initial.min(self.maximum).max(self.minimum)
    }

    pub(super) fn start(&self) -> Box<dyn LimitAlgorithm> {
        match &self.algorithm {
            LaneAlgorithm::Aimd => Box::new(Aimd::new(self)),
            LaneAlgorithm::Gradient => Box::new(Gradient::new(self)),
            LaneAlgorithm::Custom(make) => make(self),
        }
    }
}

impl LaneAlgorithm {
    /// The user's own: `make` is called once for each lane, with its policy.
    pub fn custom<F>(make: F) -> Self
    where
        F: Fn(&LanePolicy) -> Box<dyn LimitAlgorithm> + Send + Sync + 'static,
    {
        Self::Custom(Arc::new(make))
    }
}

impl fmt::Debug for LaneAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aimd => "Aimd",
            Self::Gradient => "Gradient",
            Self::Custom(_) => "Custom",
        })
    }
}

/// How many tenants are known by name, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantPolicy {
    /// The most tenants with a share of their own; all others are one together, `other`. Default
    /// 1,024; 1 to 65,536. One takes some 100 bytes, and 40 for each lane.
    pub most: u32,
    /// A tenant without a call for so long is forgotten. Default 5 min; 1 s to 24 h.
    pub idle: Duration,
}

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            most: 1_024,
            idle: Duration::from_secs(300),
        }
    }
}

impl TenantPolicy {
    /// Sets [`TenantPolicy::most`].
    #[must_use]
    pub fn most(mut self, tenants: u32) -> Self {
        self.most = tenants;
        self
    }

    /// Sets [`TenantPolicy::idle`].
    #[must_use]
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            (1..=65_536).contains(&self.most),
            "Tenant.most",
            self.most,
            "in [1, 65536]",
        )?;
        PolicyError::unless(
            (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.idle),
            "Tenant.idle",
            self.idle,
            "in [1s, 86400s]",
        )
    }
}
