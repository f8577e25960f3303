//! h2#860, by way of buck2#1123: streams that waited for the server to take them held the
//! connection's window, and everything stood still.
//!
//! Right: a thousand large calls over connections of ten streams all end, hedged or not.

use tokio::{net::TcpListener, task::JoinSet};
use tonic::transport::Server;
use tonic_hedge::{BudgetPolicy, Hedge, HedgedChannel};

use crate::support::{
    Arrival, ProbeClient, ProbeRequest, Replica, connected, probe, request, settled,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_over_ten_streams() {
    let replica = async |name: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::builder().max_concurrent_streams(10);
        Replica::serve(name, listener, server, |arrival: Arrival| async move {
            let answer = arrival.ok();
            tokio::task::yield_now().await;
            answer
        })
    };
    let (a, b) = (replica("a").await, replica("b").await);
    let channel = HedgedChannel::builder()
        .endpoints([a.uri(), b.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        // One call in five is hedged.
        .budget(BudgetPolicy::default())
        .build()
        .unwrap();
    connected(&channel, 2).await;
    let mut calls = JoinSet::new();
    for id in 0..1_024_u32 {
        let mut client = ProbeClient::new(channel.clone());
        calls.spawn(async move {
            let message = ProbeRequest {
                payload: vec![7; 64 << 10],
                response_bytes: 64 << 10,
                ..request(&id.to_string())
            };
            client.get(message).await
        });
    }
    for call in calls.join_all().await {
        assert_eq!(call.unwrap().get_ref().payload.len(), 64 << 10);
    }
    settled(&channel).await;
}
