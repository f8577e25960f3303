//! grpc-node#2884: on some paths a call was never told to be committed, and its buffered request was
//! kept.
//!
//! Right: a request's bytes are free as soon as its call has ended, however it ended.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tonic::{Code, Status, body::Body};
use tonic_hedge::{Hedge, HedgedChannel, Retry};
use tower::{Service as _, ServiceExt as _};

use crate::support::{Arrival, Fleet, eventually, settled};

/// Bytes that are counted while they live.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An empty message to `method`, whose bytes `alive` counts.
fn message(method: &str, alive: &Arc<AtomicUsize>) -> http::Request<Body> {
    alive.fetch_add(1, Ordering::SeqCst);
    let bytes = Bytes::from_owner(Counted(vec![0; 5], Arc::clone(alive)));
    let body = Full::new(bytes).map_err(|never| match never {});
    http::Request::post(format!("/hedge.testing.v1.Probe/{method}"))
        .header("content-type", "application/grpc")
        .body(Body::new(body))
        .unwrap()
}

/// One call, to the end of its answer.
async fn call(channel: &HedgedChannel, request: http::Request<Body>) -> Result<(), Status> {
    let mut channel = channel.clone();
    let response = channel.ready().await?.call(request).await?;
    response.into_body().collect().await.map(drop)
}

#[tokio::test]
async fn free_on_every_path() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match (arrival.method, arrival.metadata.get("x-do")) {
            (_, None) => arrival.ok(),
            (_, Some(what)) if what == "fail" => Err(Status::unavailable("down")),
            (_, Some(what)) if what == "hedge" && arrival.previous() > 0 => arrival.ok(),
            _ => std::future::pending().await,
        }
    })
    .await;
    let builders = [
        fleet.builder(),
        fleet.builder().retry(Retry::off()),
        fleet.builder().hedge(Hedge::on_failure()),
        fleet.builder().buffer_limit(1),
    ];
    for builder in builders {
        let channel = fleet.channel(builder.without_breaker()).await;
        let alive = Arc::new(AtomicUsize::new(0));
        for method in ["Get", "Put", "Off"] {
            call(&channel, message(method, &alive)).await.unwrap();
            let mut failing = message(method, &alive);
            failing
                .headers_mut()
                .insert("x-do", "fail".parse().unwrap());
            let failed = call(&channel, failing).await.unwrap_err();
            assert_eq!(failed.code(), Code::Unavailable);

            let mut timed = message(method, &alive);
            timed.headers_mut().insert("x-do", "hang".parse().unwrap());
            let timeout = "30m".parse().unwrap();
            timed.headers_mut().insert("grpc-timeout", timeout);
            let failed = call(&channel, timed).await.unwrap_err();
            assert_eq!(failed.code(), Code::DeadlineExceeded);

            let mut dropped = message(method, &alive);
            dropped
                .headers_mut()
                .insert("x-do", "hang".parse().unwrap());
            let patience = Duration::from_millis(30);
            let dropped = tokio::time::timeout(patience, call(&channel, dropped));
            dropped.await.unwrap_err();
        }
        let mut hedged = message("Get", &alive);
        let timeout = "1S".parse().unwrap();
        hedged.headers_mut().insert("grpc-timeout", timeout);
        hedged
            .headers_mut()
            .insert("x-do", "hedge".parse().unwrap());
        let _either = call(&channel, hedged).await;
        settled(&channel).await;
        eventually("all are free", || alive.load(Ordering::SeqCst) == 0).await;
    }

    // There is nobody to send it to.
    let nobody = HedgedChannel::builder()
        .discover(tokio_stream::empty::<
            Result<tower::discover::Change<u32, tonic::transport::Endpoint>, Status>,
        >())
        .build()
        .unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    call(&nobody, message("Get", &alive)).await.unwrap_err();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
