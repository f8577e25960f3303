//! The ways to make the same call to the same servers.

use std::{net::SocketAddr, time::Duration};

use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{Hedge, HedgedChannel};

use crate::{
    args::Outcome,
    at_once::probe::{FILE_DESCRIPTOR_SET, ProbeRequest, probe_client::ProbeClient},
    calls::{Call, Callers, Generated},
    tower_hedge::{Hedging, TowerHedge},
};

/// A threshold that no call here reaches.
const NEVER: Duration = Duration::from_secs(10);

/// `tower::hedge` looks through all buckets of a millisecond below its threshold, so that one of 10 s
/// would be charged for what no service's costs. It hedges nothing here, whatever is slow.
const TOWERS: Duration = Duration::from_millis(25);

/// No message is larger: larger requests are not buffered, and so not armed.
const BUFFERED: usize = 4 << 20;

/// A way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// tonic's `Channel::balance_list`.
    Plain,
    /// tonic's channels, one for each server, which take turns for each caller: the least that any
    /// design costs which chooses where a call goes. Each has a queue and a task of its own.
    ByHand,
    /// Through a `HedgedChannel`, a method that is not idempotent: one attempt, passed through.
    PassThrough,
    /// Through a `HedgedChannel`, an idempotent method that never gets slow enough to hedge:
    /// buffered, measured and timed.
    Armed,
    /// `tower::hedge` over `Plain`, which hedges nothing either.
    TowerHedge,
}

impl Case {
    /// The one that the others are compared with comes first.
    pub(crate) const ALL: [Self; 5] = [
        Self::Plain,
        Self::ByHand,
        Self::PassThrough,
        Self::Armed,
        Self::TowerHedge,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ByHand => "by_hand",
            Self::PassThrough => "pass_through",
            Self::Armed => "armed",
            Self::TowerHedge => "tower_hedge",
        }
    }

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|case| case.name() == name);
        found.ok_or_else(|| format!("no case {name}"))
    }

    /// So many callers over one channel. Must be called within the runtime that makes the calls.
    pub(crate) fn callers(
        self,
        servers: &[SocketAddr],
        callers: usize,
    ) -> Outcome<Box<dyn Callers>> {
        let uris = servers.iter().map(|addr| format!("http://{addr}"));
        if matches!(self, Self::Plain | Self::TowerHedge) {
            let endpoints: Result<Vec<_>, _> = uris.map(Endpoint::from_shared).collect();
            let channel = Channel::balance_list(endpoints?.into_iter());
            let client = ProbeClient::new(channel);
            return Ok(match self {
                Self::TowerHedge => each(callers, || {
                    TowerHedge::new(client.clone(), TOWERS, Hedging(false))
                }),
                _ => each(callers, || Generated::Get(client.clone())),
            });
        }
        if self == Self::ByHand {
            let clients = uris
                .map(|uri| Ok(ProbeClient::new(Endpoint::from_shared(uri)?.connect_lazy())))
                .collect::<Outcome<Vec<_>>>()?;
            let mut first = 0;
            return Ok(each(callers, || {
                first += 1;
                ByHand {
                    clients: clients.clone(),
                    turn: first,
                }
            }));
        }
        let channel = HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(FILE_DESCRIPTOR_SET)
            .hedge(Hedge::at(0.95).minimum_delay(NEVER))
            .buffer_limit(BUFFERED)
            .build()?;
        let client = ProbeClient::new(channel);
        Ok(match self {
            Self::PassThrough => each(callers, || Generated::Put(client.clone())),
            _ => each(callers, || Generated::Get(client.clone())),
        })
    }
}

/// A caller's own clients, which take turns.
struct ByHand {
    clients: Vec<ProbeClient<Channel>>,
    turn: usize,
}

impl Call for ByHand {
    async fn call(&mut self, request: ProbeRequest) -> Outcome<()> {
        self.turn = (self.turn + 1) % self.clients.len();
        self.clients[self.turn].get(request).await?;
        Ok(())
    }
}

fn each<C>(callers: usize, new: impl FnMut() -> C) -> Box<dyn Callers>
where
    Vec<C>: Callers + 'static,
{
    Box::new(
        std::iter::repeat_with(new)
            .take(callers)
            .collect::<Vec<_>>(),
    )
}
