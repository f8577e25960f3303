//! The three ways to make the same call.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{Hedge, HedgedChannel};

use crate::{
    Outcome,
    at_once::probe::{ProbeRequest, probe_client::ProbeClient},
};

/// A threshold that no call here reaches.
pub(crate) const NEVER: Duration = Duration::from_secs(10);

/// A way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// tonic's `Channel::balance_list`.
    Plain,
    /// Through a `HedgedChannel`, a method that is not idempotent: one attempt, passed through.
    Once,
    /// Through a `HedgedChannel`, an idempotent method that never gets slow enough to hedge:
    /// buffered, measured and timed.
    Hedgeable,
}

/// A case, connected.
#[derive(Clone)]
pub(crate) enum Client {
    Plain(ProbeClient<Channel>),
    Once(ProbeClient<HedgedChannel>),
    Hedgeable(ProbeClient<HedgedChannel>),
}

impl Case {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Once, Self::Hedgeable];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Once => "once",
            Self::Hedgeable => "hedgeable",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.name() == name)
    }

    /// Must be called within the runtime that makes the calls.
    pub(crate) fn client(self, servers: &[SocketAddr]) -> Outcome<Client> {
        let uris = servers.iter().map(|addr| format!("http://{addr}"));
        if self == Self::Plain {
            let endpoints: Result<Vec<_>, _> = uris.map(Endpoint::from_shared).collect();
            let channel = Channel::balance_list(endpoints?.into_iter());
            return Ok(Client::Plain(ProbeClient::new(channel)));
        }
        let channel = HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(crate::at_once::probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::at(0.95).minimum_delay(NEVER))
            .build()?;
        let client = ProbeClient::new(channel);
        Ok(match self {
            Self::Hedgeable => Client::Hedgeable(client),
            _ => Client::Once(client),
        })
    }
}

impl Client {
    async fn call(&mut self, request: ProbeRequest) -> Result<(), tonic::Status> {
        match self {
            Self::Plain(client) => client.get(request).await.map(drop),
            Self::Once(client) => client.put(request).await.map(drop),
            Self::Hedgeable(client) => client.get(request).await.map(drop),
        }
    }

    /// A closed loop: makes `calls` calls, `in_flight` at a time.
    pub(crate) async fn drive(&self, calls: usize, in_flight: usize) -> Outcome<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..in_flight {
            let (mut client, next) = (self.clone(), Arc::clone(&next));
            callers.spawn(async move {
                // Relaxed: only the number counts.
                while next.fetch_add(1, Ordering::Relaxed) < calls {
                    client.call(ProbeRequest::default()).await?;
                }
                Ok::<_, tonic::Status>(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(())
    }
}
