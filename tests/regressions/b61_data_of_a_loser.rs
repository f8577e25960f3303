//! envoy#7530: an attempt's bad head came with another attempt in flight; the loser was left attached,
//! and its data, which came later, crashed the proxy.
//!
//! Right: whatever a loser sends after its end is ignored, and its connection goes on.

use tonic_hedge::{BudgetPolicy, EndpointState, Hedge, HedgedChannel};

use crate::support::{
    Latch, ProbeClient, eventually, probe,
    raw::{Raw, Step, message, ok, reply, script, status, trailers_only},
    request,
};

#[tokio::test]
async fn late_data_is_ignored() {
    for bad_head in [false, true] {
        let late = Latch::closed();
        let loser = Raw::start(script({
            let late = late.clone();
            move |number| match (number, bad_head) {
                (0, _) => ok("warm"),
                // Its stream is over for the client in either case: it has failed, or has lost.
                (1..=20, true) => vec![trailers_only("14"), Step::Wait(late.clone())],
                (1..=20, false) => vec![
                    Step::Wait(late.clone()),
                    Step::Head,
                    reply("late"),
                    message(&[8; 3_000]),
                    status("0"),
                ],
                _ => ok("loser"),
            }
        }))
        .await;
        let good = Raw::start(script(|_| ok("good"))).await;
        let channel = HedgedChannel::builder()
            .endpoints([loser.uri(), good.uri()])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::immediately())
            .budget(BudgetPolicy::default().capacity(1e6).initial(1e6))
            .without_breaker()
            .build()
            .unwrap();
        let mut client = ProbeClient::new(channel.clone());
        client.put(request("warm")).await.unwrap();
        let ready = || {
            let endpoints = channel.measured().endpoints;
            endpoints.iter().all(|e| e.state == EndpointState::Ready)
        };
        eventually("all are connected", ready).await;
        while loser.log(|log| log.streams) <= 10 {
            let response = client.get(request("raced")).await.unwrap();
            assert_ne!(response.get_ref().replica, "late");
        }
        late.open();
        while loser.log(|log| log.ids.iter().filter(|id| *id == "after").count()) < 20 {
            let response = client.get(request("after")).await.unwrap();
            assert_ne!(response.get_ref().replica, "late");
        }
        assert_eq!(loser.log(|log| (log.connections, log.closed)), (1, 0));
        assert_eq!(loser.log(|log| log.goaways.len()), 0);
    }
}
