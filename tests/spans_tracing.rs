//! An application on `tracing` with `tracing-opentelemetry`: its spans parent the call. In a
//! process of its own, since subscriber, provider and propagator are global.

#![allow(clippy::unwrap_used)]

mod support;

use opentelemetry::{global, trace::TracerProvider as _};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use support::{Arrival, Fleet, ProbeClient, request, settled};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

#[tokio::test]
async fn te7_the_applications_span_is_the_parent() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    global::set_text_map_propagator(TraceContextPropagator::new());
    global::set_tracer_provider(provider.clone());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("app"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    // No provider in the builder: the global one is looked up at each call.
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let handler = tracing::info_span!("handler");
    // On a task of its own, as in a service: the hedge is started by a timer there.
    let call = tokio::spawn(async move { client.get(request("1")).await }.instrument(handler));
    call.await.unwrap().unwrap();
    settled(&channel).await;

    let spans = exporter.get_finished_spans().unwrap();
    let named = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        found
    };
    let [handler] = named("handler")[..] else {
        panic!("{spans:?}")
    };
    let [call] = named("Sent.hedge.testing.v1.Probe/Get")[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(call.parent_span_id, handler.span_context.span_id());
    let attempts = named("Attempt.hedge.testing.v1.Probe/Get");
    assert_eq!(attempts.len(), 2);
    for attempt in attempts {
        assert_eq!(attempt.parent_span_id, call.span_context.span_id());
        let trace = attempt.span_context.trace_id();
        assert_eq!(trace, handler.span_context.trace_id());
    }
    for arrival in fleet.seen.of("1") {
        let value = arrival
            .metadata
            .get("traceparent")
            .unwrap()
            .to_str()
            .unwrap();
        assert!(value.contains(&handler.span_context.trace_id().to_string()));
    }
}
