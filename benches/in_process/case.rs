//! The ways to make the same call, each connected to an immediate service in this process.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tonic_hedge::{BudgetPolicy, Hedge, HedgedChannel};

use crate::{
    args::Outcome,
    at_once::{
        AtOnce,
        probe::{
            FILE_DESCRIPTOR_SET, ProbeRequest, probe_client::ProbeClient, probe_server::ProbeServer,
        },
    },
    calls::{Callers, Generated},
    frozen, pipe,
    tower_hedge::{Hedging, TowerHedge},
};

/// Calls before those that are counted: connections, buffers that grow, the first samples.
const WARM_UP: usize = 200;

/// A threshold that no call here reaches.
const NEVER: Duration = Duration::from_secs(10);

/// One that a call without an answer reaches: the least that there is, so that what a channel does by
/// the clock weighs little.
const SOON: Duration = Duration::from_millis(1);

/// A way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// The generated client over the generated server: no connection.
    Bare,
    /// tonic's `Channel`, over a pipe of memory as all that follow.
    Plain,
    /// `tower::hedge` over `Plain`, with a threshold that is not reached.
    TowerHedge,
    /// A method that is not idempotent: one attempt, passed through.
    PassThrough,
    /// An idempotent method that is never slow enough to hedge: buffered, measured, timed.
    Armed,
    /// Two attempts at once; both are answered.
    HedgedAtOnce,
    /// An original without an answer, and the hedge that the threshold brings.
    HedgedLate,
    /// The same by `tower::hedge`.
    TowerHedgedLate,
}

impl Case {
    pub(crate) const ALL: [Self; 8] = [
        Self::Bare,
        Self::Plain,
        Self::TowerHedge,
        Self::PassThrough,
        Self::Armed,
        Self::HedgedAtOnce,
        Self::HedgedLate,
        Self::TowerHedgedLate,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Plain => "plain",
            Self::TowerHedge => "tower_hedge",
            Self::PassThrough => "pass_through",
            Self::Armed => "armed",
            Self::HedgedAtOnce => "hedged_at_once",
            Self::HedgedLate => "hedged_late",
            Self::TowerHedgedLate => "tower_hedged_late",
        }
    }

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|case| case.name() == name);
        found.ok_or_else(|| format!("no case {name}"))
    }

    /// What it is measured against: itself, if it is alone.
    pub(crate) fn base(self) -> Self {
        match self {
            Self::Bare => Self::Bare,
            _ => Self::Plain,
        }
    }

    /// Makes `calls` calls, one at a time, after those that warm up.
    pub(crate) fn make(self, calls: usize) -> Outcome<()> {
        frozen::runtime()?.block_on(async {
            let (mut callers, channel) = self.connect().await?;
            let request = ProbeRequest::default();
            callers.make(WARM_UP, &request, None).await?;
            frozen::refresh().await;
            callers.make(WARM_UP, &request, None).await?;
            callers.make(calls, &request, None).await?;
            let hedges = channel.map(|channel| {
                let methods = channel.measured().methods;
                methods.iter().map(|method| method.hedges).sum()
            });
            self.check(hedges, (2 * WARM_UP + calls) as u64)
        })
    }

    /// A count is of what it says only if each call was hedged, or none.
    fn check(self, hedges: Option<u64>, calls: u64) -> Outcome<()> {
        let expected = match self {
            Self::HedgedAtOnce | Self::HedgedLate => calls,
            _ => 0,
        };
        match hedges {
            Some(hedges) if hedges != expected => {
                Err(format!("{}: {hedges} hedges of {calls} calls", self.name()).into())
            }
            _ => Ok(()),
        }
    }

    async fn connect(self) -> Outcome<(Box<dyn Callers>, Option<HedgedChannel>)> {
        let service = match self {
            Self::HedgedLate | Self::TowerHedgedLate => AtOnce {
                mute: Some(Arc::new(AtomicUsize::new(0))),
            },
            _ => AtOnce::default(),
        };
        let hedge = match self {
            Self::Bare => {
                let client = ProbeClient::new(ProbeServer::new(service));
                return Ok((Box::new(vec![Generated::Get(client)]), None));
            }
            Self::Plain => {
                let client = ProbeClient::new(pipe::channel(service).await?);
                return Ok((Box::new(vec![Generated::Get(client)]), None));
            }
            Self::TowerHedge | Self::TowerHedgedLate => {
                let client = ProbeClient::new(pipe::channel(service).await?);
                let hedging = Hedging(self == Self::TowerHedgedLate);
                return Ok((Box::new(vec![TowerHedge::new(client, SOON, hedging)]), None));
            }
            Self::PassThrough | Self::Armed => Hedge::at(0.95).minimum_delay(NEVER),
            Self::HedgedAtOnce => Hedge::immediately(),
            Self::HedgedLate => Hedge::after(SOON),
        };
        let channel = HedgedChannel::builder()
            .discover(pipe::three(service).await?)
            .descriptors(FILE_DESCRIPTOR_SET)
            .hedge(hedge)
            // Each call pays for a hedge.
            .budget(BudgetPolicy::default().ratio(1.0))
            .build()?;
        let client = ProbeClient::new(channel.clone());
        let caller = match self {
            Self::PassThrough => Generated::Put(client),
            _ => Generated::Get(client),
        };
        Ok((Box::new(vec![caller]), Some(channel)))
    }
}
