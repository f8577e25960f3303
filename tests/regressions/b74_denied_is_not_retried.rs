//! linkerd2#12826: calls that were denied were retried.
//!
//! Right: of the codes that a server gives, UNAVAILABLE alone is retried unasked. A denial is as final
//! as any answer, beside a running hedge too (`race::rc7_fatal_status`).

use std::time::Duration;

use tonic::{Code, Status};
use tonic_hedge::{BudgetPolicy, Hedge, Retry};

use crate::support::{Arrival, Fleet, ProbeClient, ProbeRequest, request};

#[tokio::test]
async fn each_code() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        let code = Code::from(arrival.request.status as i32);
        Err(Status::new(code, "as asked"))
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(Duration::from_secs(60)))
        .retry(Retry::default().base(Duration::ZERO))
        .budget(BudgetPolicy::default().initial(100.0))
        .without_breaker();
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    for code in 1..=16 {
        let message = ProbeRequest {
            status: code,
            ..request(&format!("code {code}"))
        };
        let status = client.get(message).await.unwrap_err();
        assert_eq!(status.code(), Code::from(code as i32));
        let sent = fleet.seen.of(&format!("code {code}")).len();
        let expected = if status.code() == Code::Unavailable {
            3
        } else {
            1
        };
        assert_eq!(sent, expected, "{status:?}");
    }
}
