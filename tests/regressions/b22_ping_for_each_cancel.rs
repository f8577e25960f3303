//! golang/go#76296: a client sent a PING with each cancelled stream, which servers take for abuse.
//!
//! Right: losers cost no PING at all.

use tonic_hedge::{BudgetPolicy, Hedge, HedgedChannel, ResponseExt};

use crate::support::{
    ProbeClient, probe,
    raw::{Raw, Step, ok, script},
    request,
};

#[tokio::test]
async fn losers_cost_no_ping() {
    let silent = Raw::start(script(|_| vec![Step::Head])).await;
    let good = Raw::start(script(|_| ok("good"))).await;
    let channel = HedgedChannel::builder()
        .endpoints([silent.uri(), good.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default().capacity(1e6).initial(1e6))
        .without_breaker()
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for id in 0..1_000 {
        let response = client.get(request(&id.to_string())).await.unwrap();
        assert_eq!(response.get_ref().replica, "good");
        assert!(response.call_log().is_some());
    }
    silent
        .until("losers are reset", |log| log.resets.len() > 10)
        .await;
    for raw in [&silent, &good] {
        assert_eq!(raw.log(|log| (log.pings, log.connections)), (0, 1));
    }
}
