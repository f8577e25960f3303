//! Providers that are installed globally after a channel's first calls: both are found, and nobody
//! has to tell the channel. One test, since a process has one of each.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, tail};
use opentelemetry::global;
use opentelemetry_sdk::{
    metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider},
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use support::ProbeClient;
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn late_providers_are_found() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, tail));
    let channel = builder(&replicas).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    client.get(asked(1, Code::Ok)).await.unwrap();

    let spans = InMemorySpanExporter::default();
    let tracing = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
    global::set_tracer_provider(tracing.build());
    let metrics = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(metrics.clone()).build();
    let metering = SdkMeterProvider::builder().with_reader(reader).build();
    global::set_meter_provider(metering.clone());

    // A tenth of a second is how long a provider that was not there is not looked for again.
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.get(asked(1, Code::Ok)).await.unwrap();
    assert_eq!(spans.get_finished_spans().unwrap().len(), 2);

    // A second channel on the same provider has its gauges too, and a dropped one has none.
    let other = builder(&replicas).target_name("other").build().unwrap();
    let mut second = ProbeClient::new(other);
    second.get(asked(1, Code::Ok)).await.unwrap();
    let targets = || {
        metrics.reset();
        metering.force_flush().unwrap();
        let exported = format!("{:?}", metrics.get_finished_metrics().unwrap());
        let balance = exported.split("hedge.budget.balance").nth(1).unwrap();
        let balance = balance.split("name: \"").next().unwrap();
        ["discover", "other"].map(|target| balance.contains(target))
    };
    assert_eq!(targets(), [true, true]);
    drop(second);
    assert_eq!(targets(), [true, false]);
}
