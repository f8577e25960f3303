//! Estimates by locality and by endpoint, on real servers: a slow region has a threshold of its own.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use support::{Arrival, Fleet, ProbeClient, probe, request};
use tonic::transport::Endpoint;
use tonic_hedge::{
    Builder, Destination, EndpointSpec, Hedge, HedgedChannel, MethodMeasured, ResponseExt, Scope,
};

const GET: &str = "hedge.testing.v1.Probe/Get";

/// The slow region takes at least so much longer.
const FAR: Duration = Duration::from_millis(30);

/// `a` is near, `b` and `c` are far and slow.
async fn regions() -> Fleet {
    Fleet::start(3, |arrival: Arrival| async move {
        if arrival.replica != "a" {
            tokio::time::sleep(FAR).await;
        }
        arrival.ok()
    })
    .await
}

fn builder(fleet: &Fleet, hedge: Hedge) -> Builder {
    let specs = fleet
        .replicas
        .iter()
        .zip(["near", "far", "far"])
        .map(|(replica, locality)| {
            EndpointSpec::new(Endpoint::from_shared(replica.uri()).unwrap()).locality(locality)
        });
    let names: Vec<_> = fleet
        .replicas
        .iter()
        .map(|it| it.addr.to_string())
        .collect();
    HedgedChannel::builder()
        .endpoints(specs)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(hedge)
        // The originals in turn, so that each has its samples.
        .target_with(move |attempt| {
            let turn: usize = attempt
                .metadata()
                .get("x-turn")?
                .to_str()
                .ok()?
                .parse()
                .ok()?;
            (attempt.number() == 0).then(|| Destination::endpoint(names[turn % 3].as_str()))
        })
}

async fn call(channel: &HedgedChannel, turn: usize) -> tonic::Response<probe::ProbeReply> {
    let mut call = tonic::Request::new(request(&format!("call-{turn}")));
    call.metadata_mut()
        .insert("x-turn", turn.to_string().parse().unwrap());
    ProbeClient::new(channel.clone()).get(call).await.unwrap()
}

fn method(channel: &HedgedChannel) -> MethodMeasured {
    let measured = channel.measured();
    let mut methods = measured.methods.into_iter();
    methods.find(|method| method.method == GET).unwrap()
}

/// Each region has its own threshold, which its calls are hedged by.
#[tokio::test]
async fn a_slow_region_has_its_own_threshold() {
    let fleet = regions().await;
    let hedge = Hedge::at(0.95).scope(Scope::Locality).minimum_samples(10);
    let channel = fleet.channel(builder(&fleet, hedge)).await;
    for turn in 0..60 {
        call(&channel, turn).await;
    }
    let measured = method(&channel);
    let names: Vec<Arc<str>> = measured
        .estimates
        .iter()
        .map(|it| Arc::clone(&it.name))
        .collect();
    assert_eq!(names, ["far".into(), "near".into()]);
    let (far, near) = (&measured.estimates[0], &measured.estimates[1]);
    assert_eq!((far.samples, near.samples), (40, 20), "{measured:?}");
    assert!(far.threshold.unwrap() >= FAR, "{measured:?}");
    assert!(
        near.latency.unwrap()[0] < far.latency.unwrap()[0],
        "{measured:?}"
    );
    assert_eq!((measured.threshold, measured.latency), (None, None));
    assert_eq!(measured.samples, 60);
}

/// By endpoint, each of a region's for itself.
#[tokio::test]
async fn each_endpoint_has_its_own_estimate() {
    let fleet = regions().await;
    let hedge = Hedge::at(0.95).scope(Scope::Endpoint);
    let channel = fleet.channel(builder(&fleet, hedge)).await;
    for turn in 0..9 {
        call(&channel, turn).await;
    }
    let measured = method(&channel);
    let mut expected: Vec<Arc<str>> = fleet
        .replicas
        .iter()
        .map(|replica| replica.addr.to_string().into())
        .collect();
    expected.sort();
    let names: Vec<Arc<str>> = measured
        .estimates
        .iter()
        .map(|it| Arc::clone(&it.name))
        .collect();
    assert_eq!(names, expected);
    assert!(
        measured
            .estimates
            .iter()
            .all(|estimate| estimate.samples == 3)
    );
    assert!(
        measured
            .estimates
            .iter()
            .all(|estimate| estimate.threshold.is_none())
    );
}

/// Without samples of a region the cold-start threshold holds there, and a measured one is kept
/// between its bounds. The hedge goes to the other region.
#[tokio::test]
async fn th1_a_cold_region_starts_with_its_cold_start() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        if arrival.previous() == 0 && arrival.request.id == "call-2" {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let cold = Duration::from_millis(15);
    let hedge = Hedge::at(0.95)
        .scope(Scope::Locality)
        .cold_start(cold)
        .minimum_delay(Duration::from_millis(5))
        .maximum_delay(Duration::from_millis(25));
    let channel = fleet.channel(builder(&fleet, hedge)).await;
    call(&channel, 0).await;
    let response = call(&channel, 2).await;
    let log = response.call_log().unwrap();
    assert!(log.hedge_won(), "{log}");
    assert!(log.attempts()[1].start() >= cold, "{log}");
    // "c" is far, so the hedge is near.
    assert_eq!(
        log.attempts()[1].endpoint(),
        fleet.replicas[0].addr.to_string(),
        "{log}"
    );
}
