//! grpc-java#7222: the original had failed and the throttle refused the hedge that was due; with
//! nothing in flight and nothing allowed, the call hung until its deadline.
//!
//! Right: it ends at once, with the failure that it has.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use tonic_hedge::{BudgetPolicy, Hedge};

use crate::{
    duplex::{InMemory, asked, builder, uniform},
    support::ProbeClient,
};

#[tokio::test(start_paused = true)]
async fn ends_with_its_failure() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, uniform));
    let channel = builder(&replicas)
        .hedge(Hedge::after(Duration::from_millis(100)))
        .budget(BudgetPolicy::default().ratio(0.0).initial(0.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel);
    let mut request = asked(5, Code::Unavailable);
    request.set_timeout(Duration::from_secs(15));
    let started = Instant::now();
    let status = client.get(request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "as asked")
    );
    assert_eq!(started.elapsed(), Duration::from_millis(5));
}
