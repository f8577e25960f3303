//! What is logged, and how loud: whole channels in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
#[path = "support/logged.rs"]
mod logged;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, builder, tail, uniform};
use logged::Logged;
use support::{Answer, Arrival, ProbeClient};
use tonic::{Code, Status};
use tonic_hedge::{BreakerPolicy, BudgetPolicy, Builder, Hedge, HedgedChannel, MethodPolicy};
use tracing::Level;

const MS: Duration = Duration::from_millis(1);

struct World {
    client: ProbeClient<HedgedChannel>,
    _replicas: Vec<InMemory>,
}

fn world(replicas: Vec<InMemory>, with: impl FnOnce(Builder) -> Builder) -> World {
    let channel = with(builder(&replicas).hedge(Hedge::after(20 * MS)));
    World {
        client: ProbeClient::new(channel.build().unwrap()),
        _replicas: replicas,
    }
}

fn told(logged: &Logged) -> Vec<(Level, String)> {
    let lines = logged.all().into_iter();
    lines.map(|line| (line.level, line.text)).collect()
}

fn line(level: Level, text: &str) -> (Level, String) {
    (level, text.to_owned())
}

const GET: &str = "method=\"hedge.testing.v1.Probe/Get\"";

#[tokio::test(start_paused = true)]
async fn an_ordinary_loser_is_whispered() {
    let replicas = vec![InMemory::start("a", tail), InMemory::start("b", tail)];
    let mut world = world(replicas, |builder| builder);
    let logged = Logged::here();
    world.client.get(asked(1, Code::Ok)).await.unwrap();
    assert_eq!(told(&logged), [], "nothing of a call that needed nothing");
    world.client.get(asked(50, Code::Ok)).await.unwrap();
    let [(level, text)] = &told(&logged)[..] else {
        panic!("{:?}", told(&logged))
    };
    assert_eq!(*level, Level::DEBUG);
    let start = format!("attempt discarded {GET} number=0 kind=\"original\" endpoint=");
    assert!(text.starts_with(&start), "{text}");
}

/// The original is the slower one of two that fail, or is alone.
async fn hedge_fails(arrival: Arrival) -> Answer {
    match arrival.previous() {
        0 => uniform(arrival).await,
        _ => Err(Status::unavailable("secret")),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_loser_is_told() {
    let replicas = ["a", "b"].map(|name| InMemory::start(name, hedge_fails));
    let mut world = world(replicas.into(), |builder| builder.max_attempts(2));
    let logged = Logged::here();
    world.client.get(asked(50, Code::Ok)).await.unwrap();
    let [(level, text)] = &told(&logged)[..] else {
        panic!("{:?}", told(&logged))
    };
    assert_eq!(*level, Level::INFO);
    assert!(text.starts_with(&format!("attempt failed {GET} number=1 kind=\"hedge\"")));
    assert!(text.ends_with("status=\"UNAVAILABLE\""), "{text}");
    assert!(!text.contains("secret"), "no word of the server's");
}

#[tokio::test(start_paused = true)]
async fn a_suppressed_hedge_names_its_gate() {
    let replicas = vec![InMemory::start("a", tail), InMemory::start("b", tail)];
    let budget = BudgetPolicy::default().ratio(0.0).initial(0.5);
    let mut world = world(replicas, |builder| builder.budget(budget));
    let logged = Logged::here();
    world.client.get(asked(50, Code::Ok)).await.unwrap();
    let expected = format!("hedge suppressed {GET} gate=\"budget\"");
    assert_eq!(told(&logged), [line(Level::DEBUG, &expected)]);
}

/// Each change of the breaker once, whatever goes on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_breaker_warns_once_per_change() {
    let replicas = vec![InMemory::start("a", uniform), InMemory::start("b", uniform)];
    let breaker = BreakerPolicy::default().consecutive(3);
    let mut world = world(replicas, |builder| builder.breaker(breaker));
    let logged = Logged::here();
    for _ in 0..10 {
        world
            .client
            .get(asked(0, Code::Internal))
            .await
            .unwrap_err();
    }
    let changed = |state| {
        let text = format!("circuit breaker changed breaker=\"channel\" state={state:?}");
        line(Level::WARN, &text)
    };
    assert_eq!(told(&logged), [changed("open")]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    for _ in 0..10 {
        world.client.get(asked(0, Code::Ok)).await.unwrap();
    }
    assert_eq!(
        told(&logged),
        [changed("open"), changed("half_open"), changed("closed")]
    );
}

/// The likeliest mistake of a first swap: a policy, and nothing that says which calls may be repeated.
#[test]
fn a_policy_without_methods_is_told() {
    let logged = Logged::here();
    let bare = || HedgedChannel::builder().endpoints(["http://127.0.0.1:1"]);
    let hedge = || bare().hedge(Hedge::at(0.95));
    bare().build().unwrap();
    let known = "hedge.testing.v1.Probe/Get";
    hedge()
        .method(known, MethodPolicy::new().idempotent(true))
        .build()
        .unwrap();
    let set = support::probe::FILE_DESCRIPTOR_SET;
    hedge().descriptors(set).build().unwrap();
    assert_eq!(told(&logged), []);
    hedge().build().unwrap();
    let text =
        "nothing will be hedged: no method is known (Builder::descriptors) channel=127.0.0.1:1";
    assert_eq!(told(&logged), [line(Level::WARN, text)]);
}
