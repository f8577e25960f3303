//! A client that calls over TLS, and what it sees of its endpoints.

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::servers::is_held;
use interop::{
    Mode,
    probe::{self, ProbeRequest, probe_client::ProbeClient},
};
use tonic::{
    Request, Status,
    transport::{ClientTlsConfig, Endpoint},
};
use tonic_hedge::{
    AttemptOutcome, BudgetPolicy, CallLog, EndpointMeasured, EndpointState, HedgedChannel,
    ResponseExt as _,
};

/// The name that all replicas have in common. They are dialled by their addresses.
pub(crate) const NAME: &str = "search.internal";

/// The deadline of each call: what fails, fails long before it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Calls until a live quantile is trusted, and some.
const WARM_UP: u64 = 30;

/// Hedges that are to win, and the calls that there may be until they have.
const HEDGES: u32 = 3;
const ROUNDS: u32 = 200;

/// Longer than any deadline.
const NEVER_MS: u32 = 600_000;

pub(crate) struct Client {
    probe: ProbeClient<HedgedChannel>,
    channel: HedgedChannel,
    mode: Mode,
}

impl Client {
    /// Connects to nothing yet.
    pub(crate) fn new(
        ports: &[u16],
        tls: &ClientTlsConfig,
        mode: Mode,
    ) -> Result<Self, Box<dyn Error>> {
        let endpoints = ports.iter().map(|port| {
            let endpoint = Endpoint::new(format!("https://127.0.0.1:{port}"))?;
            endpoint.tls_config(tls.clone())
        });
        let mut builder = HedgedChannel::builder()
            .endpoints(endpoints.collect::<Result<Vec<_>, _>>()?)
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            // A case asks for more hedges than calls usually earn.
            .budget(BudgetPolicy::default().initial(100.0).ratio(1.0));
        if let Some(hedge) = mode.hedge() {
            builder = builder.hedge(hedge);
        }
        let channel = builder.build()?;
        Ok(Self {
            probe: ProbeClient::new(channel.clone()),
            channel,
            mode,
        })
    }

    /// One call, answered at once: the name of the endpoint that answered.
    pub(crate) async fn call(&mut self) -> Result<String, Status> {
        self.get(next() * 2).await.map(|(endpoint, _)| endpoint)
    }

    /// One call that may not be repeated.
    pub(crate) async fn put(&mut self) -> Result<(), Status> {
        let request = ProbeRequest {
            id: (next() * 2).to_string(),
            ..ProbeRequest::default()
        };
        self.probe.put(with_deadline(request)).await.map(drop)
    }

    /// Calls until each endpoint is connected or has failed to be. No call fails meanwhile.
    pub(crate) async fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            self.call().await?;
            self.put().await?;
            let known = |e: &EndpointMeasured| {
                e.last_error.is_some() || (e.state == EndpointState::Ready && e.latency.is_some())
            };
            if self.endpoints().iter().all(known) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Calls of every kind, which are all answered: some by a hedge, where the mode has hedges and
    /// originals are held. Returns who answered, in order.
    pub(crate) async fn calls(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        let mut answered = Vec::new();
        for _ in 0..WARM_UP {
            answered.push(self.call().await?);
            self.put().await?;
        }
        let mut hedges = 0;
        for _ in 0..ROUNDS {
            if self.mode == Mode::Off || hedges == HEDGES {
                return Ok(answered);
            }
            let (endpoint, hedge_won) = self.get(next() * 2 + 1).await?;
            answered.push(endpoint);
            hedges += u32::from(hedge_won);
        }
        Err(format!("{hedges} hedges won in {ROUNDS} calls").into())
    }

    /// The endpoint at this port.
    pub(crate) fn endpoint(&self, port: u16) -> Result<EndpointMeasured, Box<dyn Error>> {
        let name = format!("127.0.0.1:{port}");
        let found = self.endpoints().into_iter().find(|e| *e.name == *name);
        found.ok_or_else(|| format!("no endpoint {name}").into())
    }

    fn endpoints(&self) -> Vec<EndpointMeasured> {
        self.channel.measured().endpoints
    }

    async fn get(&mut self, call: u64) -> Result<(String, bool), Status> {
        let mut request = ProbeRequest {
            id: call.to_string(),
            ..ProbeRequest::default()
        };
        if is_held(call) {
            // Of the Go peer, which knows no script: one replica, by lot, answers nothing.
            request.only_replica = if fastrand::bool() { "a" } else { "b" }.to_owned();
            request.delay_ms = NEVER_MS;
        }
        let response = self.probe.get(with_deadline(request)).await?;
        let attempts = response
            .call_log()
            .map(CallLog::attempts)
            .unwrap_or_default();
        let won = attempts
            .iter()
            .find(|a| matches!(a.outcome(), AttemptOutcome::Won(_)));
        let endpoint = won.map(|won| won.endpoint().to_owned()).unwrap_or_default();
        Ok((endpoint, response.hedge_won()))
    }
}

fn with_deadline(request: ProbeRequest) -> Request<ProbeRequest> {
    let mut request = Request::new(request);
    request.set_timeout(TIMEOUT);
    request
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Only unique: nothing else is ordered by it.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
