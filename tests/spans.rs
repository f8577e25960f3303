//! What a tracing backend gets of a hedged call, and what its servers get.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;

use opentelemetry::{
    Value, global,
    trace::{SpanId, Status as SpanStatus, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use support::{Arrival, Fleet, ProbeClient, request, settled};
use tonic::{Request, Status};
use tonic_hedge::{Hedge, HedgedChannel};

/// A provider that keeps what it exports, and the global propagator that a service has.
fn exported() -> (SdkTracerProvider, InMemorySpanExporter) {
    global::set_text_map_propagator(TraceContextPropagator::new());
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    (provider, exporter)
}

/// Answers only hedges.
async fn raced() -> Fleet {
    Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

fn split(spans: &[SpanData]) -> (Vec<&SpanData>, Vec<&SpanData>) {
    spans
        .iter()
        .partition(|span| span.name == "Sent.hedge.testing.v1.Probe/Get")
}

fn attribute(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|kv| kv.key.as_str() == key);
    found.map_or("-".to_owned(), |kv| kv.value.to_string())
}

fn event_names(span: &SpanData) -> Vec<&str> {
    span.events
        .iter()
        .map(|event| event.name.as_ref())
        .collect()
}

/// The trace and span of a `traceparent`.
fn traceparent(arrival: &Arrival) -> (String, String) {
    let values: Vec<_> = arrival.metadata.get_all("traceparent").iter().collect();
    let [value] = values[..] else {
        panic!("{values:?}")
    };
    let parts: Vec<_> = value.to_str().unwrap().split('-').collect();
    (parts[1].to_owned(), parts[2].to_owned())
}

/// TE1: one call span, one sibling span for each attempt; gates, start, win and loss as events;
/// each server hangs under its own attempt.
#[tokio::test]
async fn te1_spans_of_a_hedged_call() {
    let (provider, exporter) = exported();
    let fleet = raced().await;
    let builder = fleet.builder().tracer_provider(&provider);
    let channel = fleet.channel(builder).await;
    exporter.reset();
    let mut client = ProbeClient::new(channel.clone());
    let mut message = Request::new(request("1"));
    // A context of the caller's own making would be the same for both.
    let stale = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    message
        .metadata_mut()
        .insert("traceparent", stale.parse().unwrap());
    client.get(message).await.unwrap();
    settled(&channel).await;

    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 3);
    let (calls, attempts) = split(&spans);
    let [call] = calls[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(call.parent_span_id, SpanId::INVALID);
    assert_eq!(attribute(call, "hedge.call.outcome"), "ok");
    let mut outcomes = Vec::new();
    for attempt in &attempts {
        assert_eq!(attempt.name, "Attempt.hedge.testing.v1.Probe/Get");
        assert_eq!(attempt.parent_span_id, call.span_context.span_id());
        assert_eq!(
            attempt.span_context.trace_id(),
            call.span_context.trace_id()
        );
        assert_eq!(attempt.status, SpanStatus::Unset, "a loser is no error");
        outcomes.push([
            attribute(attempt, "hedge.attempt.number"),
            attribute(attempt, "hedge.attempt.kind"),
            attribute(attempt, "hedge.attempt.outcome"),
        ]);
    }
    outcomes.sort();
    assert_eq!(
        outcomes,
        [["0", "original", "discarded"], ["1", "hedge", "won"]]
    );
    // They overlap in time.
    assert!(attempts[0].start_time < attempts[1].end_time);
    assert!(attempts[1].start_time < attempts[0].end_time);
    let endpoints: HashSet<_> = attempts
        .iter()
        .map(|attempt| attribute(attempt, "hedge.attempt.endpoint"))
        .collect();
    assert_eq!(endpoints.len(), 2);

    let events = event_names(call);
    assert_eq!(
        events.iter().filter(|name| **name == "hedge.gate").count(),
        7
    );
    for name in ["hedge.started", "hedge.won", "hedge.discarded"] {
        assert_eq!(
            events.iter().filter(|event| **event == name).count(),
            1,
            "{name}"
        );
    }
    assert!(!events.contains(&"hedge.suppressed"));
    for event in call
        .events
        .iter()
        .filter(|event| event.name != "hedge.gate")
    {
        if event.name == "hedge.hold" {
            continue;
        }
        let threshold = event
            .attributes
            .iter()
            .find(|kv| kv.key.as_str() == "hedge.threshold");
        assert_eq!(threshold.unwrap().value, Value::F64(20.0), "{}", event.name);
    }

    // Each server got its own attempt's context.
    let trace = call.span_context.trace_id().to_string();
    let got: HashSet<_> = fleet.seen.of("1").iter().map(traceparent).collect();
    let sent: HashSet<_> = attempts
        .iter()
        .map(|attempt| (trace.clone(), attempt.span_context.span_id().to_string()))
        .collect();
    assert_eq!(got, sent);
    assert_eq!(got.len(), 2);
}

/// A call that is not hedged: two spans, and every gate's word at its start where it never can be.
#[tokio::test]
async fn te5_why_a_call_cannot_hedge() {
    let (provider, exporter) = exported();
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().tracer_provider(&provider);
    let channel = fleet.channel(builder).await;
    exporter.reset();
    let mut client = ProbeClient::new(channel.clone());
    client.put(request("1")).await.unwrap();
    settled(&channel).await;
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 2);
    let call = spans
        .iter()
        .find(|span| span.name.starts_with("Sent."))
        .unwrap();
    let closed: Vec<_> = call
        .events
        .iter()
        .filter(|event| event.name == "hedge.gate")
        .filter(|event| {
            let holds = |kv: &opentelemetry::KeyValue| {
                kv.key.as_str() == "hedge.gate.holds" && kv.value == Value::Bool(false)
            };
            event.attributes.iter().any(holds)
        })
        .collect();
    let events = event_names(call);
    assert_eq!(events[..7], ["hedge.gate"; 7]);
    assert_eq!(events[7..], ["hedge.suppressed"]);
    assert_eq!(closed.len(), 1);
    let name = closed[0]
        .attributes
        .iter()
        .find(|kv| kv.key.as_str() == "hedge.gate.name");
    assert_eq!(name.unwrap().value, Value::from("repeatable"));
}

/// TE5: a suppressed hedge names its reason.
#[tokio::test]
async fn te5_suppressed() {
    let (provider, exporter) = exported();
    let fleet = Fleet::start(1, |arrival: Arrival| async move {
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        arrival.ok()
    })
    .await;
    let builder = fleet.builder().tracer_provider(&provider);
    let channel = fleet.channel(builder).await;
    exporter.reset();
    ProbeClient::new(channel.clone())
        .get(request("1"))
        .await
        .unwrap();
    settled(&channel).await;
    let spans = exporter.get_finished_spans().unwrap();
    let (calls, attempts) = split(&spans);
    assert_eq!(attempts.len(), 1);
    let suppressed: Vec<_> = calls[0]
        .events
        .iter()
        .filter(|event| event.name == "hedge.suppressed")
        .collect();
    assert_eq!(suppressed.len(), 1);
    let reason = suppressed[0]
        .attributes
        .iter()
        .find(|kv| kv.key.as_str() == "hedge.reason");
    assert_eq!(reason.unwrap().value, Value::from("other_endpoint"));
}

/// TE2: a caller that leaves ends all spans, as cancelled and not as errors.
#[tokio::test]
async fn te2_dropped_call() {
    let (provider, exporter) = exported();
    let fleet = Fleet::start(2, |_| std::future::pending()).await;
    let builder = fleet.builder().tracer_provider(&provider);
    let channel = fleet.channel(builder).await;
    exporter.reset();
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("both arrive", |seen| seen.calls() == 2)
        .await;
    call.abort();
    settled(&channel).await;
    assert!(call.await.unwrap_err().is_cancelled());
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 3);
    assert!(spans.iter().all(|span| span.status == SpanStatus::Unset));
    let (calls, attempts) = split(&spans);
    assert_eq!(attribute(calls[0], "hedge.call.outcome"), "cancelled");
    for attempt in attempts {
        assert_eq!(attribute(attempt, "hedge.attempt.outcome"), "discarded");
    }
}

/// The current OpenTelemetry context is the call's parent, and the global provider is found.
#[tokio::test]
async fn the_current_context_is_the_parent() {
    let (provider, exporter) = exported();
    let fleet = raced().await;
    let channel = fleet
        .channel(fleet.builder().tracer_provider(&provider))
        .await;
    exporter.reset();
    let tracer = provider.tracer("app");
    let span = tracer.start("handler");
    let context = opentelemetry::Context::current_with_span(span);
    let mut client = ProbeClient::new(channel.clone());
    let call =
        opentelemetry::context::FutureExt::with_context(client.get(request("1")), context.clone());
    call.await.unwrap();
    settled(&channel).await;
    let spans = exporter.get_finished_spans().unwrap();
    let (calls, _) = split(&spans);
    let parent = context.span().span_context().clone();
    assert_eq!(calls[0].parent_span_id, parent.span_id());
    let (trace, _) = traceparent(&fleet.seen.of("1")[1]);
    assert_eq!(trace, parent.trace_id().to_string());
}

/// TE6: no metadata, no message and no status text is in any span.
#[tokio::test]
async fn te6_secrets() {
    let (provider, exporter) = exported();
    let secret = "s3cr3t";
    let fleet = Fleet::start(2, move |arrival: Arrival| async move {
        match arrival.previous() {
            0 => std::future::pending().await,
            _ => Err(Status::invalid_argument("s3cr3t")),
        }
    })
    .await;
    let builder = fleet.builder().tracer_provider(&provider);
    let channel: HedgedChannel = fleet.channel(builder.hedge(Hedge::immediately())).await;
    exporter.reset();
    let mut message = Request::new(request(secret));
    message
        .metadata_mut()
        .insert("authorization", secret.parse().unwrap());
    message
        .metadata_mut()
        .insert("cookie", secret.parse().unwrap());
    let status = ProbeClient::new(channel.clone())
        .get(message)
        .await
        .unwrap_err();
    assert_eq!(status.message(), secret);
    settled(&channel).await;
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 3);
    assert!(!format!("{spans:?}").contains(secret));
    assert!(!format!("{channel:?}").contains(secret));
    assert!(!format!("{:?}", channel.measured()).contains(secret));
    let log = tonic_hedge::CallLog::of_status(&status).unwrap();
    assert!(!format!("{log:?}").contains(secret));
}
