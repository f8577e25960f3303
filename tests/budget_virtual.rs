//! The budget, through whole channels in virtual time: retries and hedges draw on one bucket.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use duplex::{InMemory, asked, builder, get, inserted, pipe, tail, uniform};
use parking_lot::Mutex;
use support::{Latch, ProbeClient, probe};
use tokio::io::DuplexStream;
use tokio_stream::{StreamExt as _, wrappers::UnboundedReceiverStream};
use tonic::{Code, Status, transport::Channel};
use tonic_hedge::{
    Budget, BudgetPolicy, CallLog, EndpointSpec, Hedge, HedgedChannel, ResponseExt, RetryBudget,
};
use tower::retry::budget::Budget as TowerBudget;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tokens(initial: f64) -> BudgetPolicy {
    BudgetPolicy::default().ratio(0.0).initial(initial)
}

fn three(script: fn(support::Arrival) -> Reacting) -> [InMemory; 3] {
    ["a", "b", "c"].map(|name| InMemory::start(name, script))
}

type Reacting = std::pin::Pin<Box<dyn Future<Output = support::Answer> + Send>>;

fn sent(replicas: &[InMemory]) -> usize {
    replicas.iter().map(|it| it.seen.calls()).sum()
}

/// BU11: 10,000 calls of 64 tasks at a dependency that is slow, that fails, or that does both in
/// turn: what goes over the wire stays within calls x (1 + ratio) + initial.
#[tokio::test(start_paused = true)]
async fn bu11_total_outage() {
    // Whether a call is slow and whether it then fails, by its number.
    type Outage = fn(u32) -> (u32, Code);
    let outages: [(&str, Outage); 3] = [
        ("fails", |_| (0, Code::Unavailable)),
        ("slow", |_| (100, Code::Ok)),
        ("both in turn", |call| match call % 2 {
            0 => (0, Code::Unavailable),
            _ => (100, Code::Unavailable),
        }),
    ];
    for (name, outage) in outages {
        let replicas = three(|arrival| Box::pin(uniform(arrival)));
        let channel = builder(&replicas)
            .hedge(Hedge::after(ms(20)).max_concurrent(3))
            .max_attempts(5)
            .budget(BudgetPolicy::default().ratio(0.2).initial(10.0))
            .without_breaker()
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let mut client = ProbeClient::new(channel.clone());
                tokio::spawn(async move {
                    for call in (task..10_000).step_by(64) {
                        let (delay, code) = outage(call);
                        let _result = client.get(asked(delay, code)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let get = get(&channel);
        let funded = 10_000 / 5 + 10;
        assert_eq!(get.calls, 10_000);
        assert_eq!(sent(&replicas) as u64, get.attempts, "{name}");
        assert!(get.attempts <= 10_000 + funded, "{name}: {}", get.attempts);
        assert!(
            get.attempts >= 10_000 + funded - 100,
            "{name}: it was spent"
        );
        assert_eq!(get.attempts, get.calls + get.hedges + get.retries);
        let ended = get.hedges_won + get.hedges_lost + get.hedges_failed + get.hedges_abandoned;
        assert_eq!(get.hedges, ended, "{name}");
    }
}

/// BU1: without a token the original is alone, and the reason is counted once.
#[tokio::test(start_paused = true)]
async fn bu1_empty() {
    let replicas = three(|arrival| Box::pin(tail(arrival)));
    let builder = builder(&replicas).hedge(Hedge::after(ms(20)));
    let channel = builder.budget(tokens(0.999_999)).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(asked(1_000, Code::Ok)).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    assert_eq!(get(&channel).suppressed, [("budget", 1)]);
    let status = client.get(asked(0, Code::Unavailable)).await.unwrap_err();
    assert_eq!(status.message(), "as asked", "nor a retry");
}

/// BU2: a refused second hedge leaves original and first hedge as they are.
#[tokio::test(start_paused = true)]
async fn bu2_exhausted_in_the_middle() {
    let replicas = three(|arrival| Box::pin(uniform(arrival)));
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)).max_concurrent(3))
        .budget(tokens(1.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(asked(1_000, Code::Ok)).await });
    tokio::time::sleep(ms(500)).await;
    let running: usize = replicas.iter().map(|it| it.seen.running()).sum();
    assert_eq!(running, 2, "both live on");
    let log = call.await.unwrap().unwrap().call_log().unwrap().clone();
    assert_eq!(log.attempts().len(), 2);
    assert_eq!(log.duration(), ms(1_000), "the original answered");
    assert_eq!(get(&channel).suppressed, [("budget", 1)]);
    assert_eq!(get(&channel).hedges_lost, 1);
}

/// BU3: two channels on one budget: one's retries leave the other no hedge, and the reverse.
#[tokio::test(start_paused = true)]
async fn bu3_shared() {
    for hedges_first in [false, true] {
        let replicas = three(|arrival| Box::pin(tail(arrival)));
        let budget = Budget::new(&tokens(3.0)).unwrap();
        let channel = || {
            builder(&replicas)
                .hedge(Hedge::after(ms(20)))
                .max_attempts(4)
                .shared_budget(budget.clone())
                .build()
                .unwrap()
        };
        let (one, two) = (channel(), channel());
        let mut hedging = ProbeClient::new(one.clone());
        if hedges_first {
            for _ in 0..3 {
                assert!(
                    hedging
                        .get(asked(1_000, Code::Ok))
                        .await
                        .unwrap()
                        .hedge_won()
                );
            }
        }
        // Each replica refuses each attempt: three retries, or none.
        let down: Vec<_> = ["d", "e"]
            .map(|name| InMemory::start(name, |_| async { Err(Status::unavailable("down")) }))
            .into();
        let failing = builder(&down)
            .max_attempts(4)
            .shared_budget(budget.clone())
            .build()
            .unwrap();
        let result = ProbeClient::new(failing).get(asked(0, Code::Ok)).await;
        let attempts = result.unwrap_err().call_log().unwrap().attempts().len();
        assert_eq!(attempts, if hedges_first { 1 } else { 4 });
        assert!(!hedging.get(asked(1_000, Code::Ok)).await.unwrap().hedged());
        assert_eq!(get(&one).suppressed, [("budget", 1)]);
        assert_eq!(one.measured().budget, Some(0.0));
        assert_eq!(two.measured().budget, Some(0.0));
    }
}

/// A reserve accrues for whichever channel is in use, and once.
#[tokio::test(start_paused = true)]
async fn the_reserve_of_a_shared_budget() {
    let replicas = three(|arrival| Box::pin(tail(arrival)));
    let reserve = tokens(0.0).ratio(0.0).capacity(10.0).reserve(1.0);
    let budget = Budget::new(&reserve).unwrap();
    let channel = || {
        let builder = builder(&replicas).shared_budget(budget.clone());
        builder.hedge(Hedge::after(ms(20))).build().unwrap()
    };
    let old = channel();
    tokio::time::advance(ms(3_600_000)).await;
    assert_eq!(old.measured().budget, Some(10.0));
    // The old one has calls, and none afterwards.
    let mut client = ProbeClient::new(old);
    client.get(asked(0, Code::Ok)).await.unwrap();
    let young = channel();
    let mut client = ProbeClient::new(young.clone());
    let start = tokio::time::Instant::now();
    let mut hedges = 0.0;
    for _ in 0..30 {
        hedges += f64::from(client.get(asked(500, Code::Ok)).await.unwrap().hedged());
        tokio::time::advance(ms(500)).await;
    }
    let left = young.measured().budget.unwrap();
    assert_eq!(budget.balance(), left);
    // Ten tokens, and one a second; while it is full none is added.
    let earned = 10.0 + start.elapsed().as_secs_f64();
    assert!(
        (hedges + left - earned).abs() < 0.1,
        "{hedges} + {left} of {earned}"
    );
    assert!(hedges > 20.0);
    let for_tower = RetryBudget::new(budget.clone());
    tokio::time::advance(ms(10_000)).await;
    assert!((0..10).all(|_| for_tower.withdraw()) && !for_tower.withdraw());
}

/// BU10: a hedge that was paid for but never sent costs nothing; one that was sent is never given
/// back, whoever answers first.
#[tokio::test(start_paused = true)]
async fn bu10_given_back_only_if_nothing_was_sent() {
    let live = InMemory::start("live", uniform);
    let (changes, stream) = tokio::sync::mpsc::unbounded_channel();
    changes.send(inserted(0, live.spec())).unwrap();
    let channel = HedgedChannel::builder()
        .discover(UnboundedReceiverStream::new(stream))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(ms(20)))
        .budget(tokens(1.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(asked(100, Code::Ok)).await });
    tokio::time::sleep(ms(10)).await;
    // Its connector finds nobody.
    let (dead, _) = pipe();
    let dead = EndpointSpec::channel("dead", dead);
    changes.send(inserted(1, dead)).unwrap();
    let log = call.await.unwrap().unwrap().call_log().unwrap().clone();
    assert!(log.hedged() && !log.hedge_won(), "{log}");
    assert_eq!(channel.measured().budget, Some(1.0), "{log}");
    assert_eq!((get(&channel).hedges, get(&channel).hedges_failed), (1, 1));

    let replicas = [InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let builder = builder(&replicas).hedge(Hedge::after(ms(20)));
    let channel = builder.budget(tokens(1.0)).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    // The original answers in the moment in which the hedge is due, and just after.
    for delay in [20, 21] {
        let hedged = client.get(asked(delay, Code::Ok)).await.unwrap().hedged();
        let left = channel.measured().budget.unwrap();
        let spent = get(&channel).hedges;
        assert_eq!(left, 1.0 - spent as f64, "hedged: {hedged}");
    }
}

/// What a stream is answered with: a status, or a refusal that says that it was not processed.
type Told = Arc<Mutex<VecDeque<Option<&'static str>>>>;

/// An HTTP/2 server that goes by a script which it shares with others; after it all is OK.
fn told(script: &Told) -> Channel {
    let (channel, mut incoming) = pipe();
    let script = Arc::clone(script);
    tokio::spawn(async move {
        while let Some(Ok(io)) = incoming.next().await {
            tokio::spawn(serve(io, Arc::clone(&script)));
        }
    });
    channel
}

async fn serve(io: DuplexStream, script: Told) {
    let mut connection = h2::server::handshake(io).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(_)) = body.data().await {}
        });
        let head = http::Response::builder().header("content-type", "application/grpc");
        let step = script.lock().pop_front();
        match step {
            Some(None) => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Some(Some(code)) => {
                let head = head.header("grpc-status", code).body(()).unwrap();
                respond.send_response(head, true).unwrap();
            }
            None => {
                let mut body = respond
                    .send_response(head.body(()).unwrap(), false)
                    .unwrap();
                body.send_data(vec![0; 5].into(), false).unwrap();
                let status = ("grpc-status".parse().unwrap(), "0".parse().unwrap());
                body.send_trailers([status].into_iter().collect()).unwrap();
            }
        }
    }
}

/// A retry that was refused, replaced and refused again is not replaced once more: it has failed
/// and has cost its token, or a server that refuses all would be retried for nothing.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_refused_twice_has_cost_its_token() {
    let script: Told = Arc::new(Mutex::new([Some("14"), None, None].into()));
    let specs = ["a", "b", "c"].map(|name| EndpointSpec::channel(name, told(&script)));
    let changes: Vec<_> = specs
        .into_iter()
        .enumerate()
        .map(|(key, it)| inserted(key, it))
        .collect();
    let channel = HedgedChannel::builder()
        .discover(tokio_stream::iter(changes))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .budget(tokens(1.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let status = client.get(asked(0, Code::Ok)).await.unwrap_err();
    let log = CallLog::of_status(&status).unwrap();
    let kinds: Vec<_> = log.attempts().iter().map(|it| it.kind().name()).collect();
    assert_eq!(kinds, ["original", "retry", "replacement"], "{log}");
    assert_eq!(channel.measured().budget, Some(0.0));
}

/// A hedge that is refused is replaced, and what replaces it is a hedge to its call.
#[tokio::test(start_paused = true)]
async fn what_replaces_a_hedge_wins_as_a_hedge() {
    let script: Told = Arc::new(Mutex::new([None].into()));
    let stuck = InMemory::start("stuck", |_| std::future::pending());
    let (changes, stream) = tokio::sync::mpsc::unbounded_channel();
    changes.send(inserted(0, stuck.spec())).unwrap();
    let channel = HedgedChannel::builder()
        .discover(UnboundedReceiverStream::new(stream))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(ms(20)))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(asked(0, Code::Ok)).await });
    tokio::time::sleep(ms(10)).await;
    for (key, name) in [(1, "b"), (2, "c")] {
        let spec = EndpointSpec::channel(name, told(&script));
        changes.send(inserted(key, spec)).unwrap();
    }
    let log = call.await.unwrap().unwrap().call_log().unwrap().clone();
    let kinds: Vec<_> = log.attempts().iter().map(|it| it.kind().name()).collect();
    assert_eq!(kinds, ["original", "hedge", "replacement"], "{log}");
    assert_eq!((get(&channel).hedges, get(&channel).hedges_won), (1, 1));
    assert!(log.hedged() && log.hedge_won(), "{log}");
}

/// BU13: drained by an outage, the budget fills with calls, and hedging resumes.
#[tokio::test(start_paused = true)]
async fn bu13_recovery() {
    let replicas = three(|arrival| Box::pin(tail(arrival)));
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .budget(BudgetPolicy::default().initial(0.0))
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..3 {
        assert!(!client.get(asked(1_000, Code::Ok)).await.unwrap().hedged());
    }
    client.get(asked(0, Code::Ok)).await.unwrap();
    let response = client.get(asked(1_000, Code::Ok)).await.unwrap();
    assert!(response.hedge_won(), "the fifth call's fifth");
    assert_eq!(get(&channel).suppressed, [("budget", 3)]);
}

/// BU16: a thousand calls fail at once: their retries are granted when they fail, no more than
/// there are tokens, and no burst follows the backoff.
#[tokio::test(start_paused = true)]
async fn bu16_queued_retries_count() {
    let latch = Latch::closed();
    let script = {
        let latch = latch.clone();
        move |arrival: support::Arrival| {
            let latch = latch.clone();
            async move {
                if arrival.metadata.get("grpc-previous-rpc-attempts").is_none() {
                    latch.passed().await;
                }
                Err(Status::unavailable("down"))
            }
        }
    };
    let replicas = [
        InMemory::start("a", script.clone()),
        InMemory::start("b", script),
    ];
    let channel = builder(&replicas)
        .budget(tokens(50.0))
        .without_breaker()
        .build()
        .unwrap();
    let calls: Vec<_> = (0..1_000)
        .map(|_| {
            let mut client = ProbeClient::new(channel.clone());
            tokio::spawn(async move { client.get(asked(0, Code::Ok)).await.is_err() })
        })
        .collect();
    tokio::time::sleep(ms(10)).await;
    let arrived = sent(&replicas);
    latch.open();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert!(arrived > 0);
    assert_eq!(get(&channel).retries, 50);
    assert_eq!(sent(&replicas), 1_050);
}

/// Somebody else's budget by tower's trait that refuses everything.
struct Refuses;

impl TowerBudget for Refuses {
    fn deposit(&self) {}
    fn withdraw(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_tower_budget_that_refuses_holds_hedges_and_retries() {
    let replicas = three(|arrival| Box::pin(tail(arrival)));
    let builder = builder(&replicas).hedge(Hedge::after(ms(20)));
    let channel = builder.tower_budget(Refuses).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    assert!(!client.get(asked(1_000, Code::Ok)).await.unwrap().hedged());
    assert_eq!(get(&channel).suppressed, [("budget", 1)]);
    let status = client.get(asked(0, Code::Unavailable)).await.unwrap_err();
    assert_eq!(status.call_log().unwrap().attempts().len(), 1);
    assert_eq!(channel.measured().budget, None);
}

/// A tower retry layer of the application's on the channel's budget.
#[derive(Clone)]
struct Again(RetryBudget);

impl tower::retry::Policy<u32, u32, u32> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut u32, result: &mut Result<u32, u32>) -> Option<Self::Future> {
        if result.is_ok() {
            self.0.deposit();
            return None;
        }
        self.0.withdraw().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_tower_retry_layer_draws_on_the_channels_budget() {
    use tower::ServiceExt as _;
    let replicas = three(|arrival| Box::pin(tail(arrival)));
    let budget = Budget::new(&tokens(3.0)).unwrap();
    let channel = builder(&replicas)
        .hedge(Hedge::after(ms(20)))
        .shared_budget(budget.clone())
        .build()
        .unwrap();
    let mut client = ProbeClient::new(channel.clone());
    assert!(
        client
            .get(asked(1_000, Code::Ok))
            .await
            .unwrap()
            .hedge_won()
    );
    let asked_times = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counter = std::sync::Arc::clone(&asked_times);
    let failing = tower::service_fn(move |_: u32| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { Err::<u32, u32>(1) }
    });
    let retrying = tower::retry::Retry::new(Again(RetryBudget::new(budget)), failing);
    assert_eq!(retrying.oneshot(0).await, Err(1));
    assert_eq!(
        asked_times.load(std::sync::atomic::Ordering::Relaxed),
        3,
        "two tokens were left"
    );
    assert!(!client.get(asked(1_000, Code::Ok)).await.unwrap().hedged());
    assert_eq!(get(&channel).suppressed, [("budget", 1)]);
}
