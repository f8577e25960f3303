//! The trace context that attempts send where the application has set no propagator. A process of
//! its own, since the propagator is the process's.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::{collections::BTreeSet, time::Duration};

use duplex::{InMemory, asked, builder, tail};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};
use support::{ProbeClient, ProbeRequest};
use tonic::{Code, Request};
use tonic_hedge::{Hedge, HedgedChannel};

/// A slow call: the `traceparent` and `tracestate` of what arrived.
async fn sent(
    replicas: &[InMemory],
    channel: HedgedChannel,
    request: Request<ProbeRequest>,
) -> BTreeSet<(String, String)> {
    ProbeClient::new(channel).get(request).await.unwrap();
    let arrivals = replicas.iter().flat_map(|it| it.seen.of("asked"));
    let sent = arrivals.map(|arrival| {
        let all = |key| {
            let values = arrival.metadata.get_all(key).iter();
            let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
            values.join("|")
        };
        (all("traceparent"), all("tracestate"))
    });
    sent.collect()
}

fn replicas() -> [InMemory; 2] {
    ["a", "b"].map(|name| InMemory::start(name, tail))
}

#[tokio::test(start_paused = true)]
async fn w3c_by_default() {
    let exporter = InMemorySpanExporter::default();
    let provider = |sampler| {
        SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .with_sampler(sampler)
            .build()
    };
    let hedge = Hedge::after(Duration::from_millis(20));

    // Each attempt its own.
    let two = replicas();
    let sampled = provider(Sampler::AlwaysOn);
    let with = builder(&two).hedge(hedge).tracer_provider(&sampled);
    let seen = sent(&two, with.build().unwrap(), asked(50, Code::Ok)).await;
    let spans = exporter.get_finished_spans().unwrap();
    let attempts = spans
        .iter()
        .filter(|span| span.name.starts_with("Attempt."));
    let expected: BTreeSet<_> = attempts
        .map(|span| {
            let context = &span.span_context;
            let value = format!("00-{}-{}-01", context.trace_id(), context.span_id());
            (value, String::new())
        })
        .collect();
    assert_eq!(expected.len(), 2);
    assert_eq!(seen, expected);

    // Not sampled: the refusal goes on.
    let two = replicas();
    let unsampled = provider(Sampler::AlwaysOff);
    let with = builder(&two).tracer_provider(&unsampled);
    let seen = sent(&two, with.build().unwrap(), asked(0, Code::Ok)).await;
    assert!(seen.first().unwrap().0.ends_with("-00"), "{seen:?}");

    // No provider: what the application is in goes on, its state too.
    let parent = SpanContext::new(
        TraceId::from(7_u128),
        SpanId::from(9_u64),
        TraceFlags::SAMPLED,
        true,
        "vendor=1".parse().unwrap(),
    );
    let two = replicas();
    let context = opentelemetry::Context::new().with_remote_span_context(parent);
    let with = builder(&two).parent_context(move || context.clone());
    let seen = sent(&two, with.build().unwrap(), asked(0, Code::Ok)).await;
    let parent = "00-00000000000000000000000000000007-0000000000000009-01";
    assert_eq!(
        seen.into_iter().next().unwrap(),
        (parent.to_owned(), "vendor=1".to_owned())
    );

    // Nothing at all: a caller's own header is left alone.
    let two = replicas();
    let mut request = asked(0, Code::Ok);
    request
        .metadata_mut()
        .insert("traceparent", "the caller's".parse().unwrap());
    let seen = sent(&two, builder(&two).build().unwrap(), request).await;
    assert_eq!(seen.into_iter().next().unwrap().0, "the caller's");
}
