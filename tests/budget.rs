//! What holds hedges back: the budget, the estimate, the breaker.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Arrival, Fleet, Latch, ProbeClient, ProbeReply, ProbeRequest, request, settled};
use tonic::{Code, Request, Status, client::Grpc};
use tonic_hedge::{
    BreakerPolicy, BreakerState, Budget, BudgetPolicy, CallLog, Hedge, HedgedChannel,
    MethodMeasured, RequestExt as _, ResponseExt, Retry, RetryBudget,
};
use tower::retry::budget::Budget as _;

const NEVER: Duration = Duration::from_secs(3600);

fn get(channel: &HedgedChannel) -> MethodMeasured {
    let methods = channel.measured().methods;
    let get = |m: &MethodMeasured| m.method == "hedge.testing.v1.Probe/Get";
    methods.into_iter().find(get).unwrap()
}

fn only(tokens: f64) -> BudgetPolicy {
    BudgetPolicy::default().ratio(0.0).initial(tokens)
}

async fn slow(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        arrival.ok()
    })
    .await
}

/// Case 2, BU1: the budget is empty when the threshold passes: the original goes on alone.
#[tokio::test]
async fn case_2_budget_empty_when_the_timer_fires() {
    let fleet = slow(2).await;
    let budget = Budget::new(&only(1.0)).unwrap();
    let builder = fleet.builder().shared_budget(budget.clone());
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("the original arrives", |seen| seen.calls() == 1)
        .await;
    // Drained after the call has started; should the hedge have been quicker, it is no test.
    let drained = RetryBudget::new(budget).withdraw();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.hedged(), !drained);
    if drained {
        let get = get(&channel);
        assert_eq!((get.attempts, get.hedges), (1, 0));
        assert_eq!(get.suppressed, [("budget", 1)]);
        assert_eq!((fleet.seen.calls(), fleet.seen.cancelled()), (1, 0));
    }
}

/// BU1: no tokens from the start.
#[tokio::test]
async fn bu1_empty() {
    let fleet = slow(2).await;
    let channel = fleet.channel(fleet.builder().budget(only(0.0))).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..3 {
        let response = client.get(request("1")).await.unwrap();
        assert!(!response.hedged());
    }
    assert_eq!(get(&channel).suppressed, [("budget", 3)]);
    assert_eq!(fleet.seen.calls(), 3);
}

/// BU2: the second hedge is refused while the original and the first run; both live on.
#[tokio::test]
async fn bu2_exhausted_mid_call() {
    let release = Latch::closed();
    let held = release.clone();
    let fleet = Fleet::start(3, move |arrival: Arrival| {
        let held = held.clone();
        async move {
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(Duration::from_millis(10)).max_concurrent(3))
        .budget(only(1.0));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the second hedge is refused", |measured| {
        let mut methods = measured.methods.iter();
        methods.any(|method| method.suppressed == [("budget", 1)])
    })
    .await;
    fleet
        .seen
        .until("both run", |seen| seen.running() == 2)
        .await;
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 2);
}

/// BU3: retries and hedges drain one budget, of one channel or of several.
#[tokio::test]
async fn bu3_shared() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "fails" => return Err(Status::unavailable("down")),
            "slow" => tokio::time::sleep(Duration::from_millis(60)).await,
            _ => {}
        }
        arrival.ok()
    })
    .await;
    let budget = Budget::new(&only(2.0)).unwrap();
    let builder = || {
        let builder = fleet.builder().shared_budget(budget.clone());
        builder.retry(Retry::default().base(Duration::ZERO))
    };
    let retrying = fleet.channel(builder().hedge(Hedge::after(NEVER))).await;
    let hedging = fleet.channel(builder()).await;
    let mut retrying = ProbeClient::new(retrying);
    let status = retrying.get(request("fails")).await.unwrap_err();
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 3);
    // The retries took both tokens: no hedge on the other channel, no retry on this one.
    let mut hedging = ProbeClient::new(hedging);
    assert!(!hedging.get(request("slow")).await.unwrap().hedged());
    let status = retrying.get(request("fails")).await.unwrap_err();
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 1);
    // The failure that refused a retry is the server's own.
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "down")
    );
}

/// BU11, BU12: a total outage: attempts stay within the calls' own deposits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bu11_total_outage() {
    let fleet = Fleet::start(3, |_| async { Err(Status::unavailable("down")) }).await;
    let builder = fleet
        .builder()
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default())
        .retry(Retry::default().base(Duration::ZERO))
        .without_breaker();
    let channel = fleet.channel(builder).await;
    const CALLS: u64 = 3_000;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            for _ in 0..CALLS / 30 {
                client.get(request("1")).await.unwrap_err();
            }
        });
    }
    tasks.join_all().await;
    settled(&channel).await;
    let get = get(&channel);
    assert_eq!(get.calls, CALLS);
    assert_eq!(get.attempts, get.calls + get.hedges + get.retries);
    // What it held at the start, and a fifth of a token from each call, the warm-up's included.
    let most = CALLS + 10 + (CALLS + 1) / 5;
    assert!(get.attempts <= most, "{} > {most}", get.attempts);
    assert!(get.attempts > CALLS + CALLS / 6, "{}", get.attempts);
    assert!(fleet.seen.calls() as u64 <= most);
}

/// TH1: nothing is hedged under the minimum of samples; with it, it is.
#[tokio::test]
async fn th1_warm_up() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.request.id == "slow" && arrival.previous() == 0 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        arrival.ok()
    })
    .await;
    let channel = fleet.channel(fleet.builder().hedge(Hedge::at(0.95))).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..18 {
        client.get(request("fast")).await.unwrap();
    }
    assert_eq!(get(&channel).threshold, None);
    // The nineteenth is slow, and not hedged: 18 are too few.
    let response = client.get(request("slow")).await.unwrap();
    assert!(!response.hedged());
    assert_eq!(get(&channel).samples, 19);
    assert_eq!(get(&channel).threshold, None);
    client.get(request("fast")).await.unwrap();
    assert_eq!(get(&channel).samples, 20);
    let threshold = get(&channel).threshold.unwrap();
    // The one slow call is beyond p95 of twenty; the threshold is where the fast ones end.
    assert!(threshold < Duration::from_millis(500), "{threshold:?}");
    let response = client.get(request("slow")).await.unwrap();
    assert!(response.hedged());
}

/// TH3: a service that answers in no time has the floor as its threshold: load is not doubled.
#[tokio::test]
async fn th3_zero_latency() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let floor = Duration::from_secs(2);
    let hedge = Hedge::at(0.5).minimum_delay(floor);
    let channel = fleet.channel(fleet.builder().hedge(hedge)).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..200 {
        client.get(request("1")).await.unwrap();
    }
    let get = get(&channel);
    assert_eq!(get.threshold, Some(floor));
    assert_eq!((get.attempts, get.hedges), (200, 0));
}

/// TH9: a request's own quantile is checked as well.
#[tokio::test]
async fn th9_bad_quantile_of_a_request() {
    let fleet = slow(1).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    for quantile in [0.0, 1.0, 1.5, f64::NAN, -1.0] {
        let own = Request::new(request("1")).hedge(Hedge::at(quantile));
        let status = client.get(own).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(
            status.message().starts_with("Hedge.quantile: "),
            "{status:?}"
        );
        assert!(
            status.message().ends_with(" is not in [0.5, 1)"),
            "{status:?}"
        );
    }
    assert_eq!(fleet.seen.calls(), 0);
}

/// TH12: invented paths share one method: nothing grows with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn th12_many_methods() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let channel = fleet.channel(fleet.builder()).await;
    const PATHS: u64 = 100_000;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let mut grpc = Grpc::new(channel.clone());
        tasks.spawn(async move {
            // Nearly all are over before they are sent: looking a path up is what matters.
            for path in 0..PATHS / 20 {
                let path = format!("/invented.Service{task}/Method{path}");
                let mut message = Request::new(ProbeRequest::default());
                message
                    .metadata_mut()
                    .insert("grpc-timeout", "1n".parse().unwrap());
                grpc.ready().await.unwrap();
                let codec = tonic_prost::ProstCodec::<ProbeRequest, ProbeReply>::default();
                let answer = grpc.unary(message, path.parse().unwrap(), codec).await;
                answer.unwrap_err();
            }
        });
    }
    tasks.join_all().await;
    let methods = channel.measured().methods;
    assert_eq!(methods.len(), 1, "{methods:?}");
    assert_eq!(methods[0].method, "other");
    assert_eq!(methods[0].calls, PATHS + 1);
}

/// BR2: an open breaker answers at once, with the time to wait; nothing is sent or spent.
#[tokio::test]
async fn br2_open_breaker_answers_at_once() {
    let fleet = Fleet::start(2, |_| async { Err(Status::internal("down")) }).await;
    let builder = fleet
        .builder()
        .budget(only(10.0))
        .breaker(BreakerPolicy::default().cool_down(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..5 {
        client.put(request("1")).await.unwrap_err();
    }
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, BreakerState::Open);
    for _ in 0..3 {
        let status = client.get(request("2")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let text = "channel: the circuit breaker is open";
        assert_eq!(status.message(), text);
        assert!(!status.details().is_empty(), "RetryInfo");
        assert!(CallLog::of_status(&status).unwrap().attempts().is_empty());
    }
    assert_eq!(fleet.seen.of("2").len(), 0);
    assert_eq!(channel.measured().budget, Some(10.0));
}

/// BR6: a half-open breaker lets one call through, and does not hedge it.
#[tokio::test]
async fn br6_no_hedging_while_half_open() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "fails" => Err(Status::internal("down")),
            _ => {
                tokio::time::sleep(Duration::from_millis(60)).await;
                arrival.ok()
            }
        }
    })
    .await;
    let policy = BreakerPolicy::default().cool_down(Duration::from_millis(1));
    let channel = fleet.channel(fleet.builder().breaker(policy)).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..5 {
        client.put(request("fails")).await.unwrap_err();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let response = client.get(request("probe")).await.unwrap();
    assert!(!response.hedged());
    assert_eq!(get(&channel).suppressed, [("breaker_closed", 1)]);
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, BreakerState::Closed);
}

/// A probe whose caller leaves does not keep the breaker half-open for ever.
#[tokio::test]
async fn br5_probe_that_is_dropped_gives_its_place_back() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "fails" => Err(Status::internal("down")),
            "stuck" => std::future::pending().await,
            _ => arrival.ok(),
        }
    })
    .await;
    // A probe that hangs for longer than this gives its place to another by itself.
    let cool_down = Duration::from_secs(2);
    let policy = BreakerPolicy::default().cool_down(cool_down);
    let channel = fleet.channel(fleet.builder().breaker(policy)).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..5 {
        client.put(request("fails")).await.unwrap_err();
    }
    tokio::time::sleep(cool_down + Duration::from_millis(5)).await;
    let probe = tokio::spawn({
        let mut client = client.clone();
        async move { client.get(request("stuck")).await }
    });
    let arrived = |seen: &support::Seen| seen.of("stuck").len() == 1;
    fleet.seen.until("the probe arrives", arrived).await;
    let status = client.get(request("2")).await.unwrap_err();
    assert!(status.message().contains("breaker is open"), "{status:?}");
    probe.abort();
    settled(&channel).await;
    client.get(request("3")).await.unwrap();
}
