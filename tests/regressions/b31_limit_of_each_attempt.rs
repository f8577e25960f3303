//! grpc-rust#1353: a user's own limit on the size of a message was ignored on one path.
//!
//! Right: it holds for an original's answer and for a hedge's, in both directions.

use tonic::Code;
use tonic_hedge::{Hedge, ResponseExt};

use crate::support::{Arrival, Fleet, ProbeClient, ProbeRequest, request};

#[tokio::test]
async fn same_for_original_and_hedge() {
    // The original of a call named `hedge` never answers.
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.request.id == "hedge" && arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let channel = fleet
        .channel(fleet.builder().hedge(Hedge::immediately()))
        .await;
    let large = |id: &str| ProbeRequest {
        response_bytes: 5 << 20,
        ..request(id)
    };
    for (limit, fits) in [(8 << 20, true), (4 << 20, false)] {
        let client = ProbeClient::new(channel.clone());
        let mut client = client.max_decoding_message_size(limit);
        for id in ["put", "original", "hedge"] {
            let result = match id {
                "put" => client.put(large(id)).await,
                "original" => client.off(large(id)).await,
                _ => client.get(large(id)).await,
            };
            match (fits, result) {
                (true, Ok(response)) => {
                    assert_eq!(response.get_ref().payload.len(), 5 << 20);
                    let won = response.call_log().unwrap().hedge_won();
                    assert_eq!(won, id == "hedge");
                }
                (false, Err(status)) => assert_eq!(status.code(), Code::OutOfRange, "{id}"),
                (_, other) => panic!("{id}, {limit}: {other:?}"),
            }
        }
    }
}
