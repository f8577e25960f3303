//! grpc-java#9185: one attempt was committed while a hedge was still being started; the call ended
//! in a null error, or hung, since the count of attempts in flight was not lowered.
//!
//! Right: an answer in the middle of a hedge's start is the call's, and leaves nothing behind.

use std::sync::Arc;

use tokio::sync::Notify;
use tonic_hedge::{BudgetPolicy, Hedge, ResponseExt};

use crate::support::{Arrival, Fleet, Latch, ProbeClient, request, settled};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_in_the_middle_of_a_start() {
    const ROUNDS: usize = 400;
    let starting = Arc::new(Notify::new());
    // For the losers that run to their end.
    let over = Latch::closed();
    let fleet = Fleet::start(2, {
        let (starting, over) = (Arc::clone(&starting), over.clone());
        move |arrival: Arrival| {
            let (starting, over) = (Arc::clone(&starting), over.clone());
            async move {
                if arrival.previous() == 0 {
                    tokio::select! {
                        () = starting.notified() => {}
                        () = over.passed() => {}
                    }
                }
                arrival.ok()
            }
        }
    })
    .await;
    // The hook and the answer that it brings about race from here on.
    let builder = fleet.builder().hedge(Hedge::immediately()).on_hedge({
        move |_| {
            starting.notify_one();
            async move {
                tokio::task::yield_now().await;
                Ok::<(), std::io::Error>(())
            }
        }
    });
    let ample = BudgetPolicy::default().capacity(1e6).initial(1e6);
    let builder = builder.budget(ample);
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    for id in 0..ROUNDS {
        let response = client.get(request(&id.to_string())).await.unwrap();
        assert!(response.call_log().unwrap().attempts().len() <= 2);
    }
    over.open();
    settled(&channel).await;
    fleet
        .seen
        .until("no handler is left", |seen| seen.running() == 0)
        .await;
}

/// The start takes as long as the answer: the hedge is never sent.
#[tokio::test]
async fn answer_before_the_start_is_over() {
    let answered = Latch::closed();
    let starting = Latch::closed();
    let fleet = Fleet::start(2, {
        let starting = starting.clone();
        move |arrival: Arrival| {
            let starting = starting.clone();
            async move {
                starting.passed().await;
                arrival.ok()
            }
        }
    })
    .await;
    let builder = fleet.builder().hedge(Hedge::immediately()).on_hedge({
        let answered = answered.clone();
        move |_| {
            starting.open();
            let answered = answered.clone();
            async move {
                answered.passed().await;
                Ok::<(), std::io::Error>(())
            }
        }
    });
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..100 {
        let response = client.get(request("1")).await.unwrap();
        assert!(!response.hedged());
    }
    answered.open();
    settled(&channel).await;
    assert_eq!(fleet.seen.calls(), 100);
}
