//! resty#1197: leaving the wait for an answer did not end the loop that started attempts, so that
//! these went on after the call was cancelled.
//!
//! Right: a call that is dropped after a millisecond, of which five attempts were allowed, has sent
//! one.

use std::time::Duration;

use tonic::Code;
use tonic_hedge::{BudgetPolicy, Hedge};

use crate::{
    duplex::{InMemory, asked, builder, get, uniform},
    support::{ProbeClient, settled},
};

#[tokio::test(start_paused = true)]
async fn one_attempt() {
    let names = ["a", "b", "c", "d", "e"];
    let replicas = names.map(|name| InMemory::start(name, uniform));
    let channel = builder(&replicas)
        .hedge(Hedge::after(Duration::from_millis(2)).max_concurrent(5))
        .max_attempts(5)
        .budget(BudgetPolicy::default().initial(100.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..100 {
        let call = client.get(asked(5_000, Code::Ok));
        let call = tokio::time::timeout(Duration::from_millis(1), call);
        call.await.unwrap_err();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    settled(&channel).await;
    let sent: usize = replicas.iter().map(|replica| replica.seen.calls()).sum();
    assert_eq!(sent, 100);
    assert_eq!((get(&channel).attempts, get(&channel).hedges), (100, 0));
}
