//! One channel in one round, and the calls that it makes.

use std::{error::Error, sync::Arc, time::Duration};

use interop::{
    Mode, Told, open_loop,
    probe::{self, ProbeRequest, probe_client::ProbeClient},
};
use tokio::{
    task::JoinError,
    time::{Instant, sleep, timeout},
};
use tonic::Request;
use tonic_hedge::{BreakerState, BudgetPolicy, EndpointState, HedgedChannel};

/// Calls before the fault: twice what a threshold needs.
pub(crate) const WARM_UP: u32 = 40;

/// Repeatable calls with the fault, and a tenth as many others, each kind in two seconds. The failures of those
/// count in the same breaker, and a twentieth of all would hold hedges back.
pub(crate) const CALLS: u32 = 100;
pub(crate) const OTHERS: u32 = CALLS / 10;
const PACE: Duration = Duration::from_millis(20);

/// What each call has: time for a late hedge on a machine that is busy with other things.
pub(crate) const DEADLINE: Duration = Duration::from_secs(3);

/// Of an answer, so that there is a middle to cut.
const ANSWER: u32 = 2 << 10;

/// Calls in a row that are answered by a channel that has healed.
const HEALTHY: u32 = 10;

/// An open breaker is open for 5 s, and a lost endpoint is tried again after 10 s at most.
const HEALING: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Half full, as after some traffic. Where nearly every call wants a hedge the default ratio would be
/// spent before the fault comes.
pub(crate) fn budget(mode: Mode) -> BudgetPolicy {
    let budget = BudgetPolicy::default().initial(50.0);
    match mode {
        Mode::Forced => budget.ratio(1.0),
        _ => budget,
    }
}

#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) mode: Mode,
    channel: HedgedChannel,
    /// Begins the ids of its calls.
    round: Arc<str>,
}

impl Caller {
    pub(crate) fn new(
        uris: impl Iterator<Item = String>,
        round: &str,
        mode: Mode,
    ) -> Result<Self, Box<dyn Error>> {
        let mut builder = HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .budget(budget(mode));
        if let Some(hedge) = mode.hedge() {
            builder = builder.hedge(hedge);
        }
        Ok(Self {
            mode,
            channel: builder.build()?,
            round: round.into(),
        })
    }

    /// Connects to all replicas, and measures a threshold.
    pub(crate) async fn warm_up(&self) -> Result<(), Box<dyn Error>> {
        for number in 0..WARM_UP {
            let mut client = ProbeClient::new(self.channel.clone());
            client.get(self.request("warm_up", number)).await?;
            while number == 0 && !self.is_connected() {
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Calls that may be repeated.
    pub(crate) async fn repeatable(&self) -> Result<Told, JoinError> {
        open_loop(CALLS, PACE, |number| {
            let mut client = ProbeClient::new(self.channel.clone());
            let request = self.request("get", number);
            async move { client.get(request).await }
        })
        .await
    }

    /// Calls that may not. They begin `after` a number of the others.
    pub(crate) async fn others(&self, after: u32) -> Result<Told, JoinError> {
        sleep(after * PACE).await;
        open_loop(OTHERS, 10 * PACE, |number| {
            let mut client = ProbeClient::new(self.channel.clone());
            let request = self.request("put", number);
            async move { client.put(request).await }
        })
        .await
    }

    /// Calls until all is as it was before the fault, and says how long that took; `None` if it
    /// takes too long.
    pub(crate) async fn heals(&self) -> Option<Duration> {
        let since = Instant::now();
        let healing = async {
            let (mut number, mut healthy) = (0, 0);
            while healthy < HEALTHY || !self.is_healthy() {
                let mut client = ProbeClient::new(self.channel.clone());
                let answer = client.get(self.request("healing", number)).await;
                healthy = if answer.is_ok() { healthy + 1 } else { 0 };
                number += 1;
                sleep(PAUSE).await;
            }
        };
        timeout(HEALING, healing).await.ok()?;
        Some(since.elapsed())
    }

    /// What begins the ids of its calls of one kind.
    pub(crate) fn id(&self, kind: &str) -> String {
        format!("{}/{}/{kind}/", self.round, self.mode.name())
    }

    fn request(&self, kind: &str, number: u32) -> Request<ProbeRequest> {
        let mut request = Request::new(ProbeRequest {
            id: format!("{}{number}", self.id(kind)),
            response_bytes: ANSWER,
            ..ProbeRequest::default()
        });
        request.set_timeout(DEADLINE);
        request
    }

    fn is_connected(&self) -> bool {
        let endpoints = self.channel.measured().endpoints;
        endpoints.iter().all(|it| it.state == EndpointState::Ready)
    }

    /// Connected, nothing under way, and the breaker closed.
    fn is_healthy(&self) -> bool {
        let measured = self.channel.measured();
        let idle = measured.endpoints.iter().all(|it| it.in_flight == 0);
        let closed = |it: &tonic_hedge::BreakerMeasured| it.state == BreakerState::Closed;
        self.is_connected() && idle && measured.breakers.iter().all(closed)
    }
}
