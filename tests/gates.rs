//! Each gate and hold alone, over real servers: the hedge is held, the span says why, the counters
//! count it once, and the original answers the call.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use opentelemetry::trace::{Event, SpanKind};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use support::{Arrival, Latch, ProbeClient, ProbeRequest, Replica, probe, request};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BreakerPolicy, BreakerState, BudgetPolicy, Builder, Criticality,
    EndpointState, Hedge, HedgedChannel, RequestExt, ResponseExt,
};

const GET: &str = "hedge.testing.v1.Probe/Get";
const PUT: &str = "hedge.testing.v1.Probe/Put";

/// When a hedge is due; the originals answer when they are released.
const DELAY: Duration = Duration::from_millis(5);

/// Real replicas, a channel whose spans are kept, and what holds the originals called `slow`.
struct World {
    replicas: Vec<Replica>,
    hold: Latch,
    spans: InMemorySpanExporter,
    channel: HedgedChannel,
    client: ProbeClient<HedgedChannel>,
}

impl World {
    /// With all endpoints connected, and one call made by a method of its own.
    async fn new(replicas: usize, build: impl FnOnce(Builder) -> Builder) -> Self {
        let hold = Latch::closed();
        let script = {
            let hold = hold.clone();
            move |arrival: Arrival| {
                let hold = hold.clone();
                async move {
                    let original = arrival.metadata.get("grpc-previous-rpc-attempts").is_none();
                    match &*arrival.request.id {
                        "slow" if original => hold.passed().await,
                        "fail" => return Err(Status::internal("as asked")),
                        _ => {}
                    }
                    arrival.ok()
                }
            }
        };
        let mut started = Vec::new();
        for number in 0..replicas {
            started.push(Replica::start(&format!("{number}"), script.clone()).await);
        }
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
        let builder = HedgedChannel::builder()
            .endpoints(started.iter().map(Replica::uri))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .tracer_provider(&provider.build());
        let channel = build(builder).build().unwrap();
        let mut world = Self {
            replicas: started,
            hold,
            spans,
            client: ProbeClient::new(channel.clone()),
            channel,
        };
        world.client.keyed(request("warm")).await.unwrap();
        let ready = |state: &EndpointState| *state == EndpointState::Ready;
        let channel = world.channel.clone();
        until(|| {
            channel
                .measured()
                .endpoints
                .iter()
                .all(|it| ready(&it.state))
        })
        .await;
        world
    }

    /// Makes a slow call whose hedge is held, and says what its span told.
    async fn held(&mut self, method: &str, request: Request<ProbeRequest>) -> Told {
        let mut client = self.client.clone();
        let put = method == PUT;
        let call = tokio::spawn(async move {
            match put {
                true => client.put(request).await,
                false => client.get(request).await,
            }
        });
        let channel = self.channel.clone();
        let suppressed = || {
            let measured = channel.measured();
            measured
                .method(method)
                .map(|it| it.suppressed.clone())
                .unwrap_or_default()
        };
        until(|| !suppressed().is_empty()).await;
        let arrived = || self.replicas.iter().any(|it| it.seen.running() == 1);
        until(arrived).await;
        self.hold.open();
        let response = call.await.unwrap().unwrap();
        let log = response.call_log().unwrap();
        assert!(!response.hedged() && !response.hedge_won());
        assert_eq!(log.attempts().len(), 1, "{log}");
        assert_eq!(log.attempts()[0].kind(), AttemptKind::Original);
        assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Won(Code::Ok));
        let told = Told::of(&self.spans, method);
        assert_eq!(
            suppressed(),
            [(&*told.reason, 1)],
            "counted once, by the same name"
        );
        told
    }
}

/// A hedge held is polled for: its event has no other sign that a test could wait for.
async fn until(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, wait).await.unwrap();
}

/// What a call's span says of its gates and holds: name, holds, observed, limit.
struct Told {
    gates: Vec<(String, bool, String, String)>,
    holds: Vec<(String, bool, String, String)>,
    reason: String,
}

impl Told {
    /// The last call of `method`.
    fn of(spans: &InMemorySpanExporter, method: &str) -> Self {
        let spans = spans.get_finished_spans().unwrap();
        let name = format!("Sent.{method}");
        let named = |it: &&SpanData| it.name == name && it.span_kind == SpanKind::Internal;
        let call = spans.iter().rev().find(named).unwrap();
        let of = |prefix: &str| -> Vec<_> {
            let events = call.events.iter().filter(|it| it.name == prefix);
            events
                .map(|event| {
                    let attribute = |name: &str| attribute(event, &format!("{prefix}.{name}"));
                    let holds = attribute("holds") == "true";
                    (
                        attribute("name"),
                        holds,
                        attribute("observed"),
                        attribute("limit"),
                    )
                })
                .collect()
        };
        let mut numbers = call.events.iter().filter(|it| it.name == "hedge.gate");
        for number in 1..=7 {
            let event = numbers.next().unwrap();
            assert_eq!(attribute(event, "hedge.gate.number"), number.to_string());
        }
        let mut suppressed = call
            .events
            .iter()
            .filter(|it| it.name == "hedge.suppressed");
        let reason = attribute(suppressed.next().unwrap(), "hedge.reason");
        assert!(suppressed.next().is_none(), "told once");
        assert!(call.events.iter().all(|it| it.name != "hedge.started"));
        Self {
            gates: of("hedge.gate"),
            holds: of("hedge.hold"),
            reason,
        }
    }

    /// This gate alone fails, with these values.
    fn only(&self, gate: &str, observed: &str, limit: &str) {
        let names = [
            "hedge_configured",
            "repeatable",
            "breaker_closed",
            "error_rate",
            "samples",
            "budget",
            "not_sheddable",
        ];
        assert_eq!(self.gates.len(), 7);
        for ((name, holds, seen, bound), expected) in self.gates.iter().zip(names) {
            assert_eq!(name, expected);
            assert_eq!(*holds, name != gate, "{:?}", self.gates);
            if name == gate {
                assert_eq!((&**seen, &**bound), (observed, limit));
            }
        }
        assert_eq!(self.reason, gate);
    }

    /// All seven gates hold, and of the holds this one alone does not.
    fn only_hold(&self, hold: &str, observed: &str, limit: &str) {
        assert!(
            self.gates.iter().all(|(_, holds, ..)| *holds),
            "{:?}",
            self.gates
        );
        let failed: Vec<_> = self.holds.iter().filter(|(_, holds, ..)| !holds).collect();
        let expected = (
            hold.to_owned(),
            false,
            observed.to_owned(),
            limit.to_owned(),
        );
        assert_eq!(failed, [&expected]);
        assert_eq!(self.reason, hold);
    }
}

fn attribute(event: &Event, key: &str) -> String {
    let found = event.attributes.iter().find(|it| it.key.as_str() == key);
    found
        .unwrap_or_else(|| panic!("{event:?} has no {key}"))
        .value
        .to_string()
}

fn slow() -> Request<ProbeRequest> {
    Request::new(request("slow"))
}

#[tokio::test]
async fn gate_1_hedge_configured() {
    let mut world = World::new(2, |builder| builder).await;
    let told = world.held(GET, slow()).await;
    told.only("hedge_configured", "false", "true");
}

/// The request's own word closes it as well.
#[tokio::test]
async fn gate_1_without_hedging() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let told = world.held(GET, slow().without_hedging()).await;
    told.only("hedge_configured", "false", "true");
}

#[tokio::test]
async fn gate_2_repeatable() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let told = world.held(PUT, slow()).await;
    told.only("repeatable", "not declared idempotent", "true");
}

#[tokio::test]
async fn gate_2_body_over_the_buffer() {
    let small = |builder: Builder| builder.hedge(Hedge::after(DELAY)).buffer_limit(64);
    let mut world = World::new(2, small).await;
    let large = Request::new(ProbeRequest {
        payload: vec![1; 65],
        ..request("slow")
    });
    let told = world.held(GET, large).await;
    told.only("repeatable", "body over the buffer limit", "true");
}

#[tokio::test]
async fn gate_3_breaker_closed() {
    let cool_down = Duration::from_millis(1);
    let breaker = BreakerPolicy::default().consecutive(1).cool_down(cool_down);
    let hedge = Hedge::after(DELAY);
    let mut world = World::new(2, |builder| builder.hedge(hedge).breaker(breaker)).await;
    world.client.keyed(request("fail")).await.unwrap_err();
    assert_eq!(
        world.channel.measured().breakers[0].state,
        BreakerState::Open
    );
    tokio::time::sleep(2 * cool_down).await;
    let told = world.held(GET, slow()).await;
    told.only("breaker_closed", "half_open", "closed");
    assert_eq!(
        world.channel.measured().breakers[0].state,
        BreakerState::Closed
    );
}

#[tokio::test]
async fn gate_4_error_rate() {
    // Ten calls, the one that warmed up among them, so that the rate is exact.
    let breaker = BreakerPolicy::default()
        .consecutive(100)
        .minimum_calls(10)
        .floor(0.5);
    let hedge = Hedge::after(DELAY);
    let mut world = World::new(2, |builder| builder.hedge(hedge).breaker(breaker)).await;
    for _ in 0..5 {
        world.client.keyed(request("ok")).await.unwrap();
    }
    for _ in 0..4 {
        world.client.keyed(request("fail")).await.unwrap_err();
    }
    let told = world.held(GET, slow()).await;
    told.only("error_rate", "0.4", "0.25");
}

#[tokio::test]
async fn gate_5_samples() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::at(0.95))).await;
    let told = world.held(GET, slow()).await;
    told.only("samples", "0", "20");
    assert!(
        told.holds.is_empty(),
        "no threshold, so nothing further was asked"
    );
}

#[tokio::test]
async fn gate_6_budget() {
    let budget = BudgetPolicy::default().ratio(0.0).initial(0.4);
    let hedge = Hedge::after(DELAY);
    let mut world = World::new(2, |builder| builder.hedge(hedge).budget(budget)).await;
    let told = world.held(GET, slow()).await;
    told.only("budget", "0.4", "1");
    assert_eq!(world.channel.measured().budget, Some(0.4));
}

#[tokio::test]
async fn gate_7_not_sheddable() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let told = world
        .held(GET, slow().criticality(Criticality::Sheddable))
        .await;
    told.only("not_sheddable", "sheddable", "sheddable");
    let budget = world.channel.measured().budget;
    assert!(budget >= Some(10.0), "nothing was spent: {budget:?}");
}

/// All seven fail at once: all are told, and the first is the reason.
#[tokio::test]
async fn every_reason_is_told_and_the_first_counts() {
    let budget = BudgetPolicy::default().ratio(0.0).initial(0.0);
    let breaker = BreakerPolicy::default();
    let hedge = Hedge::at(0.95);
    let build = |builder: Builder| builder.hedge(hedge).budget(budget).breaker(breaker);
    let mut world = World::new(2, build).await;
    let told = world
        .held(PUT, slow().criticality(Criticality::Sheddable))
        .await;
    let failed: Vec<_> = told
        .gates
        .iter()
        .filter(|it| !it.1)
        .map(|it| &*it.0)
        .collect();
    assert_eq!(failed, ["repeatable", "samples", "budget", "not_sheddable"]);
    assert_eq!(told.reason, "repeatable");
}

#[tokio::test]
async fn hold_other_endpoint() {
    let mut world = World::new(1, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let told = world.held(GET, slow()).await;
    told.only_hold("other_endpoint", "false", "true");
}

#[tokio::test]
async fn hold_max_attempts() {
    let build = |builder: Builder| builder.hedge(Hedge::after(DELAY)).max_attempts(1);
    let mut world = World::new(2, build).await;
    let told = world.held(GET, slow()).await;
    told.only_hold("max_attempts", "1", "1");
}

/// What a hedge causes is not hedged: all else is said of the policy that would have applied.
#[tokio::test]
async fn hold_inherited() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let mut request = slow();
    let mark = "1".parse().unwrap();
    request.metadata_mut().insert("x-hedge", mark);
    let told = world.held(GET, request).await;
    told.only_hold("inherited", "true", "false");
}

/// TH13: a deadline shorter than the threshold.
#[tokio::test]
async fn hold_deadline() {
    let hedge = Hedge::after(Duration::from_secs(3_600));
    let mut world = World::new(2, |builder| builder.hedge(hedge)).await;
    let mut request = slow();
    request.set_timeout(Duration::from_millis(30));
    let status = world.client.get(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.call_log().unwrap().attempts().len(), 1);
    let told = Told::of(&world.spans, GET);
    assert_eq!(told.reason, "deadline");
    assert_eq!(told.holds[0].0, "deadline");
    assert_eq!(told.holds[0].3, "3600000");
    let measured = world.channel.measured();
    assert_eq!(measured.method(GET).unwrap().suppressed, [("deadline", 1)]);
}

/// With all seven open the same call is hedged, and its span says so.
#[tokio::test]
async fn all_open() {
    let mut world = World::new(2, |builder| builder.hedge(Hedge::after(DELAY))).await;
    let response = world.client.get(slow()).await.unwrap();
    assert!(response.hedged() && response.hedge_won());
    let spans = world.spans.get_finished_spans().unwrap();
    let call = spans
        .iter()
        .find(|it| it.name == format!("Sent.{GET}"))
        .unwrap();
    let count = |name: &str| call.events.iter().filter(|it| it.name == name).count();
    assert_eq!((count("hedge.gate"), count("hedge.suppressed")), (7, 0));
    assert_eq!((count("hedge.started"), count("hedge.won")), (1, 1));
    let measured = world.channel.measured();
    assert!(measured.method(GET).unwrap().suppressed.is_empty());
}
