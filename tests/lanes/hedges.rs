//! A hedge has a place of its own in its call's lane, or does not start.

use tonic_hedge::{BudgetPolicy, MethodMeasured};

use super::*;

const THRESHOLD: Duration = Duration::from_millis(20);

fn hedged(replicas: &[InMemory]) -> HedgedChannel {
    let hedge = Hedge::after(THRESHOLD);
    builder(replicas).hedge(hedge).build().unwrap()
}

fn pair() -> [InMemory; 2] {
    ["a", "b"].map(|name| InMemory::start(name, uniform))
}

fn held_by_lane(measured: &MethodMeasured) -> u64 {
    let lane = measured.suppressed.iter().find(|(name, _)| *name == "lane");
    lane.map_or(0, |(_, count)| *count)
}

/// Until the hedge would be due, and a little longer.
async fn past_threshold() {
    tokio::time::sleep(2 * THRESHOLD).await;
}

/// While it runs the call has two places, and afterwards none.
#[tokio::test(start_paused = true)]
async fn la8_a_hedge_has_a_place() {
    let lanes = one_lane(fixed(2));
    let replicas = pair();
    let channel = hedged(&replicas);
    let mut client = client_behind(&lanes, &channel);
    let call = tokio::spawn(async move { client.get(asked(100, Code::Ok)).await });
    past_threshold().await;
    assert_eq!(in_flight(&lanes), 2);
    call.await.unwrap().unwrap();
    assert_eq!(in_flight(&lanes), 0);
    let measured = duplex::get(&channel);
    assert_eq!((measured.hedges, held_by_lane(&measured)), (1, 0));
}

/// LA8: first attempts have what there is. A hedge in a full lane is held, and its call goes on.
#[tokio::test(start_paused = true)]
async fn la8_hedge_is_last_in_line() {
    let lanes = one_lane(fixed(2));
    let replicas = pair();
    let channel = hedged(&replicas);
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client_behind(&lanes, &channel);
            tokio::spawn(async move { client.get(asked(100, Code::Ok)).await })
        })
        .collect();
    past_threshold().await;
    assert_eq!(in_flight(&lanes), 2);
    for call in calls {
        let answer = call.await.unwrap().unwrap();
        assert!(!answer.hedged());
    }
    let measured = duplex::get(&channel);
    assert_eq!((measured.attempts, held_by_lane(&measured)), (2, 2));
    assert_eq!(
        lane(&lanes, "all").shed,
        0,
        "a hedge that is held is not shed"
    );
}

/// What is taken for a hedge that the budget refuses goes back, and one refusal is counted.
#[tokio::test(start_paused = true)]
async fn a_hedge_without_a_token_takes_no_place() {
    let lanes = one_lane(fixed(2));
    let replicas = pair();
    let none = BudgetPolicy::default().initial(0.0).ratio(0.0);
    let channel = builder(&replicas)
        .hedge(Hedge::after(THRESHOLD))
        .budget(none)
        .build()
        .unwrap();
    let mut client = client_behind(&lanes, &channel);
    let call = tokio::spawn(async move { client.get(asked(100, Code::Ok)).await });
    past_threshold().await;
    assert_eq!(in_flight(&lanes), 1);
    call.await.unwrap().unwrap();
    assert_eq!(in_flight(&lanes), 0);
    assert_eq!(duplex::get(&channel).suppressed, [("budget", 1)]);
}

/// However a hedge ends: its call's caller leaves, its deadline passes, it fails first.
#[tokio::test(start_paused = true)]
async fn la4_a_hedge_gives_its_place_back() {
    let lanes = one_lane(fixed(2));
    let replicas = pair();
    let channel = hedged(&replicas);
    let start = || {
        let mut client = client_behind(&lanes, &channel);
        let mut request = asked(1_000, Code::Ok);
        request.set_timeout(ms(500));
        tokio::spawn(async move { client.get(request).await })
    };
    let left = start();
    past_threshold().await;
    assert_eq!(in_flight(&lanes), 2);
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    assert_eq!(in_flight(&lanes), 0, "the caller has left");

    let expired = start();
    past_threshold().await;
    assert_eq!(in_flight(&lanes), 2);
    expired.await.unwrap().unwrap_err();
    assert_eq!(in_flight(&lanes), 0, "the deadline has passed");

    // The hedge fails at once; its original goes on.
    let failing = ["a", "b"].map(|name| {
        InMemory::start(name, |arrival: Arrival| async move {
            match arrival.metadata.contains_key("grpc-previous-rpc-attempts") {
                true => Err(Status::unavailable("the hedge")),
                false => uniform(arrival).await,
            }
        })
    });
    let channel = hedged(&failing);
    let mut client = client_behind(&lanes, &channel);
    let call = tokio::spawn(async move { client.get(asked(100, Code::Ok)).await });
    past_threshold().await;
    assert_eq!(duplex::get(&channel).hedges_failed, 1);
    assert_eq!(in_flight(&lanes), 1, "the hedge has failed");
    call.await.unwrap().unwrap();
    assert_eq!(in_flight(&lanes), 0);
}

/// The original fails while the hedge waits for its observer: what follows is a retry, which has the
/// call's own place.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_became_a_retry_has_no_place() {
    let lanes = one_lane(fixed(2));
    let replicas = ["a", "b"].map(|name| {
        InMemory::start(name, |arrival: Arrival| async move {
            let first = arrival.previous() == 0;
            tokio::time::sleep(ms(if first { 30 } else { 500 })).await;
            match first {
                true => Err(Status::unavailable("the original")),
                false => arrival.ok(),
            }
        })
    });
    let channel = builder(&replicas)
        .hedge(Hedge::after(THRESHOLD))
        .on_hedge(|_| std::future::pending::<Result<(), std::io::Error>>())
        .build()
        .unwrap();
    let mut client = client_behind(&lanes, &channel);
    let call = tokio::spawn(async move { client.get(request("call")).await });
    past_threshold().await;
    let measured = duplex::get(&channel);
    assert_eq!((measured.hedges, measured.retries), (0, 1));
    assert_eq!(in_flight(&lanes), 1);
    call.await.unwrap().unwrap();
}

/// A hedge counts in its tenant's share.
#[tokio::test(start_paused = true)]
async fn a_hedge_is_within_its_tenants_share() {
    let lanes = Lanes::builder()
        .lane("all", fixed(4))
        .tenant_key("x-tenant")
        .build()
        .unwrap();
    let replicas = pair();
    let channel = hedged(&replicas);
    let start = |tenant: &'static str| {
        let mut client = client_behind(&lanes, &channel);
        let mut request = asked(100, Code::Ok);
        request
            .metadata_mut()
            .insert("x-tenant", tenant.parse().unwrap());
        tokio::spawn(async move { client.get(request).await })
    };
    // Two of four for each: `a` has one for a hedge, `b` has none.
    let calls = [start("a"), start("b"), start("b")];
    past_threshold().await;
    let measured = lane(&lanes, "all");
    let shares: Vec<_> = measured.tenants.iter().map(|it| it.in_flight).collect();
    assert_eq!(shares, [2, 2]);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let measured = duplex::get(&channel);
    assert_eq!((measured.hedges, held_by_lane(&measured)), (1, 2));
    assert_eq!(in_flight(&lanes), 0);
}

/// A gateway's own calls: their hedges take places in the lane of the request that they are made
/// for.
#[tokio::test(start_paused = true)]
async fn hedges_of_what_a_request_causes() {
    for limit in [1, 2] {
        let lanes = one_lane(fixed(limit));
        let replicas = pair();
        let upstream = hedged(&replicas);
        let inner = upstream.clone();
        let (front, _) = server_behind(&lanes, move |arrival: Arrival| {
            let mut upstream = ProbeClient::new(inner.clone());
            async move { upstream.get(asked(100, Code::Ok)).await.and(arrival.ok()) }
        });
        let mut client = ProbeClient::new(front);
        let call = tokio::spawn(async move { client.get(request("outer")).await });
        past_threshold().await;
        assert_eq!(in_flight(&lanes), limit);
        call.await.unwrap().unwrap();
        assert_eq!(in_flight(&lanes), 0);
        let measured = duplex::get(&upstream);
        let expected = (u64::from(limit) - 1, 2 - u64::from(limit));
        assert_eq!((measured.hedges, held_by_lane(&measured)), expected);
    }
}
