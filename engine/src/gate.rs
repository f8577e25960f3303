//! The seven gates of a hedge, and the holds that follow them, judged over a snapshot.
//!
//! Asking has no side effect: the budget's gate reads a balance that the caller has looked up,
//! and the caller withdraws only when everything else holds.

use std::{borrow::Cow, time::Duration};

/// One of the seven conditions that must all hold before a hedge starts.
///
/// The order is the order of reports: the first that fails is the reason of a suppressed hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Gate {
    /// A hedge policy applies to the method.
    HedgeConfigured = 1,
    /// The proto option or the request says so, the call is unary, the body fits the buffer.
    Repeatable = 2,
    /// The breaker is closed.
    BreakerClosed = 3,
    /// Failures are below `suppress_at` x the breaker's trip point as it was before the window.
    ErrorRate = 4,
    /// The estimate has its minimum of samples.
    Samples = 5,
    /// The budget funds one more attempt.
    Budget = 6,
    /// Somebody waits for the answer.
    NotSheddable = 7,
}

impl Gate {
    /// All seven, in order.
    pub const ALL: [Self; 7] = [
        Self::HedgeConfigured,
        Self::Repeatable,
        Self::BreakerClosed,
        Self::ErrorRate,
        Self::Samples,
        Self::Budget,
        Self::NotSheddable,
    ];

    /// 1 to 7.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name that telemetry uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::HedgeConfigured => "hedge_configured",
            Self::Repeatable => "repeatable",
            Self::BreakerClosed => "breaker_closed",
            Self::ErrorRate => "error_rate",
            Self::Samples => "samples",
            Self::Budget => "budget",
            Self::NotSheddable => "not_sheddable",
        }
    }
}

/// Any further reason to keep a hedge back, reported after the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Hedges do not win often enough (opt-in).
    WinRate,
    /// The plan of [`Hedge::within`](crate::policy::Hedge::within) has no load to spare for it.
    Load,
    /// This process is the bottleneck (opt-in).
    Saturation,
    /// No endpoint that the call does not use already is connected.
    OtherEndpoint,
    /// The call's lane, or its tenant's share of it, has no place for one more.
    Lane,
    /// The call is part of a hedge already: one that came through a server.
    Inherited,
    /// `max_attempts` are launched.
    MaxAttempts,
    /// Too little of the deadline is left.
    Deadline,
}

impl Hold {
    /// The name that telemetry uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::WinRate => "win_rate",
            Self::Load => "load",
            Self::Saturation => "saturation",
            Self::OtherEndpoint => "other_endpoint",
            Self::Lane => "lane",
            Self::Inherited => "inherited",
            Self::MaxAttempts => "max_attempts",
            Self::Deadline => "deadline",
        }
    }
}

/// What one condition said.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Whether it holds.
    pub holds: bool,
    /// What was observed.
    pub observed: Value,
    /// The limit that it was observed against.
    pub limit: Value,
}

impl Reading {
    /// A reading.
    pub fn new(holds: bool, observed: impl Into<Value>, limit: impl Into<Value>) -> Self {
        Self {
            holds,
            observed: observed.into(),
            limit: limit.into(),
        }
    }
}

/// An observed value or a limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing was measured, or there is no limit.
    None,
    /// Yes or no.
    Bool(bool),
    /// A count.
    Count(u64),
    /// A share or a number of tokens.
    Number(f64),
    /// A time.
    Time(Duration),
    /// A state's name.
    Text(Cow<'static, str>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}
impl From<Duration> for Value {
    fn from(value: Duration) -> Self {
        Self::Time(value)
    }
}
impl From<&'static str> for Value {
    fn from(value: &'static str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bool(value) => value.fmt(f),
            Self::Count(value) => value.fmt(f),
            Self::Number(value) => write!(f, "{value:.3}"),
            Self::Time(value) => write!(f, "{value:?}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

/// Why a hedge was kept back: the first gate or hold that did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A gate.
    Gate(Gate),
    /// A hold.
    Hold(Hold),
}

impl Reason {
    /// The name that telemetry uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gate(gate) => gate.name(),
            Self::Hold(hold) => hold.name(),
        }
    }
}

/// Everything that the gates look at: a snapshot, taken when they are asked.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whether a hedge policy applies.
    pub configured: bool,
    /// `Ok`, or why the call cannot be repeated.
    pub repeatable: Result<&'static str, &'static str>,
    /// The breaker's state; `None` where the channel has no breaker.
    pub breaker: Option<BreakerReading>,
    /// [`Hedge::suppress_at`](crate::policy::Hedge::suppress_at).
    pub suppress_at: f64,
    /// Recent samples.
    pub samples: u64,
    /// Samples needed; `None` where the delay is not measured, or a cold-start threshold serves.
    pub minimum_samples: Option<u64>,
    /// Tokens in the budget; `None` where the channel has no budget.
    pub budget: Option<f64>,
    /// The call's criticality.
    pub criticality: &'static str,
    /// Whether the criticality allows shedding.
    pub sheddable: bool,
}

/// What a breaker measures, read without changing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerReading {
    /// Closed, open or half-open.
    pub state: BreakerState,
    /// Outcomes in the window.
    pub calls: u64,
    /// Failures in the window.
    pub failures: u64,
    /// Failures per outcome; `None` under the minimum of calls or two failures.
    pub error_rate: Option<f64>,
    /// The failure rate of the last 10 minutes; `None` without outcomes.
    pub baseline: Option<f64>,
    /// The rate that opens it.
    pub trip_point: f64,
    /// What gate 4 takes for the trip point: the same, from what was usual before the window,
    /// and the policy's `floor` while fewer than its `minimum_calls` came before. An incident is
    /// no excuse for itself, and a process that knows nothing yet does not hedge into failures.
    pub hedging_trip_point: f64,
}

/// A breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls are answered at once.
    Open,
    /// One probe decides.
    HalfOpen,
}

impl BreakerState {
    /// The name that telemetry uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What the seven gates, and the holds that were asked, said.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// One reading for each of [`Gate::ALL`].
    pub gates: [Reading; 7],
    /// The holds, in the order in which they were asked.
    pub holds: Vec<(Hold, Reading)>,
}

impl Report {
    /// Asks all seven.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self {
            gates: Gate::ALL.map(|gate| gate.ask(snapshot)),
            holds: Vec::new(),
        }
    }

    /// The first reason to keep the hedge back.
    pub fn reason(&self) -> Option<Reason> {
        let gate = Gate::ALL
            .into_iter()
            .zip(&self.gates)
            .find(|(_, reading)| !reading.holds)
            .map(|(gate, _)| Reason::Gate(gate));
        gate.or_else(|| {
            self.holds
                .iter()
                .find(|(_, reading)| !reading.holds)
                .map(|(hold, _)| Reason::Hold(*hold))
        })
    }
}

impl Gate {
    /// Asks this gate alone.
    pub fn ask(self, at: &Snapshot) -> Reading {
        match self {
            Self::HedgeConfigured => Reading::new(at.configured, at.configured, true),
            Self::Repeatable => match at.repeatable {
                Ok(why) => Reading::new(true, why, true),
                Err(why_not) => Reading::new(false, why_not, true),
            },
            Self::BreakerClosed => match &at.breaker {
                None => Reading::new(true, Value::None, BreakerState::Closed.name()),
                Some(breaker) => Reading::new(
                    breaker.state == BreakerState::Closed,
                    breaker.state.name(),
                    BreakerState::Closed.name(),
                ),
            },
            Self::ErrorRate => match &at.breaker {
                None => Reading::new(true, Value::None, Value::None),
                Some(breaker) => {
                    let limit = at.suppress_at * breaker.hedging_trip_point;
                    let holds = breaker.error_rate.is_none_or(|rate| rate < limit);
                    Reading::new(holds, breaker.error_rate, limit)
                }
            },
            Self::Samples => {
                let holds = at.minimum_samples.is_none_or(|least| at.samples >= least);
                Reading::new(holds, at.samples, at.minimum_samples)
            }
            Self::Budget => {
                let holds = at.budget.is_none_or(|tokens| tokens >= 1.0);
                Reading::new(holds, at.budget, 1.0)
            }
            Self::NotSheddable => Reading::new(!at.sheddable, at.criticality, "sheddable"),
        }
    }
}
