//! Where an official case plays: two replicas of a peer, the ways to them, and a channel for one mode.

use std::{error::Error, time::Duration};

use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{BudgetPolicy, CallLog, EndpointState, HedgedChannel, MethodPolicy, ResponseExt};

use super::{
    relay::Relay,
    witness::{Witness, named, next_id},
};
use crate::{
    Mode, Outcome, ensure,
    grpc_testing::{self, Empty, test_service_client::TestServiceClient},
    peer::Peer,
};

/// The client of a case.
pub(crate) type Client = TestServiceClient<Witness>;

/// What keeps both ways of [`Mode::Forced`] longer than its threshold, so that each call is a race.
const FORCED: Duration = Duration::from_millis(5);

/// How often a call is made until it was raced. One is enough unless this process was held up.
/// Fewer than the failures in a row that open a breaker: some cases are failures.
const ROUNDS: u32 = 4;

/// The official .proto marks no method, and it is not ours: these are marked from outside.
const REPEATABLE: [&str; 4] = [
    "grpc.testing.TestService/EmptyCall",
    "grpc.testing.TestService/UnaryCall",
    "grpc.testing.TestService/UnimplementedCall",
    "grpc.testing.UnimplementedService/UnimplementedCall",
];

/// Two replicas, for all cases.
#[derive(Debug)]
pub(crate) struct Stage {
    replicas: [Replica; 2],
}

#[derive(Debug)]
struct Replica {
    peer: Peer,
    relay: Relay,
    direct: TestServiceClient<Channel>,
}

/// One case in one mode: a channel of its own.
pub(crate) struct Cell<'a> {
    pub(crate) mode: Mode,
    pub(crate) witness: Witness,
    channel: HedgedChannel,
    stage: &'a Stage,
}

impl Stage {
    pub(crate) async fn start(
        command: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Self, Box<dyn Error>> {
        let start = |name| Replica::start(name, command, environment);
        let (a, b) = tokio::try_join!(start("a"), start("b"))?;
        Ok(Self { replicas: [a, b] })
    }

    /// A cell whose channel is connected to both.
    pub(crate) async fn cell(&self, mode: Mode) -> Result<Cell<'_>, Box<dyn Error>> {
        self.cell_of(mode, |builder| builder).await
    }

    /// A cell with something else set in its channel.
    pub(crate) async fn cell_of(
        &self,
        mode: Mode,
        set: impl Fn(tonic_hedge::Builder) -> tonic_hedge::Builder,
    ) -> Result<Cell<'_>, Box<dyn Error>> {
        let [a, b] = &self.replicas;
        a.relay.delay(if mode == Mode::Forced {
            FORCED
        } else {
            Duration::ZERO
        });
        b.relay.delay(match mode {
            Mode::Off | Mode::On => Duration::ZERO,
            Mode::Forced => FORCED,
            Mode::Slow => Mode::SLOWNESS,
        });
        let mut builder = HedgedChannel::builder()
            .endpoints([a, b].map(|r| format!("http://127.0.0.1:{}", r.port(mode))))
            .descriptors(grpc_testing::FILE_DESCRIPTOR_SET)
            // A race for each call of a case, which is more than the default allows.
            .budget(BudgetPolicy::default().initial(100.0));
        for method in REPEATABLE {
            builder = builder.method(method, MethodPolicy::new().idempotent(true));
        }
        if let Some(hedge) = mode.hedge() {
            builder = builder.hedge(hedge);
        }
        let channel = set(builder).build()?;
        let mut client = TestServiceClient::new(channel.clone());
        loop {
            client.empty_call(Empty {}).await?;
            let endpoints = channel.measured().endpoints;
            if endpoints.iter().all(|e| e.state == EndpointState::Ready) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(Cell {
            mode,
            witness: Witness::new(channel.clone()),
            channel,
            stage: self,
        })
    }

    /// How often a call has reached a replica.
    async fn arrivals(&self, id: &str) -> Result<usize, Box<dyn Error>> {
        let mut arrivals = 0;
        for Replica { peer, direct, .. } in &self.replicas {
            // A server's output comes later than its answer, but in order: what follows a call
            // that is told is told too.
            let fence = next_id();
            direct.clone().empty_call(named(Empty {}, &fence)?).await?;
            peer.event("finished", &fence).await?;
            arrivals += peer.events("arrived", id).len();
        }
        Ok(arrivals)
    }
}

impl Replica {
    async fn start(
        name: &'static str,
        command: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Self, Box<dyn Error>> {
        let peer = Peer::start(name, command, environment).await?;
        let relay = Relay::to(peer.port).await?;
        let direct = Endpoint::from_shared(format!("http://127.0.0.1:{}", peer.port))?;
        Ok(Self {
            peer,
            relay,
            direct: TestServiceClient::new(direct.connect_lazy()),
        })
    }

    /// Where a channel in this mode finds it.
    fn port(&self, mode: Mode) -> u16 {
        match mode {
            Mode::Off | Mode::On => self.peer.port,
            Mode::Forced | Mode::Slow => self.relay.port,
        }
    }
}

impl Cell<'_> {
    pub(crate) fn client(&self) -> Client {
        TestServiceClient::new(self.witness.clone())
    }

    /// Makes a unary call, with all of its checks, until it was hedged as its mode has it: never
    /// in [`Mode::Off`], raced in [`Mode::Forced`], won by the hedge in [`Mode::Slow`].
    pub(crate) async fn raced(
        &self,
        call: impl AsyncFn(&mut Client) -> Result<CallLog, Box<dyn Error>>,
    ) -> Outcome {
        let mut client = self.client();
        let mut logs = String::new();
        for _ in 0..ROUNDS {
            self.slow_the_preferred();
            let log = call(&mut client).await?;
            let done = match self.mode {
                Mode::Off => {
                    ensure!(log.attempts().len() == 1, "{log}");
                    true
                }
                // A quantile of so few calls is none, and hedges none.
                Mode::On => true,
                Mode::Forced => log.hedged(),
                Mode::Slow => log.hedge_won(),
            };
            if done {
                return Ok(());
            }
            logs.push_str(&format!("; {log}"));
        }
        Err(format!("not hedged as it should{logs}").into())
    }

    /// In [`Mode::Slow`] the picker learns which replica is the slow one, and would not send it
    /// another original: the other one becomes slow in its place.
    fn slow_the_preferred(&self) {
        if self.mode != Mode::Slow {
            return;
        }
        let endpoints = self.channel.measured().endpoints;
        // As the picker counts: what is run out to spare a reset is in flight for a while.
        let cost = |replica: &Replica| {
            let port = format!(":{}", replica.relay.port);
            let endpoint = endpoints.iter().find(|e| e.name.ends_with(&port))?;
            Some(endpoint.latency? * (endpoint.in_flight + 1))
        };
        let [a, b] = &self.stage.replicas;
        let (preferred, other) = match cost(a) < cost(b) {
            true => (a, b),
            false => (b, a),
        };
        preferred.relay.delay(Mode::SLOWNESS);
        other.relay.delay(Duration::ZERO);
    }

    /// Waits until a replica has seen `kind` of the call.
    pub(crate) async fn event(&self, kind: &str, id: &str) -> Outcome {
        let [a, b] = &self.stage.replicas;
        tokio::select! {
            Ok(_) = a.peer.event(kind, id) => Ok(()),
            Ok(_) = b.peer.event(kind, id) => Ok(()),
            else => Err(format!("no replica saw {kind} of {id}").into()),
        }
    }

    /// What holds at the end of every case: streams had one attempt each, and nothing is left.
    pub(crate) async fn settled(&self) -> Outcome {
        for method in self.channel.measured().methods {
            if REPEATABLE.contains(&method.method.as_str()) {
                continue;
            }
            ensure!(method.attempts == method.calls, "{method:?}");
        }
        for call in self.witness.calls() {
            if REPEATABLE.contains(&&call.path[1..]) {
                continue;
            }
            let arrivals = self.stage.arrivals(&call.id).await?;
            // One that was never answered may have ended before it was sent.
            let fewest = usize::from(call.headers.is_some());
            ensure!((fewest..=1).contains(&arrivals), "{arrivals}: {call:?}");
        }
        // What is run out to spare its connection a reset takes a while; the case has its patience.
        while self.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        let endpoints = self.channel.measured().endpoints;
        endpoints.iter().map(|e| e.in_flight).sum()
    }
}

/// The log of a call that succeeded or failed.
pub(crate) fn log_of<R: ResponseExt>(result: &R) -> Result<CallLog, Box<dyn Error>> {
    Ok(result.call_log().ok_or("no call log")?.clone())
}
