//! linkerd2-proxy#3216: a server answered before it had read the request, while its body was being
//! sent for a replay, and the proxy panicked.
//!
//! Right: the answer is the call's; other attempts send the whole body all the same.

use tonic::Code;
use tonic_hedge::{BudgetPolicy, EndpointState, Hedge, HedgedChannel, ResponseExt};

use crate::support::{
    ProbeClient, ProbeRequest, Replica, eventually, probe,
    raw::{Manner, NO_ERROR, Raw, Step, reply, script, status},
    request,
};

/// Half a window short of the buffer's limit, and far over what the server lets through.
fn large(id: &str) -> ProbeRequest {
    ProbeRequest {
        payload: (0..1_000_000).map(|index| (index % 251) as u8).collect(),
        ..request(id)
    }
}

/// A server that reads nothing, answers with `code`, and closes the stream for good.
async fn early(code: &'static str) -> Raw {
    let manner = Manner {
        grants: false,
        ..Manner::default()
    };
    let steps = move |_| {
        let mut steps = vec![Step::Head];
        steps.extend((code == "0").then(|| reply("early")));
        steps.extend([status(code), Step::Reset(NO_ERROR)]);
        steps
    };
    Raw::with(manner, script(steps)).await
}

#[tokio::test]
async fn an_answer_before_the_request_was_read() {
    for _ in 0..5 {
        let early = early("0").await;
        let channel = HedgedChannel::builder()
            .endpoints([early.uri()])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .build()
            .unwrap();
        let mut client = ProbeClient::new(channel);
        for response in [client.get(large("1")).await, client.put(large("1")).await] {
            assert_eq!(response.unwrap().get_ref().replica, "early");
        }
        assert_eq!(early.log(|log| log.connections), 1);
    }
}

#[tokio::test]
async fn the_other_attempt_sends_it_whole() {
    let early = early("14").await;
    let whole = Replica::fast("whole").await;
    let channel = HedgedChannel::builder()
        .endpoints([early.uri(), whole.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default().capacity(1e6).initial(1e6))
        .without_breaker()
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let status = client.vetoed(large("warm")).await;
    assert!(status.is_ok() || status.is_err_and(|status| status.code() == Code::Unavailable));
    let ready = || {
        let endpoints = channel.measured().endpoints;
        endpoints.iter().all(|e| e.state == EndpointState::Ready)
    };
    eventually("all are connected", ready).await;
    for id in 0..15 {
        let response = client.get(large(&id.to_string())).await.unwrap();
        assert_eq!(response.get_ref().replica, "whole");
        assert!(response.call_log().is_some());
        let seen = whole.seen.of(&id.to_string());
        assert_eq!(seen.len(), 1);
        assert!(seen[0].request.payload == large("").payload);
    }
    assert!(early.log(|log| log.streams) >= 15);
}
