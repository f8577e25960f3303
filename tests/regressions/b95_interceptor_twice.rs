//! opentelemetry-dotnet-contrib#143: an interceptor wrote into the caller's own headers, so that the
//! next attempt carried its header twice.
//!
//! Right: what an interceptor adds is in each attempt once, in every attempt, and the next call with
//! the same client does not carry the last one's.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tonic::{Request, Status};
use tonic_hedge::{BudgetPolicy, Hedge};

use crate::support::{Arrival, Fleet, ProbeClient, request};

#[tokio::test]
async fn once_in_each_attempt() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => std::future::pending().await,
            1 => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    })
    .await;
    let hedge = Hedge::after(Duration::from_millis(5)).max_concurrent(3);
    let builder = fleet.builder().hedge(hedge);
    let builder = builder.budget(BudgetPolicy::default().initial(100.0));
    let channel = fleet.channel(builder).await;
    let calls = AtomicUsize::new(0);
    let mut client = ProbeClient::with_interceptor(channel, move |mut request: Request<()>| {
        let number = calls.fetch_add(1, Ordering::SeqCst).to_string();
        let metadata = request.metadata_mut();
        metadata.append("x-added", number.parse().unwrap());
        Ok(request)
    });
    for number in 0..5 {
        let id = number.to_string();
        let mut message = Request::new(request(&id));
        let own = "own".parse().unwrap();
        message.metadata_mut().insert("x-own", own);
        client.get(message).await.unwrap();
        let attempts = fleet.seen.of(&id);
        assert_eq!(attempts.len(), 3);
        for attempt in attempts {
            for (name, expected) in [("x-added", id.as_str()), ("x-own", "own")] {
                let values: Vec<_> = attempt.metadata.get_all(name).iter().collect();
                assert_eq!(values, [expected]);
            }
        }
    }
}
