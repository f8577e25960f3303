//! Many calls: nothing is told twice, left open or lost, and what grows is bounded.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
#[path = "support/recorded.rs"]
mod recorded;
mod support;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use duplex::{InMemory, asked, builder};
use opentelemetry::{
    Context,
    trace::{Span as _, SpanId},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider},
    trace::{SdkTracerProvider, Span, SpanData, SpanProcessor},
};
use parking_lot::Mutex;
use recorded::{What, recorded};
use support::{Answer, Arrival, ProbeClient, ProbeReply, ProbeRequest};
use tokio::task::JoinSet;
use tonic::{Code, Request, Status, client::Grpc};
use tonic_hedge::{BreakerPolicy, BudgetPolicy, Hedge};

const MS: Duration = Duration::from_millis(1);

/// Which spans are open, and what was wrong with how one started or ended.
#[derive(Clone, Debug, Default)]
struct Watch(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    /// By span: its parent.
    open: HashMap<SpanId, SpanId>,
    ids: HashSet<SpanId>,
    calls: u64,
    attempts: u64,
    wrong: Vec<String>,
}

impl SpanProcessor for Watch {
    fn on_start(&self, span: &mut Span, parent: &Context) {
        use opentelemetry::trace::TraceContextExt as _;
        let id = span.span_context().span_id();
        let parent = parent.span().span_context().span_id();
        let mut watched = self.0.lock();
        watched.open.insert(id, parent);
        if !watched.ids.insert(id) {
            watched.wrong.push(format!("{id} twice"));
        }
    }

    fn on_end(&self, span: SpanData) {
        let id = span.span_context.span_id();
        let mut watched = self.0.lock();
        if watched.open.remove(&id).is_none() {
            watched.wrong.push(format!("{id} ended, and was not open"));
        }
        if span.name.starts_with("Sent.") {
            watched.calls += 1;
            if watched.open.values().any(|parent| *parent == id) {
                watched
                    .wrong
                    .push(format!("{id} ended before an attempt of it"));
            }
        } else {
            watched.attempts += 1;
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sums of counters, and how many times a histogram was recorded, by name and outcome or status.
type Sums = BTreeMap<(String, String), u64>;

fn sums(metering: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> Sums {
    exporter.reset();
    metering.force_flush().unwrap();
    let known = ["outcome", "grpc.status"];
    let mut sums = Sums::new();
    for it in recorded(exporter) {
        let outcome = it
            .attributes
            .iter()
            .find(|kv| known.contains(&kv.key.as_str()));
        let outcome = outcome.map_or(String::new(), |kv| kv.value.to_string());
        let (What::Sum(count) | What::Times(count)) = it.what;
        *sums.entry((it.name, outcome)).or_default() += count;
    }
    sums
}

fn of(sums: &Sums, name: &str) -> u64 {
    let of_name = sums.iter().filter(|((of, _), _)| of == name);
    of_name.map(|(_, count)| count).sum()
}

fn outcome(sums: &Sums, name: &str, outcome: &str) -> u64 {
    let key = (name.to_owned(), outcome.to_owned());
    sums.get(&key).copied().unwrap_or_default()
}

/// Answers, late or not, or fails, as chance has it.
async fn any(arrival: Arrival) -> Answer {
    tokio::time::sleep(fastrand::u32(0..60) * MS).await;
    match fastrand::u32(0..10) {
        0 => Err(Status::unavailable("chance")),
        1 => Err(Status::not_found("chance")),
        _ => arrival.ok(),
    }
}

/// TE2, TE3, TE9: 10,000 calls, cut at random.
#[tokio::test(start_paused = true)]
async fn te2_te3_te9_ten_thousand_calls_cut_at_random() {
    fastrand::seed(2);
    let watch = Watch::default();
    let tracing = SdkTracerProvider::builder()
        .with_span_processor(watch.clone())
        .build();
    let exporter = InMemoryMetricExporter::default();
    let metering = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(exporter.clone()).build())
        .build();
    let replicas = ["a", "b", "c"].map(|name| InMemory::start(name, any));
    let channel = builder(&replicas)
        .hedge(Hedge::after(20 * MS).max_concurrent(3).suppress_at(1.0))
        .budget(BudgetPolicy::default().ratio(1.0).capacity(1e6))
        .breaker(
            BreakerPolicy::default()
                .consecutive(u32::MAX)
                .floor(0.9)
                .failure_ratio(1.0),
        )
        .tracer_provider(&tracing)
        .meter_provider(Arc::new(metering.clone()))
        .build()
        .unwrap();

    let mut calls = JoinSet::new();
    for call in 0..10_000 {
        let mut client = ProbeClient::new(channel.clone());
        let (starts, cut) = (fastrand::u32(0..5_000), fastrand::u32(0..120));
        calls.spawn(async move {
            tokio::time::sleep(starts * MS).await;
            let mut request = asked(0, Code::Ok);
            if call % 3 == 0 {
                request.set_timeout(50 * MS);
            }
            let _result = tokio::time::timeout(cut * MS, client.get(request)).await;
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    while channel
        .measured()
        .endpoints
        .iter()
        .any(|it| it.in_flight > 0)
    {
        tokio::time::sleep(MS).await;
    }

    let measured = channel.measured().methods.remove(0);
    let watched = watch.0.lock();
    assert_eq!(watched.wrong, Vec::<String>::new());
    assert!(watched.open.is_empty(), "{} open", watched.open.len());
    let sums = sums(&metering, &exporter);
    // A call that is cut before its first poll has begun nothing; it has its span all the same.
    assert_eq!(watched.calls, of(&sums, "grpc.client.call.duration"));
    assert_eq!(watched.calls, of(&sums, "rpc.client.call.duration"));
    assert_eq!(watched.attempts, measured.attempts);
    assert_eq!(watched.attempts, of(&sums, "grpc.client.attempt.started"));
    assert_eq!(watched.attempts, of(&sums, "grpc.client.attempt.duration"));
    assert_eq!(watched.attempts, of(&sums, "hedge.attempts"));
    let originals = watched.attempts - measured.hedges - measured.retries - measured.replacements;
    assert!(originals <= measured.calls, "at most one each: {originals}");
    assert_eq!(measured.hedges, outcome(&sums, "hedge.hedges", "started"));
    assert_eq!(measured.hedges, of(&sums, "grpc.client.call.hedges"));
    assert_eq!(measured.retries, of(&sums, "grpc.client.call.retries"));
    let seen = [measured.hedges, measured.hedges_won, measured.retries];
    assert!(
        seen.iter().all(|count| *count > 100),
        "it shows little: {measured:?}"
    );
    let ended = measured.hedges_won
        + measured.hedges_lost
        + measured.hedges_failed
        + measured.hedges_abandoned;
    assert_eq!(measured.hedges, ended);
    let given_up = measured.hedges_lost + measured.hedges_abandoned;
    assert_eq!(given_up, outcome(&sums, "hedge.hedges", "discarded"));
    assert_eq!(measured.hedges_won, outcome(&sums, "hedge.hedges", "won"));
    assert_eq!(
        measured.hedges_failed,
        outcome(&sums, "hedge.hedges", "failed")
    );
}

/// TE4: invented methods are one value of every attribute.
#[tokio::test(start_paused = true)]
async fn te4_a_hundred_thousand_paths_are_one_value() {
    let exporter = InMemoryMetricExporter::default();
    let metering = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(exporter.clone()).build())
        .build();
    // There is nobody to call, so that it takes seconds: what is told of a call is the same.
    let channel = builder([])
        .without_breaker()
        .meter_provider(Arc::new(metering.clone()))
        .build()
        .unwrap();
    let mut grpc = Grpc::new(channel.clone());
    for path in 0..100_000_u32 {
        grpc.ready().await.unwrap();
        let name = format!("/invented.v{path}.Service/Method").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<ProbeRequest, ProbeReply>::default();
        let status = grpc.unary(Request::new(ProbeRequest::default()), name, codec);
        assert_eq!(status.await.unwrap_err().code(), Code::Unavailable);
    }
    metering.force_flush().unwrap();
    let exported = format!("{:?}", exporter.get_finished_metrics().unwrap());
    assert!(!exported.contains("invented"));
    assert!(exported.len() < 100_000, "{} bytes", exported.len());
    let counted = sums(&metering, &exporter);
    assert_eq!(of(&counted, "grpc.client.call.duration"), 100_000);
    assert_eq!(channel.measured().methods.len(), 1);
}
