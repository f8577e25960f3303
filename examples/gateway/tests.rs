//! The example's parts, and a moment of the replay.

mod memory;
mod served;

use std::{collections::HashMap, net::Ipv4Addr, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::time::{Instant, advance, sleep};
use tonic::{Code, Request};

use crate::{
    api::{ChatRequest, METHOD, chat_client::ChatClient, chat_server::Chat},
    args::Load,
    gateway::Gateway,
    load::load,
    memory::Memory,
    metrics::Metrics,
    model::{Model, SLOTS},
    policy::{Kind, lanes},
    recent::Recent,
    region::Region,
    remote::Remote,
    replay,
    replay::plan::{Phase, Plan},
    stats::stats,
    tokens::{Spent, Tokens},
    web::{self, Web},
};

fn model() -> Model {
    let region = Arc::new(Region::new("east"));
    Model::new("east-1".to_owned(), region, Arc::new(Tokens::default()))
}

fn request(call: u64, tokens: u32) -> Request<ChatRequest> {
    Request::new(ChatRequest {
        call,
        tokens,
        ..ChatRequest::default()
    })
}

/// The times of a call's tokens at a model that has no floor, or one of a second.
async fn times(model: &Model, call: u64) -> Vec<Duration> {
    let start = Instant::now();
    let answer = model.stream(request(call, 5)).await.unwrap().into_inner();
    answer.map(|_| start.elapsed()).collect().await
}

#[tokio::test(start_paused = true)]
async fn a_call_draws_the_same_whoever_asks() {
    let (one, two) = (model(), model());
    for call in 1..20 {
        assert_eq!(times(&one, call).await, times(&two, call).await);
    }
    assert_ne!(times(&one, 1).await, times(&one, 2).await);
}

#[tokio::test(start_paused = true)]
async fn a_floor_is_under_the_first_token() {
    let model = model();
    let usual = times(&model, 7).await;
    model.region.set_floor(Duration::from_secs(1));
    let slow = times(&model, 7).await;
    assert_eq!(slow.len(), 5);
    let late = slow[0] - usual[0];
    assert!(late.abs_diff(Duration::from_secs(1)) <= Duration::from_millis(1));
    assert!(slow[4] - slow[0] > (usual[4] - usual[0]).mul_f64(1.8));
}

#[tokio::test(start_paused = true)]
async fn slots_are_refused_and_given_back() {
    let model = model();
    let mut answers = Vec::new();
    for call in 1..=SLOTS as u64 {
        answers.push(model.stream(request(call, 5)).await.unwrap());
    }
    let full = model.stream(request(99, 5)).await.err().unwrap();
    assert_eq!(full.code(), Code::Unavailable);
    answers.pop();
    assert!(model.stream(request(99, 5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_are_by_their_share() {
    let model = model();
    let mut failed = 0;
    model.region.set_errors(0.3);
    for call in 0..2_000 {
        failed += u32::from(model.stream(request(call, 1)).await.is_err());
    }
    assert!((500..700).contains(&failed), "{failed}");
}

/// What a stream that is cancelled has written counts for whoever cancelled it.
#[tokio::test(start_paused = true)]
async fn tokens_of_losers_are_not_those_of_leavers() {
    let model = model();
    for (call, leaves) in [(1, false), (2, true)] {
        let mut answer = model.stream(request(call, 5)).await.unwrap().into_inner();
        for _ in 0..3 {
            assert!(answer.next().await.is_some());
        }
        if leaves {
            model.tokens.caller_leaves(call);
        }
    }
    // A whole answer is neither.
    assert_eq!(times(&model, 3).await.len(), 5);
    let spent = Spent {
        sent: 11,
        lost: 3,
        left: 3,
    };
    assert_eq!(model.tokens.spent(), spent);
}

#[tokio::test(start_paused = true)]
async fn the_page_shows_the_last_seconds() {
    let recent = Recent::new();
    assert_eq!(recent.seen(Instant::now()).total_ms, None);
    let ms = Duration::from_millis;
    recent.answered(Instant::now(), ms(900), ms(1_000));
    advance(Duration::from_secs(11)).await;
    for _ in 0..100 {
        recent.called();
        recent.answered(Instant::now(), ms(10), ms(50));
    }
    let seen = recent.seen(Instant::now());
    assert_eq!((seen.calls, seen.answered), (100, 100));
    assert_eq!(seen.total_ms, Some([50.0, 50.0]));
    assert_eq!(seen.first_ms, Some([10.0, 10.0]));
}

#[test]
fn lanes_fit_into_the_replicas_slots() {
    let lanes = lanes(&Memory::default(), Metrics::new().unwrap().provider()).unwrap();
    let names: Vec<_> = lanes.measured().iter().map(|it| it.name.clone()).collect();
    assert_eq!(
        names.iter().map(|it| &**it).collect::<Vec<_>>(),
        ["interactive", "batch"]
    );
}

#[test]
fn the_plan_is_the_documents() {
    let plan = Plan::document();
    let ms = Duration::from_millis;
    assert_eq!(plan.length(), Duration::from_secs(150));
    let mut end = Duration::ZERO;
    for phase in Phase::ALL {
        assert_eq!(plan.span(phase).0, end);
        end = plan.span(phase).1;
        assert_eq!(plan.phase(end - ms(1)), phase);
    }
    let (begin, end) = plan.span(Phase::Errors);
    assert_eq!(plan.errors(begin - ms(1)), 0.0);
    assert!((0.42..0.43).contains(&plan.errors(begin + (end - begin) / 3)));
    assert!((plan.errors(end - ms(1)) - 0.85).abs() < 1e-9);
    assert_eq!(plan.errors(end), 0.0);
    let (begin, end) = plan.span(Phase::Slow);
    assert_eq!(plan.floor(begin), Duration::from_micros(562_500));
    assert_eq!(plan.floor(end), Duration::ZERO);
    assert_eq!(plan.workers, 154);
    let schedule = plan.schedule(1);
    assert_eq!(schedule, plan.schedule(1));
    assert_eq!(schedule.len(), 24_000);
    assert!(schedule.is_sorted());
}

/// The page asks nobody else, and has what a browser's test reads.
#[test]
fn the_page_is_whole() {
    let page = include_str!("page.html");
    for elsewhere in ["http:", "https:", "//cdn", "@import", "src="] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    let check = include_str!("../../interop/gateway/check.js");
    let ids = check.split_once("const IDS = [").unwrap().1;
    let ids = ids.split_once("];").unwrap().0;
    let ids = ids.split('"').skip(1).step_by(2);
    for id in ids {
        let made = ["lane-", "threshold-"].iter().any(|it| id.starts_with(it));
        assert!(made || page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

async fn start(kind: Kind, metrics: &Metrics) -> Arc<Gateway> {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let memory = Memory::default();
    let gateway = Gateway::start(kind, any, &memory, metrics.provider()).await;
    Arc::new(gateway.unwrap())
}

/// Looks again until it is so.
async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_caller_who_leaves_cancels_the_replica() {
    let gateway = start(Kind::Whole, &Metrics::new().unwrap()).await;
    let mut client = ChatClient::connect(gateway.uri()).await.unwrap();
    let mut answer = client.stream(request(5, 512)).await.unwrap().into_inner();
    assert!(answer.message().await.unwrap().is_some());
    drop(answer);
    until(|| gateway.fleet.tokens.spent().left > 0).await;
    let measured = || gateway.channel.measured();
    until(|| measured().endpoints.iter().all(|it| it.in_flight == 0)).await;
    assert_eq!(gateway.fleet.tokens.spent().lost, 0);
    let lanes = || gateway.lanes.as_ref().unwrap().measured();
    until(|| lanes().iter().all(|it| it.in_flight == 0)).await;
}

/// All phases in some seconds: whoever came is accounted for, and all numbers are there.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_replay() {
    let metrics = Metrics::new().unwrap();
    let plain = start(Kind::Plain, &metrics).await;
    let whole = start(Kind::Whole, &metrics).await;
    let plan = Plan::short();
    let phase = web::Phase::default();
    let shown = Arc::clone(&whole);
    let outcome = replay::replay(&plan, plain, whole, phase).await.unwrap();
    let json = outcome.json();
    for side in ["breaker_and_budget", "hedges_and_lanes"] {
        let mut sessions = 0;
        for phase in Phase::ALL {
            let interactive = &json[side]["phases"][phase.key()]["interactive"];
            sessions += interactive["sessions"].as_u64().unwrap();
        }
        assert_eq!(sessions as usize, plan.schedule(0).len());
        let batch = &json[side]["batch"];
        // On a busy machine the flood is over before it has begun.
        assert!(batch["jobs"].is_u64());
        assert!(json[side]["tokens"]["sent"].as_u64().unwrap() > 0);
    }
    let batch = &json["hedges_and_lanes"]["batch"];
    assert_eq!(batch["sheds"], batch["sheds_with_retry_time"]);
    assert_eq!(batch["shed_jobs"], batch["shed_jobs_done_later"]);
    assert_eq!(json["breaker_and_budget"]["batch"]["sheds"], 0);
    let rows = json["table"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["ours"]["after"].is_number()));
    let names: HashMap<_, _> = json["holds"].as_object().unwrap().iter().collect();
    assert_eq!(names.len(), 6);
    assert!(outcome.text().contains("breaker and budget only"));

    let seen = stats(&shown, Some("calm"), 1.0);
    assert_eq!(seen["lanes"][1]["name"], "batch");
    // All times are numbers of a unit that their names tell.
    assert!(seen["lanes"][0]["held_ms"].is_number(), "{seen}");
    assert_eq!(seen["lanes"][0]["held"], json!(null));
    assert_eq!(seen["regions"][1]["name"], "east");
    assert_eq!(
        seen["breaker"]["state"].as_str().map(str::is_empty),
        Some(false)
    );
    assert!(seen["latency"]["interactive"]["calls"].as_u64().unwrap() > 0);
}
