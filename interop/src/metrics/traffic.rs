//! Some seconds of calls through three channels, and what their logs say of them.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};
use tonic::{Code, Request, Status, client::Grpc};
use tonic_hedge::{
    AttemptOutcome, BreakerPolicy, BreakerState, BudgetPolicy, Builder, CallLog, Criticality,
    EndpointState, Hedge, HedgedChannel, RequestExt as _, ResponseExt as _, WinRate,
};
use tonic_prost::ProstCodec;

use crate::{
    replica::Replica,
    replicas::{AsAsked, Fate, Refuser},
    script::{
        probe::{self, ProbeReply, ProbeRequest, probe_client::ProbeClient},
        service,
    },
};

/// Most of the calls: a tail, some failures, and hedges that some gates hold.
pub(crate) const TAIL: &str = "tail";
/// A dependency that breaks down once, and a budget that is empty.
pub(crate) const BROKEN: &str = "broken";
/// A replica among others that refuses streams.
pub(crate) const REFUSING: &str = "refusing";

/// Paths that no descriptor knows.
pub(crate) const INVENTED: u64 = 1_000;

/// So long that there are some scrapes of each thing.
pub(crate) const LENGTH: Duration = Duration::from_secs(10);

/// Between two calls of the tail.
const PACE: Duration = Duration::from_millis(10);

/// What is due after so many calls is due in each hundred once.
const CYCLE: u64 = 100;

/// A failing check waits for as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the call logs of one channel say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) calls: u64,
    pub(crate) codes: BTreeMap<&'static str, u64>,
    /// By kind and outcome, in the words of `hedge.attempts`.
    pub(crate) attempts: BTreeMap<(&'static str, &'static str), u64>,
    /// Hedges whose OK was their call's.
    pub(crate) won: u64,
    /// By the gate or hold, as the channel counts them itself.
    pub(crate) suppressed: BTreeMap<&'static str, u64>,
    /// What the channel has left, in tokens.
    pub(crate) budget: f64,
    pub(crate) endpoints: usize,
}

impl Sent {
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.values().sum()
    }

    pub(crate) fn of_kind(&self, kind: &str) -> u64 {
        let of_kind = self.attempts.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|(_, count)| count).sum()
    }

    fn add(&mut self, log: &CallLog, code: &'static str) {
        self.calls += 1;
        *self.codes.entry(code).or_default() += 1;
        self.won += u64::from(log.hedge_won() && code == "OK");
        for attempt in log.attempts() {
            let outcome = match attempt.outcome() {
                AttemptOutcome::Won(_) => "won",
                AttemptOutcome::Failed(_) => "failed",
                AttemptOutcome::Detached => "lost",
                _ => "discarded",
            };
            let kind = attempt.kind().name();
            *self.attempts.entry((kind, outcome)).or_default() += 1;
        }
    }
}

/// One channel, and what became of its calls.
#[derive(Clone)]
struct Caller {
    channel: HedgedChannel,
    sent: Arc<Mutex<Sent>>,
}

/// Makes all calls, and waits for the end of each. What was sent comes by the channel's name. The
/// channels stay, since their gauges go with them.
pub(crate) async fn run(
    metrics: &Arc<SdkMeterProvider>,
) -> Result<(BTreeMap<&'static str, Sent>, impl Sized), Box<dyn Error>> {
    let replicas = [
        Replica::start(service(AsAsked)).await?,
        Replica::start(service(AsAsked)).await?,
        Replica::start(service(AsAsked)).await?,
    ];
    let refuser = Refuser::start().await?;
    let good = || replicas.iter().map(Replica::uri);
    let builder = |name: &str| {
        HedgedChannel::builder()
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .meter_provider(metrics.clone())
            .target_name(name)
    };

    // Quick calls take a few milliseconds: one that takes 25 on a busy machine is hedged too.
    let hedge = Hedge::at(0.8).minimum_delay(Duration::from_millis(25));
    let win_rate = WinRate::at_least(0.2);
    let usual_failures = BreakerPolicy::default().consecutive(50).floor(0.5);
    let tail = builder(TAIL)
        .endpoints(good())
        .hedge(hedge.clone().win_rate(win_rate))
        .breaker(usual_failures);
    let broken = builder(BROKEN)
        .endpoints(good())
        .hedge(hedge.clone())
        .budget(BudgetPolicy::default().ratio(0.0).initial(0.5))
        .breaker(BreakerPolicy::default().cool_down(Duration::from_secs(3)));
    let refusing = builder(REFUSING)
        .endpoints([refuser.uri()].into_iter().chain(good()))
        .hedge(hedge);

    let (tail, broken, refusing) = tokio::try_join!(
        with_a_tail(tail),
        breaking_down(broken),
        meeting_refusals(refusing),
    )?;
    let sent = BTreeMap::from([
        (TAIL, tail.sent()),
        (BROKEN, broken.sent()),
        (REFUSING, refusing.sent()),
    ]);
    Ok((sent, (replicas, refuser, tail, broken, refusing)))
}

async fn with_a_tail(builder: Builder) -> Result<Caller, Box<dyn Error>> {
    let caller = Caller::connected(builder).await?;
    // Before there are samples.
    caller.get(Fate::Slow.call(0)).await;
    let mut pace = interval(PACE);
    let mut calls = JoinSet::new();
    let start = Instant::now();
    for index in (1..).take_while(|_| start.elapsed() < LENGTH) {
        pace.tick().await;
        let caller = caller.clone();
        calls.spawn(async move {
            match index % CYCLE {
                5 | 25 | 45 | 65 | 85 => caller.get(Fate::Pauses.call(index)).await,
                15 | 75 => caller.get(Fate::Slow.call(index)).await,
                35 => caller.get(Fate::HedgeFails.call(index)).await,
                55 => caller.get(Fate::FailsOnce.call(index)).await,
                60 => caller.get(Fate::Fails.call(index)).await,
                70 => caller.in_time(Fate::Never.call(index)).await,
                80 => caller.put(Fate::Slow.call(index)).await,
                90 => caller.sheddable(Fate::Slow.call(index)).await,
                _ => caller.get(Fate::Quick.call(index)).await,
            }
        });
    }
    while let Some(call) = calls.join_next().await {
        call?;
    }
    for index in 0..INVENTED {
        caller.invented(index).await?;
    }
    Ok(caller)
}

async fn breaking_down(builder: Builder) -> Result<Caller, Box<dyn Error>> {
    let caller = Caller::connected(builder).await?;
    let start = Instant::now();
    // Closed for some scrapes, so that it can be seen to open.
    for index in 0..50 {
        caller.get(Fate::Quick.call(index)).await;
        sleep(5 * PACE).await;
    }
    // An empty budget holds these hedges.
    for index in 0..3 {
        caller.get(Fate::Slow.call(index)).await;
    }
    for index in 0..5 {
        caller.get(Fate::Fails.call(index)).await;
    }
    let state = || {
        caller
            .channel
            .measured()
            .breakers
            .first()
            .map(|it| it.state)
    };
    if state() != Some(BreakerState::Open) {
        return Err("the breaker did not open".into());
    }
    // Refused at once, until a probe shows that all is well.
    while state() != Some(BreakerState::Closed) {
        caller.get(Fate::Quick.call(40)).await;
        sleep(20 * PACE).await;
        if start.elapsed() > PATIENCE {
            return Err("the breaker did not close".into());
        }
    }
    while start.elapsed() < LENGTH {
        caller.get(Fate::Quick.call(41)).await;
        caller.get(Fate::Slow.call(41)).await;
        sleep(10 * PACE).await;
    }
    Ok(caller)
}

async fn meeting_refusals(builder: Builder) -> Result<Caller, Box<dyn Error>> {
    let caller = Caller::connected(builder).await?;
    let start = Instant::now();
    while start.elapsed() < LENGTH {
        caller.get(Fate::Quick.call(0)).await;
        sleep(2 * PACE).await;
    }
    Ok(caller)
}

impl Caller {
    /// One whose channel is connected to all endpoints: only then a hedge has somewhere to go.
    async fn connected(builder: Builder) -> Result<Self, Box<dyn Error>> {
        let caller = Self {
            channel: builder.build()?,
            sent: Arc::default(),
        };
        let connected = async {
            let ready = |channel: &HedgedChannel| {
                let endpoints = channel.measured().endpoints;
                endpoints.iter().all(|it| it.state == EndpointState::Ready)
            };
            while !ready(&caller.channel) {
                caller.put(Fate::Quick.call(0)).await;
            }
        };
        timeout(PATIENCE, connected)
            .await
            .map_err(|_| "the channel does not connect")?;
        Ok(caller)
    }

    async fn get(&self, call: u64) {
        self.note(self.client().get(request(call)).await);
    }

    async fn put(&self, call: u64) {
        self.note(self.client().put(request(call)).await);
    }

    /// With a deadline, that lets a hedge start before it.
    async fn in_time(&self, call: u64) {
        let mut request = request(call);
        request.set_timeout(Duration::from_millis(250));
        self.note(self.client().get(request).await);
    }

    async fn sheddable(&self, call: u64) {
        let request = request(call).criticality(Criticality::Sheddable);
        self.note(self.client().get(request).await);
    }

    /// Calls a method that nobody knows.
    async fn invented(&self, index: u64) -> Result<(), Box<dyn Error>> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await?;
        let path = PathAndQuery::try_from(format!("/invented.Service/Method{index}"))?;
        let codec = ProstCodec::<ProbeRequest, ProbeReply>::default();
        let result = grpc.unary(request(Fate::Quick.call(index)), path, codec);
        self.note(result.await);
        Ok(())
    }

    fn sent(&self) -> Sent {
        let mut sent = self.sent.lock().clone();
        let measured = self.channel.measured();
        for (gate, count) in measured.methods.iter().flat_map(|it| &it.suppressed) {
            *sent.suppressed.entry(gate).or_default() += count;
        }
        sent.budget = measured.budget.unwrap_or(f64::NAN);
        sent.endpoints = measured.endpoints.len();
        sent
    }

    fn client(&self) -> ProbeClient<HedgedChannel> {
        ProbeClient::new(self.channel.clone())
    }

    fn note(&self, result: Result<tonic::Response<ProbeReply>, Status>) {
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        let mut sent = self.sent.lock();
        match result.call_log() {
            Some(log) => sent.add(log, name(code)),
            // Counted as nothing else, so that no sum fits.
            None => sent.calls += 1,
        }
    }
}

fn request(call: u64) -> Request<ProbeRequest> {
    Request::new(ProbeRequest {
        id: call.to_string(),
        ..ProbeRequest::default()
    })
}

/// As gRPC spells those that this traffic ends in.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::Unimplemented => "UNIMPLEMENTED",
        _ => "another",
    }
}
