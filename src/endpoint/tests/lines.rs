//! Lines: kept when they are as good as new, and never those of a connection that is gone.

use std::{
    future::Future as _,
    task::{Context, Waker},
};

use tonic::body::Body;
use tower::Service as _;

use super::*;
use crate::HedgedChannel;

fn lazy() -> TonicEndpoint {
    TonicEndpoint::from_static("http://10.0.0.1:1")
}

fn is_kept(endpoint: &Endpoint) -> bool {
    endpoint.spare.lock().is_some()
}

#[tokio::test]
async fn a_line_is_kept_as_long_as_its_connection_is_there() {
    let endpoint = Arc::new(Endpoint::new(0, EndpointSpec::new(lazy())));
    let connect = || {
        let link = Arc::new(Link::made(lazy().connect_lazy()));
        endpoint.connected(&link);
        link
    };
    assert!(endpoint.line().is_none());
    let first = connect();
    let lines = [(); 4].map(|()| endpoint.line().unwrap());
    let [one, two, late, later] = lines;
    endpoint.keep(one);
    endpoint.keep(two);
    assert!(is_kept(&endpoint), "one of both");
    let one = endpoint.line().unwrap();
    assert!(!is_kept(&endpoint), "it is used again");
    endpoint.keep(one);

    first.health.lose("reset");
    assert!(endpoint.line().is_none(), "it is of no more use");
    endpoint.disconnected();
    assert!(!is_kept(&endpoint), "and nothing that tonic runs is kept");
    endpoint.keep(late);
    assert!(!is_kept(&endpoint));
    connect();
    endpoint.keep(later);
    assert!(!is_kept(&endpoint), "it is of the connection before");
    assert_eq!(endpoint.line().unwrap().connection, 2);
}

/// A call that waits for a place in the channel's queue has the next one that is free, also when it is
/// given up: its line is nobody else's.
#[tokio::test]
async fn a_line_that_waits_is_not_kept() {
    let server = Server::start().await;
    let uri = format!("http://{}", server.address);
    let channel = TonicEndpoint::from_shared(uri).unwrap().buffer_size(1);
    let spec = EndpointSpec::channel("one", channel.connect_lazy());
    let mut channel = HedgedChannel::builder().endpoints([spec]).build().unwrap();
    let endpoints = channel.shared().endpoints().snapshot();
    let mut call = || channel.call(Request::post("/a.B/C").body(Body::empty()).unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let [mut first, mut second] = [call(), call()].map(Box::pin);
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(is_kept(&endpoints[0]), "its request is in the queue");
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert!(!is_kept(&endpoints[0]), "the queue is full");
    drop(second);
    first.await.unwrap();
    for _ in 0..3 {
        call().await.unwrap();
        assert!(is_kept(&endpoints[0]));
    }
}
