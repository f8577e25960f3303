//! What is exported of each kind of call, in order: spans, events, metrics. Whole channels in
//! virtual time, read back from the SDK's own exporters.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
#[path = "support/recorded.rs"]
mod recorded;
mod support;

use std::{sync::Arc, time::Duration};

use duplex::{InMemory, asked, builder, tail, uniform};
use opentelemetry::{KeyValue, trace::Status as SpanStatus};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, InMemoryMetricExporterBuilder, PeriodicReader, SdkMeterProvider,
        Temporality,
    },
    trace::{InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use recorded::{What, recorded};
use support::{ProbeClient, ProbeRequest};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    BreakerPolicy, BudgetPolicy, Builder, Criticality, Hedge, HedgedChannel, RequestExt as _,
    Saturation,
};

const MS: Duration = Duration::from_millis(1);

/// A channel over two replicas, and what it exports.
struct World {
    client: ProbeClient<HedgedChannel>,
    channel: HedgedChannel,
    spans: InMemorySpanExporter,
    tracing: SdkTracerProvider,
    metrics: InMemoryMetricExporter,
    metering: SdkMeterProvider,
    _replicas: Vec<InMemory>,
}

/// What was exported since the last look.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// Outcome, code, and whether it is an error.
    call: String,
    /// Number, kind, outcome, code; in the order of starts.
    attempts: Vec<String>,
    /// Seven gates are one entry.
    events: Vec<String>,
    /// Those that are counted: the value after the name. Times: how many were recorded.
    metrics: Vec<String>,
}

impl World {
    fn new(replicas: Vec<InMemory>, with: impl FnOnce(Builder) -> Builder) -> Self {
        let spans = InMemorySpanExporter::default();
        let tracing = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let metrics = InMemoryMetricExporterBuilder::new()
            .with_temporality(Temporality::Delta)
            .build();
        let metering = SdkMeterProvider::builder()
            .with_reader(PeriodicReader::builder(metrics.clone()).build())
            .build();
        let builder = builder(&replicas)
            .hedge(Hedge::after(20 * MS))
            .tracer_provider(&tracing)
            .meter_provider(Arc::new(metering.clone()));
        let channel = with(builder).build().unwrap();
        Self {
            client: ProbeClient::new(channel.clone()),
            channel,
            spans,
            tracing,
            metrics,
            metering,
            _replicas: replicas,
        }
    }

    /// Two replicas, of which only an original is slow, or fails.
    fn tail() -> Self {
        Self::with(|builder| builder)
    }

    fn with(with: impl FnOnce(Builder) -> Builder) -> Self {
        Self::new(["a", "b"].map(|it| InMemory::start(it, tail)).into(), with)
    }

    /// Two replicas, where all attempts fare alike.
    fn uniform() -> Self {
        let replicas = ["a", "b"].map(|it| InMemory::start(it, uniform));
        Self::new(replicas.into(), |builder| builder)
    }

    async fn get(&mut self, request: Request<ProbeRequest>) -> Result<(), Status> {
        self.client.get(request).await.map(drop)
    }

    fn forget(&self) {
        self.metering.force_flush().unwrap();
        self.metrics.reset();
        self.spans.reset();
    }

    /// What was exported of one call.
    async fn told(&self) -> Told {
        while self
            .channel
            .measured()
            .endpoints
            .iter()
            .any(|it| it.in_flight > 0)
        {
            tokio::time::sleep(MS).await;
        }
        self.metering.force_flush().unwrap();
        self.tracing.force_flush().unwrap();
        let spans = self.spans.get_finished_spans().unwrap();
        let (calls, mut attempts): (Vec<_>, Vec<_>) = spans
            .iter()
            .partition(|span| span.name.starts_with("Sent."));
        let [call] = calls[..] else {
            panic!("{spans:#?}")
        };
        for attempt in &attempts {
            assert_eq!(attempt.parent_span_id, call.span_context.span_id());
            assert!(attempt.start_time >= call.start_time);
        }
        attempts.sort_by_key(|span| attribute(&span.attributes, "hedge.attempt.number"));
        Told {
            call: words(call, &["hedge.call.outcome"]),
            attempts: attempts
                .into_iter()
                .map(|span| {
                    words(
                        span,
                        &[
                            "hedge.attempt.number",
                            "hedge.attempt.kind",
                            "hedge.attempt.outcome",
                        ],
                    )
                })
                .collect(),
            events: events(call),
            metrics: counted(&self.metrics),
        }
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|kv| kv.key.as_str() == key);
    found.map(|kv| kv.value.to_string())
}

/// Attributes, the code, and `error`, where they are there.
fn words(span: &SpanData, keys: &[&str]) -> String {
    let code = attribute(&span.attributes, "rpc.response.status_code");
    let error = attribute(&span.attributes, "error.type");
    assert_eq!(
        span.status != SpanStatus::Unset,
        error.is_some(),
        "{span:?}"
    );
    let keys = keys.iter().map(|key| attribute(&span.attributes, key));
    let words = keys.chain([code, error.map(|_| "error".to_owned())]);
    words.flatten().collect::<Vec<_>>().join(" ")
}

fn events(call: &SpanData) -> Vec<String> {
    let mut told = Vec::new();
    let mut gates = Vec::new();
    for event in &call.events.events {
        let at = |key: &str| attribute(&event.attributes, key);
        match event.name.as_ref() {
            "hedge.gate" => {
                gates.push(at("hedge.gate.number").unwrap());
                if at("hedge.gate.holds").unwrap() == "false" {
                    told.push(format!("gate {}", at("hedge.gate.name").unwrap()));
                }
                if gates.len() == 7 {
                    assert_eq!(gates.join(""), "1234567");
                    gates.clear();
                    told.push("gates".to_owned());
                }
            }
            "hedge.hold" => {
                let not = if at("hedge.hold.holds").unwrap() == "true" {
                    ""
                } else {
                    "NOT "
                };
                told.push(format!("hold {not}{}", at("hedge.hold.name").unwrap()));
            }
            name => {
                let about = at("hedge.reason").or(at("hedge.attempt.number")).unwrap();
                told.push(format!("{} {about}", name.trim_start_matches("hedge.")));
            }
        }
    }
    assert!(gates.is_empty());
    told
}

/// Every counter and histogram with what was added.
fn counted(exporter: &InMemoryMetricExporter) -> Vec<String> {
    let known = [
        "grpc.method",
        "grpc.target",
        "rpc.method",
        "rpc.system.name",
    ];
    let lines = recorded(exporter).into_iter().map(|it| {
        let mut about: Vec<_> = it
            .attributes
            .iter()
            .filter(|kv| !known.contains(&kv.key.as_str()))
            .map(|kv| kv.value.to_string())
            .collect();
        about.sort();
        let value = match it.what {
            What::Sum(sum) => sum.to_string(),
            What::Times(count) => format!("x{count}"),
        };
        format!("{}{{{}}} {value}", it.name, about.join(","))
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

/// The rows of metrics that every call has, for its code and the attempts that were started.
fn of_a_call(code: &str, started: u32, rest: &[&str]) -> Vec<String> {
    let error = if code == "OK" {
        ""
    } else {
        &format!(",{code}")
    };
    let mut lines = vec![
        format!("grpc.client.attempt.started{{}} {started}"),
        format!("grpc.client.call.duration{{{code}}} x1"),
        format!("rpc.client.call.duration{{{code}{error}}} x1"),
    ];
    lines.extend(rest.iter().map(|line| (*line).to_owned()));
    lines.sort();
    lines
}

#[track_caller]
fn assert_told(told: &Told, call: &str, attempts: &[&str], events: &[&str], metrics: Vec<String>) {
    let owned = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let expected = Told {
        call: call.to_owned(),
        attempts: owned(attempts),
        events: owned(events),
        metrics,
    };
    assert_eq!(told, &expected, "{told:#?}");
}

const WON_ALONE: [&str; 2] = [
    "grpc.client.attempt.duration{OK} x1",
    "hedge.attempts{original,won} 1",
];

#[tokio::test(start_paused = true)]
async fn fast() {
    let mut world = World::tail();
    world.get(asked(1, Code::Ok)).await.unwrap();
    assert_told(
        &world.told().await,
        "ok OK",
        &["0 original won OK"],
        &[],
        of_a_call("OK", 1, &WON_ALONE),
    );
}

#[tokio::test(start_paused = true)]
async fn not_idempotent() {
    let mut world = World::tail();
    world.client.put(asked(50, Code::Ok)).await.unwrap();
    let mut metrics = of_a_call("OK", 1, &WON_ALONE);
    metrics.push("hedge.hedges{repeatable,suppressed} 1".to_owned());
    metrics.sort();
    assert_told(
        &world.told().await,
        "ok OK",
        &["0 original won OK"],
        &["gate repeatable", "gates", "suppressed repeatable"],
        metrics,
    );
}

#[tokio::test(start_paused = true)]
async fn hedge_won() {
    let mut world = World::tail();
    world.get(asked(50, Code::Ok)).await.unwrap();
    assert_told(
        &world.told().await,
        "ok OK",
        &["0 original discarded", "1 hedge won OK"],
        &[
            "gates",
            "hold other_endpoint",
            "started 1",
            "discarded 0",
            "won 1",
        ],
        of_a_call(
            "OK",
            2,
            &[
                "grpc.client.attempt.duration{CANCELLED} x1",
                "grpc.client.attempt.duration{OK} x1",
                "grpc.client.call.hedges{} 1",
                "hedge.attempts{discarded,original} 1",
                "hedge.attempts{hedge,won} 1",
                "hedge.hedges{started} 1",
                "hedge.hedges{won} 1",
                "hedge.threshold{} x1",
            ],
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn original_won_after_the_hedge_began() {
    let mut world = World::uniform();
    world.get(asked(50, Code::Ok)).await.unwrap();
    assert_told(
        &world.told().await,
        "ok OK",
        &["0 original won OK", "1 hedge discarded"],
        &["gates", "hold other_endpoint", "started 1", "discarded 1"],
        of_a_call(
            "OK",
            2,
            &[
                "grpc.client.attempt.duration{CANCELLED} x1",
                "grpc.client.attempt.duration{OK} x1",
                "grpc.client.call.hedges{} 1",
                "hedge.attempts{discarded,hedge} 1",
                "hedge.attempts{original,won} 1",
                "hedge.hedges{discarded} 1",
                "hedge.hedges{started} 1",
                "hedge.hedges{won} 0",
                "hedge.threshold{} x1",
            ],
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn retried() {
    let mut world = World::tail();
    world.get(asked(1, Code::Unavailable)).await.unwrap();
    assert_told(
        &world.told().await,
        "ok OK",
        &["0 original failed UNAVAILABLE error", "1 retry won OK"],
        &[],
        of_a_call(
            "OK",
            2,
            &[
                "grpc.client.attempt.duration{OK} x1",
                "grpc.client.attempt.duration{UNAVAILABLE} x1",
                "grpc.client.call.retries{} 1",
                "hedge.attempts{failed,original} 1",
                "hedge.attempts{retry,won} 1",
            ],
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn all_failed() {
    let mut world = World::uniform();
    world.get(asked(1, Code::Unavailable)).await.unwrap_err();
    assert_told(
        &world.told().await,
        "error UNAVAILABLE error",
        &[
            "0 original failed UNAVAILABLE error",
            "1 retry failed UNAVAILABLE error",
            "2 retry failed UNAVAILABLE error",
        ],
        &[],
        of_a_call(
            "UNAVAILABLE",
            3,
            &[
                "grpc.client.attempt.duration{UNAVAILABLE} x3",
                "grpc.client.call.retries{} 2",
                "hedge.attempts{failed,original} 1",
                "hedge.attempts{failed,retry} 2",
            ],
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn caller_gone() {
    let mut world = World::uniform();
    let call = world.get(asked(100, Code::Ok));
    tokio::time::timeout(30 * MS, call).await.unwrap_err();
    assert_told(
        &world.told().await,
        "cancelled",
        &["0 original discarded", "1 hedge discarded"],
        &[
            "gates",
            "hold other_endpoint",
            "started 1",
            "discarded 0",
            "discarded 1",
        ],
        of_a_call(
            "CANCELLED",
            2,
            &[
                "grpc.client.attempt.duration{CANCELLED} x2",
                "grpc.client.call.hedges{} 1",
                "hedge.attempts{discarded,hedge} 1",
                "hedge.attempts{discarded,original} 1",
                "hedge.hedges{discarded} 1",
                "hedge.hedges{started} 1",
                "hedge.hedges{won} 0",
                "hedge.threshold{} x1",
            ],
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn deadline() {
    let mut world = World::uniform();
    let mut request = asked(100, Code::Ok);
    request.set_timeout(40 * MS);
    let status = world.get(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_told(
        &world.told().await,
        "error DEADLINE_EXCEEDED error",
        &["0 original discarded", "1 hedge discarded"],
        &[
            "gates",
            "hold other_endpoint",
            "started 1",
            "discarded 0",
            "discarded 1",
        ],
        of_a_call(
            "DEADLINE_EXCEEDED",
            2,
            &[
                "grpc.client.attempt.duration{DEADLINE_EXCEEDED} x2",
                "grpc.client.call.hedges{} 1",
                "hedge.attempts{discarded,hedge} 1",
                "hedge.attempts{discarded,original} 1",
                "hedge.hedges{discarded} 1",
                "hedge.hedges{started} 1",
                "hedge.hedges{won} 0",
                "hedge.threshold{} x1",
            ],
        ),
    );
}

/// A slow call that a gate or a hold keeps from being hedged.
async fn held(mut world: World, request: Request<ProbeRequest>, reason: &str, holds: &[&str]) {
    world.forget();
    world.get(request).await.unwrap();
    let gate = format!("gate {reason}");
    let suppressed = format!("suppressed {reason}");
    let mut events = vec!["gates", suppressed.as_str()];
    events.splice(1..1, holds.iter().copied());
    if !holds.iter().any(|hold| hold.starts_with("hold NOT")) {
        events.insert(0, &gate);
    }
    let mut metrics = of_a_call("OK", 1, &WON_ALONE);
    metrics.push(format!(
        "hedge.hedges{{{}}} 1",
        sorted(reason, "suppressed")
    ));
    metrics.sort();
    let told = world.told().await;
    assert_told(&told, "ok OK", &["0 original won OK"], &events, metrics);
}

fn sorted(one: &str, other: &str) -> String {
    let mut both = [one, other];
    both.sort_unstable();
    both.join(",")
}

#[tokio::test(start_paused = true)]
async fn held_by_each_gate() {
    let slow = || asked(50, Code::Ok);
    let other = ["hold other_endpoint"];

    let channel = World::new(
        ["a", "b"].map(|it| InMemory::start(it, tail)).into(),
        |builder| builder,
    );
    held(channel, slow().without_hedging(), "hedge_configured", &[]).await;

    let breaker = BreakerPolicy::default().consecutive(1).cool_down(MS);
    let mut world = World::with(|builder| builder.breaker(breaker));
    world.get(asked(0, Code::Internal)).await.unwrap_err();
    tokio::time::sleep(2 * MS).await;
    held(world, slow(), "breaker_closed", &other).await;

    let breaker = BreakerPolicy::default().consecutive(100).minimum_calls(2);
    let mut world = World::with(|builder| builder.breaker(breaker.floor(0.5).failure_ratio(1.0)));
    for code in [Code::Internal, Code::Ok, Code::Ok, Code::Internal, Code::Ok] {
        let _result = world.get(asked(0, code)).await;
    }
    held(world, slow(), "error_rate", &other).await;

    let world = World::with(|builder| builder.hedge(Hedge::at(0.95)));
    held(world, slow(), "samples", &[]).await;

    let budget = BudgetPolicy::default().ratio(0.0).initial(0.5);
    let world = World::with(|builder| builder.budget(budget));
    held(world, slow(), "budget", &other).await;

    let sheddable = slow().criticality(Criticality::Sheddable);
    held(World::tail(), sheddable, "not_sheddable", &other).await;

    let alone = World::new(vec![InMemory::start("a", tail)], |builder| builder);
    held(
        alone,
        slow(),
        "other_endpoint",
        &["hold NOT other_endpoint"],
    )
    .await;

    let saturation = Saturation::over(Duration::from_secs(1));
    let mut world = World::with(|builder| builder.saturation(saturation));
    world.get(asked(0, Code::Ok)).await.unwrap();
    let holds = ["hold saturation", "hold other_endpoint"];
    world.forget();
    world.get(slow()).await.unwrap();
    assert_eq!(world.told().await.events[1..3], holds);
}
