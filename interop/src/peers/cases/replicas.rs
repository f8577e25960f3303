//! Two servers of a peer, the clients that call them, and the requests that script them.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use interop::{
    Mode,
    peer::Peer,
    probe::{self, ProbeReply, ProbeRequest, probe_client::ProbeClient},
};
use tonic::{Response, Status};
use tonic_hedge::{
    BudgetPolicy, Builder, CallLog, EndpointMeasured, EndpointState, HedgedChannel, ResponseExt,
};

use super::Failed;

/// Longer than any case: a server that holds its answer for so long never gives it.
pub(super) const NEVER_MS: u32 = 600_000;

/// More calls than the picker needs to have chosen each endpoint.
pub(super) const ROUNDS: usize = 200;

/// Calls until a live quantile is trusted, and some.
const WARM_UP: u32 = 30;

/// Two servers of one peer.
pub(super) struct Replicas {
    pub(super) a: Peer,
    pub(super) b: Peer,
    command: Vec<String>,
    descriptors: PathBuf,
}

/// A client, and the channel under it.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) probe: ProbeClient<HedgedChannel>,
    pub(super) channel: HedgedChannel,
}

impl Replicas {
    pub(super) async fn start(command: &[String], descriptors: &Path) -> Result<Self, Failed> {
        let (a, b) = tokio::try_join!(
            start("a", command, descriptors, None),
            start("b", command, descriptors, None)
        )?;
        Ok(Self {
            a,
            b,
            command: command.to_owned(),
            descriptors: descriptors.to_owned(),
        })
    }

    /// A new process in the place of `a`, on the same port.
    pub(super) async fn restart_a(&mut self) -> Result<(), Failed> {
        self.a.kill().await?;
        self.a = start("a", &self.command, &self.descriptors, Some(self.a.port)).await?;
        Ok(())
    }

    /// A client whose channel is connected to both, and hedges as the mode says.
    pub(super) async fn client(&self, mode: Mode) -> Result<Client, Failed> {
        self.client_with(mode, |builder| builder).await
    }

    /// The same, but for what the case changes.
    pub(super) async fn client_with(
        &self,
        mode: Mode,
        change: impl FnOnce(Builder) -> Builder,
    ) -> Result<Client, Failed> {
        // A server's first call may take long, and the picker would remember it.
        for peer in [&self.a, &self.b] {
            catch_up(peer).await?;
        }
        let uris = [&self.a, &self.b].map(|peer| format!("http://127.0.0.1:{}", peer.port));
        let mut builder = HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            // A case asks for more hedges than calls usually earn.
            .budget(BudgetPolicy::default().initial(100.0).ratio(1.0));
        if let Some(hedge) = mode.hedge() {
            builder = builder.hedge(hedge);
        }
        let channel = change(builder).build()?;
        let mut probe = ProbeClient::new(channel.clone());
        loop {
            probe.put(request()).await?;
            let endpoints = channel.measured().endpoints;
            // One that has never answered is taken for slow while it is asked.
            let known =
                |e: &EndpointMeasured| e.state == EndpointState::Ready && e.latency.is_some();
            if endpoints.iter().all(known) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if mode == Mode::On {
            for _ in 0..WARM_UP {
                probe.get(request()).await?;
            }
        }
        Ok(Client { probe, channel })
    }

    /// The server of this name, and the other.
    pub(super) fn by_name(&self, name: &str) -> Result<(&Peer, &Peer), Failed> {
        match name {
            "a" => Ok((&self.a, &self.b)),
            "b" => Ok((&self.b, &self.a)),
            _ => Err(format!("a replica called {name:?}").into()),
        }
    }

    /// Waits for the first server that the call `id` reaches.
    pub(super) async fn arrival(&self, id: &str) -> Result<&Peer, Failed> {
        tokio::select! {
            arrived = self.a.event("arrived", id) => arrived.map(|_| &self.a),
            arrived = self.b.event("arrived", id) => arrived.map(|_| &self.b),
        }
    }

    /// How often a call that has ended reached a server.
    pub(super) async fn arrivals(&self, id: &str) -> Result<usize, Failed> {
        let mut arrivals = 0;
        for peer in [&self.a, &self.b] {
            catch_up(peer).await?;
            arrivals += peer.events("arrived", id).len();
        }
        Ok(arrivals)
    }
}

async fn start(
    name: &'static str,
    command: &[String],
    descriptors: &Path,
    port: Option<u16>,
) -> Result<Peer, Failed> {
    let descriptors = descriptors.to_str().ok_or("not a path of text")?;
    Peer::start_at(name, command, &[("INTEROP_DESCRIPTORS", descriptors)], port).await
}

/// Waits until all that the server has seen so far is known here.
pub(super) async fn catch_up(peer: &Peer) -> Result<(), Failed> {
    // A server's output comes later than its answer, but in order: what follows a call that is
    // told is told too.
    let fence = request();
    let uri = format!("http://127.0.0.1:{}", peer.port);
    let channel = HedgedChannel::builder().endpoints([uri]).build()?;
    ProbeClient::new(channel).put(fence.clone()).await?;
    peer.event("finished", &fence.id).await?;
    Ok(())
}

/// A request with an id of its own, which is answered at once.
pub(super) fn request() -> ProbeRequest {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Only unique: nothing else is ordered by it.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    ProbeRequest {
        id: format!("call-{id}"),
        ..ProbeRequest::default()
    }
}

/// The same where one replica is slow, if the mode says so.
pub(super) fn request_in(mode: Mode) -> ProbeRequest {
    let mut request = request();
    if mode == Mode::Slow {
        request.slow_replica = "b".to_owned();
        request.slow_ms = u32::try_from(Mode::SLOWNESS.as_millis()).unwrap_or(u32::MAX);
    }
    request
}

/// The name of one of the servers, by lot: the picker learns from each call, and any pattern could
/// be its own.
pub(super) fn either() -> &'static str {
    if fastrand::bool() { "a" } else { "b" }
}

pub(super) fn log_of<T: ResponseExt>(result: &T) -> Result<&CallLog, Failed> {
    result.call_log().ok_or_else(|| "no call log".into())
}

pub(super) fn failure(result: Result<Response<ProbeReply>, Status>) -> Result<Status, Failed> {
    match result {
        Ok(response) => Err(format!("OK instead of a failure: {response:?}").into()),
        Err(status) => Ok(status),
    }
}
