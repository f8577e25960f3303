//! hyper#3559: a server that works on fewer calls at once than it takes streams did nothing any more.
//!
//! Right: calls that get no turn end by their deadline, and leave nothing in flight; those that come
//! later are served.

use std::time::Duration;

use tokio::{net::TcpListener, task::JoinSet};
use tonic::{Code, Request, transport::Server};
use tonic_hedge::{BudgetPolicy, Hedge, HedgedChannel};

use crate::support::{Arrival, Latch, ProbeClient, Replica, connected, probe, request, settled};

#[tokio::test]
async fn a_hundred_calls_at_five() {
    let release = Latch::closed();
    let replica = async |name: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::builder().concurrency_limit_per_connection(5);
        let release = release.clone();
        Replica::serve(name, listener, server, move |arrival: Arrival| {
            let release = release.clone();
            async move {
                release.passed().await;
                arrival.ok()
            }
        })
    };
    let (a, b) = (replica("a").await, replica("b").await);
    let channel = HedgedChannel::builder()
        .endpoints([a.uri(), b.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(10)))
        .budget(BudgetPolicy::default().initial(100.0))
        .without_breaker()
        .build()
        .unwrap();
    connected(&channel, 2).await;
    let calls = |timeout: Duration| {
        let mut calls = JoinSet::new();
        for id in 0..100 {
            let mut client = ProbeClient::new(channel.clone());
            calls.spawn(async move {
                let mut request = Request::new(request(&id.to_string()));
                request.set_timeout(timeout);
                match id % 2 {
                    0 => client.get(request).await.map(drop),
                    _ => client.put(request).await.map(drop),
                }
            });
        }
        calls.join_all()
    };
    for result in calls(Duration::from_millis(300)).await {
        assert_eq!(result.unwrap_err().code(), Code::DeadlineExceeded);
    }
    settled(&channel).await;
    release.open();
    for result in calls(crate::support::PATIENCE).await {
        result.unwrap();
    }
    settled(&channel).await;
}
