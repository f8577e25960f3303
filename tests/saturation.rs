//! The saturation hold: a runtime that runs its timers late holds hedges and learns nothing.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, get, tail};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use support::ProbeClient;
use tonic::Code;
use tonic_hedge::{Hedge, HedgedChannel, ResponseExt, Saturation};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn channel(replicas: &[InMemory], saturation: bool, spans: &InMemorySpanExporter) -> HedgedChannel {
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
    // The threshold of a cold process serves throughout.
    let hedge = Hedge::at(0.95).cold_start(ms(10)).minimum_samples(1_000);
    let builder = builder(replicas)
        .hedge(hedge)
        .tracer_provider(&provider.build());
    match saturation {
        true => builder.saturation(Saturation::over(ms(50))),
        false => builder,
    }
    .build()
    .unwrap()
}

/// The runtime did nothing for 200 ms: a moved clock is what a blocked worker is to its timers.
#[tokio::test(start_paused = true)]
async fn a_late_timer_holds_hedges_and_learning() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, tail));
    let spans = InMemorySpanExporter::default();
    let channel = channel(&replicas, true, &spans);
    let mut client = ProbeClient::new(channel.clone());
    assert!(client.get(asked(15, Code::Ok)).await.unwrap().hedge_won());
    client.get(asked(5, Code::Ok)).await.unwrap();
    let learnt = get(&channel).samples;
    assert_eq!(channel.measured().timer_lag, Some(Duration::ZERO));

    tokio::time::advance(ms(200)).await;
    // Its timer has not run since: overdue counts as late.
    let lag = channel.measured().timer_lag.unwrap();
    assert!(lag > ms(150) && lag <= ms(200), "{lag:?}");
    spans.reset();
    let response = client.get(asked(15, Code::Ok)).await.unwrap();
    assert!(!response.hedged());
    assert_eq!(get(&channel).suppressed, [("saturation", 1)]);
    assert_eq!(
        get(&channel).samples,
        learnt,
        "what the process added was not learnt"
    );
    let spans = spans.get_finished_spans().unwrap();
    let call = spans
        .iter()
        .find(|it| it.name.starts_with("Sent."))
        .unwrap();
    let hold = call
        .events
        .iter()
        .find(|it| it.name == "hedge.hold")
        .unwrap();
    let of = |key: &str| {
        let found = hold.attributes.iter().find(|it| it.key.as_str() == key);
        found.unwrap().value.to_string()
    };
    assert_eq!(of("hedge.hold.name"), "saturation");
    assert_eq!(of("hedge.hold.holds"), "false");
    assert_eq!(of("hedge.hold.limit"), "50");
    assert!(of("hedge.hold.observed").parse::<f64>().unwrap() > 150.0);

    tokio::time::sleep(ms(100)).await;
    assert_eq!(
        channel.measured().timer_lag,
        Some(Duration::ZERO),
        "it runs on time again"
    );
    assert!(client.get(asked(15, Code::Ok)).await.unwrap().hedge_won());
    client.get(asked(5, Code::Ok)).await.unwrap();
    assert!(get(&channel).samples > learnt);
}

/// Opt-in: without it the same stall holds nothing, and is not measured.
#[tokio::test(start_paused = true)]
async fn off_by_default() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, tail));
    let channel = channel(&replicas, false, &InMemorySpanExporter::default());
    let mut client = ProbeClient::new(channel.clone());
    client.get(asked(0, Code::Ok)).await.unwrap();
    tokio::time::advance(ms(200)).await;
    assert!(client.get(asked(15, Code::Ok)).await.unwrap().hedge_won());
    assert_eq!(channel.measured().timer_lag, None);
}
