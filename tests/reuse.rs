//! A channel that is rebuilt for each call is noticed, once.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use support::{ProbeClient, Replica, probe, request};
use tonic_hedge::{Hedge, HedgedChannel};
use tracing_subscriber::{Layer, layer::SubscriberExt as _};

/// Counts the warnings that speak of dropped channels.
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN
            && event
                .fields()
                .any(|field| field.name() == "fewer_calls_than")
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn a_channel_for_each_call_is_noticed_once() {
    let warnings = Arc::new(AtomicUsize::new(0));
    let subscriber = tracing_subscriber::registry().with(Warnings(Arc::clone(&warnings)));
    let _subscriber = tracing::subscriber::set_default(subscriber);
    let replica = Replica::fast("a").await;
    let call = || async {
        let channel = HedgedChannel::builder()
            .endpoints([replica.uri()])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::at(0.95))
            .build()
            .unwrap();
        ProbeClient::new(channel).get(request("1")).await.unwrap();
    };
    for _ in 0..9 {
        call().await;
    }
    assert_eq!(warnings.load(Ordering::SeqCst), 0);
    for _ in 0..20 {
        call().await;
    }
    assert_eq!(warnings.load(Ordering::SeqCst), 1);
}
