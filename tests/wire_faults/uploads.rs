//! Requests that their server does not read.

use super::*;

/// A server with a 64 KiB window that does `slow` to its first `rounds` streams, and a replica
/// that answers all calls but the `last`. All calls go to both at once.
async fn uploads(rounds: usize, slow: Vec<Step>) -> (Raw, Replica, HedgedChannel) {
    let manner = Manner {
        grants: false,
        ..Manner::default()
    };
    let script = script(move |number| match number {
        number if number < rounds => slow.clone(),
        _ => [vec![Step::Grant(2 << 20)], ok("slow")].concat(),
    });
    let slow = Raw::with(manner, script).await;
    let fast = Replica::start("fast", |arrival| async move {
        match arrival.request.id.as_str() {
            "last" => Err(Status::unavailable("done")),
            _ => arrival.ok(),
        }
    })
    .await;
    let channel = HedgedChannel::builder()
        .endpoints([slow.uri(), fast.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default().ratio(1.0).initial(100.0))
        .without_breaker()
        .build()
        .unwrap();
    // It only starts the connecting.
    let mut client = ProbeClient::new(channel.clone());
    let warm = tokio::spawn(async move { client.vetoed(request("warm")).await });
    connected(&channel).await;
    warm.abort();
    let _ = warm.await;
    if slow.log(|log| log.streams) > 0 {
        slow.until("the warm-up's reset", |log| log.resets.len() == 1)
            .await;
    }
    (slow, fast, channel)
}

fn upload(id: &str) -> ProbeRequest {
    ProbeRequest {
        payload: vec![7; (1 << 20) - 100],
        ..request(id)
    }
}

/// A.8: a loser whose upload is blocked is reset, and leaves the connection its window.
#[tokio::test]
async fn a8_cancel_while_upload_is_blocked() {
    const ROUNDS: usize = 100;
    let (slow, _fast, channel) = uploads(ROUNDS, vec![Step::Head]).await;
    let mut client = ProbeClient::new(channel.clone());
    let before = slow.log(|log| log.resets.len());
    for round in before..ROUNDS {
        let response = client.get(upload(&round.to_string())).await.unwrap();
        assert_eq!(response.get_ref().replica, "fast");
        slow.until("the reset", |log| log.resets.len() == round + 1)
            .await;
    }
    assert!(slow.log(|log| log.resets.iter().all(|code| *code == CANCEL)));
    // The window is whole again: the next call gets through on the same connection.
    let response = client.get(upload("last")).await.unwrap();
    assert_eq!(response.get_ref().replica, "slow");
    assert_eq!(slow.log(|log| log.connections), 1);
}

/// A server that says nothing gets 16 resets, and then losers that run on, as long as these
/// keep no more than 16 MiB: 15 of 1 MiB. From there on a reset costs less.
#[tokio::test]
async fn detached_uploads_are_bounded_in_bytes() {
    const ROUNDS: usize = 60;
    let (slow, _fast, channel) = uploads(ROUNDS, vec![]).await;
    let mut client = ProbeClient::new(channel.clone());
    for round in slow.log(|log| log.streams)..ROUNDS {
        client.get(upload(&round.to_string())).await.unwrap();
        slow.until("its stream", |log| log.streams > round).await;
    }
    let measured = channel.measured();
    assert_eq!(measured.detached, 15, "{measured:?}");
    let slow_in_flight = measured.endpoints[0].in_flight;
    assert_eq!(slow_in_flight, 15);
}
