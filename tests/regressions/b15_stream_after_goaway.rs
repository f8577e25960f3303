//! grpc/grpc#19968: streams were opened on a connection after its server had said GOAWAY.
//!
//! Right: a connection that was told to go away gets no further call.

use tonic_hedge::HedgedChannel;

use crate::support::{
    ProbeClient, probe,
    raw::{Last, NO_ERROR, Raw, Step, ok, script},
    request,
};

#[tokio::test]
async fn no_call_on_the_old_connection() {
    let raw = Raw::start(script(|number| match number {
        // It stays open, as one that drains does.
        0 => [
            vec![Step::Body, Step::GoAway(Last::This, NO_ERROR)],
            ok("a"),
        ]
        .concat(),
        _ => ok("a"),
    }))
    .await;
    let channel = HedgedChannel::builder()
        .endpoints([raw.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel);
    client.put(request("first")).await.unwrap();
    for id in 0..100 {
        client.put(request(&id.to_string())).await.unwrap();
    }
    assert_eq!(raw.log(|log| log.by_connection.clone()), [1, 100]);
    assert_eq!(raw.log(|log| log.ids.len()), 101);
}
