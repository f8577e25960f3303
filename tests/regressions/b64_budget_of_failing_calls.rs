//! envoy-mobile#811: a budget that is a share of the active calls shrinks as these fail, so that of
//! six that fail together fewer were retried than the share allows.
//!
//! Right, and stated: the budget is deposited by calls as they start and does not shrink with them.
//! Six calls at a ratio of a half fund three retries, whenever they fail.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::Code;
use tonic_hedge::{BudgetPolicy, Hedge};

use crate::{
    duplex::{InMemory, asked, builder, get, uniform},
    support::ProbeClient,
};

#[tokio::test(start_paused = true)]
async fn six_calls_fund_three_retries() {
    for apart in [0, 50] {
        let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
        let channel = builder(&replicas)
            .hedge(Hedge::after(Duration::from_secs(60)))
            .budget(BudgetPolicy::default().ratio(0.5).initial(0.0))
            .without_breaker()
            .build()
            .unwrap();
        let mut calls = JoinSet::new();
        for id in 0..6 {
            let mut client = ProbeClient::new(channel.clone());
            calls
                .spawn(async move { client.get(asked(100 + id * apart, Code::Unavailable)).await });
        }
        for call in calls.join_all().await {
            assert_eq!(call.unwrap_err().code(), Code::Unavailable);
        }
        let get = get(&channel);
        assert_eq!((get.calls, get.retries), (6, 3), "{apart} ms apart");
    }
}
