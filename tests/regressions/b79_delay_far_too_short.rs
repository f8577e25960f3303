//! incubator-pegasus#251: a backup delay far below the real latency doubled the load and halved the
//! throughput.
//!
//! Right: with a delay that every call outruns, what is sent on top is what the budget funds, a fifth
//! of the calls and the ten at the start; a live threshold never is below its minimum delay.

use std::time::Duration;

use tonic::Code;
use tonic_hedge::{BudgetPolicy, Hedge};

use crate::{
    duplex::{InMemory, asked, builder, get, uniform},
    support::ProbeClient,
};

#[tokio::test(start_paused = true)]
async fn the_budget_bounds_it() {
    let hedges = [
        (Hedge::after(Duration::from_millis(1)), 210),
        // All take 5 ms, and the threshold is at least 10 ms.
        (Hedge::at(0.95), 0),
    ];
    for (hedge, extra) in hedges {
        let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
        let channel = builder(&replicas)
            .hedge(hedge)
            .budget(BudgetPolicy::default())
            .build()
            .unwrap();
        let mut client = ProbeClient::new(channel.clone());
        for _ in 0..1_000 {
            client.get(asked(5, Code::Ok)).await.unwrap();
        }
        let get = get(&channel);
        assert_eq!(get.attempts, get.calls + get.hedges);
        assert!(get.hedges <= extra, "{}", get.hedges);
        assert!(get.hedges >= extra.saturating_sub(5), "{}", get.hedges);
    }
}
