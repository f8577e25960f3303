//! The example's parts, and a moment of the replay.

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

/// A gateway that is started again has its lanes' limits; of its thresholds the file tells too, and
/// how a channel goes on from them is the library's to test.
#[tokio::test]
async fn a_memory_from_life_to_life() {
    let metrics = Metrics::new().unwrap();
    let file = std::env::temp_dir().join(format!("gateway-{}.json", std::process::id()));
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let limit = |gateway: &Gateway| gateway.lanes.as_ref().unwrap().measured()[1].limit;

    let first = start(Kind::Whole, &metrics).await;
    let mut client = ChatClient::connect(first.uri()).await.unwrap();
    let mut answer = client.stream(request(1, 1)).await.unwrap().into_inner();
    while answer.message().await.unwrap().is_some() {}
    first.lanes.as_ref().unwrap().resume("batch", 37);
    Memory::write(&first, &file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(METHOD), "{text}");

    let memory = Memory::open(&file).unwrap();
    let second = Gateway::start(Kind::Whole, any, &memory, metrics.provider());
    assert_eq!(limit(&second.await.unwrap()), 37);

    // What is none of ours is not overwritten when this life is over.
    let others = "{\"name\": \"another program's\"}";
    for wrong in [
        "{\"lanes\": 7, \"channel\": ",
        "{\"lanes\": 7}",
        others,
        "[]",
        "",
    ] {
        std::fs::write(&file, wrong).unwrap();
        let error = Memory::open(&file).unwrap_err();
        assert!(error.contains(&*file.to_string_lossy()), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), wrong);
    }
    std::fs::remove_file(&file).unwrap();
    let memory = Memory::open(&file).unwrap();
    let third = Gateway::start(Kind::Whole, any, &memory, metrics.provider());
    assert_eq!(limit(&third.await.unwrap()), 20);
    assert!(!file.exists());
    let nowhere = file.with_extension("").join("learned.json");
    let error = Memory::open(&nowhere).unwrap_err();
    assert!(error.contains("learned.json"), "{error}");
}

/// Nothing but the file is written: neither what has nearly its name, nor, when it is opened, itself.
#[test]
fn a_memory_touches_no_other_file() {
    let folder = std::env::temp_dir().join(format!("gateway-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let ours = "{\"channel\": null, \"lanes\": null}";
    for (file, text) in [("a.json", ours), ("a.new", "another's"), ("b.new", ours)] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    for file in ["a.json", "b.new"] {
        Memory::open(&folder.join(file)).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join(file)).unwrap(), ours);
    }
    let others = std::fs::read_to_string(folder.join("a.new")).unwrap();
    assert_eq!(others, "another's");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// An address that is taken is named, and so is the argument that asked for it.
#[tokio::test]
async fn an_address_that_is_taken() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr().unwrap();
    let metrics = Metrics::new().unwrap();
    let memory = Memory::default();
    let gateway = Gateway::start(Kind::Plain, addr, &memory, metrics.provider()).await;
    let error = gateway.err().unwrap().to_string();
    assert!(error.starts_with(&format!("--grpc: {addr}: ")), "{error}");
}

/// Who is being answered is answered to the end.
#[tokio::test]
async fn a_gateway_that_closes() {
    let metrics = Metrics::new().unwrap();
    let gateway = start(Kind::Whole, &metrics).await;
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let shown = Arc::clone(&gateway);
    let web = Web::start(shown, metrics, web::Phase::default(), any).await;
    let web = web.unwrap();
    let mut client = ChatClient::connect(gateway.uri()).await.unwrap();
    let mut answer = client.stream(request(5, 40)).await.unwrap().into_inner();
    assert!(answer.message().await.unwrap().is_some());
    let rest = tokio::spawn(async move {
        let mut tokens = 1;
        while answer.message().await.unwrap().is_some() {
            tokens += 1;
        }
        tokens
    });
    // One that keeps its connection without asking is not waited for.
    let idle = tokio::net::TcpStream::connect(web.uri().replace("http://", "")).await;
    tokio::join!(web.close(), gateway.close());
    assert_eq!(rest.await.unwrap(), 40);
    assert!(ChatClient::connect(gateway.uri()).await.is_err());
    drop(idle);
}

/// One line of text over HTTP/1, as `curl` would have it.
async fn http(web: &Web, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let addr = web.uri().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("{request}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn the_web_side() {
    let metrics = Metrics::new().unwrap();
    let gateway = start(Kind::Whole, &metrics).await;
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let shown = Arc::clone(&gateway);
    let web = Web::start(shown, metrics, web::Phase::default(), any).await;
    let web = web.unwrap();
    let post = |path: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
    };
    let get = |path| format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");

    // Before any call: a process that is asked whether it is ready gets none yet.
    let health = http(&web, &get("/healthz")).await;
    assert!(health.ends_with("ok\n"), "{health}");
    let answer = http(&web, &post("/chat", "", "Why?")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("slow"), "{answer}");
    let page = http(&web, &get("/")).await;
    assert!(page.contains("default-src 'none'"), "{page}");
    let metrics = http(&web, &get("/metrics")).await;
    assert!(metrics.contains("grpc_client_call_duration"), "{metrics}");
    let numbers = http(&web, &get("/stats.json")).await;
    assert!(numbers.contains("\"phase\":null"), "{numbers}");

    let slow = post("/region/east?floor_ms=250&errors=0.5", "", "");
    let changed = http(&web, &slow).await;
    assert!(changed.starts_with("HTTP/1.1 200"), "{changed}");
    assert!(changed.contains("\"floor_ms\":250.0"), "{changed}");
    for (origin, code) in [("http://x", 200), ("http://y", 403), ("null", 403)] {
        let asked = post(
            "/region/west?errors=0",
            &format!("origin: {origin}\r\n"),
            "",
        );
        let answer = http(&web, &asked).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
        assert!(
            answer.contains("content-type: application/json"),
            "{answer}"
        );
    }
    let east = gateway.fleet.region("east").unwrap();
    assert_eq!(east.floor(), Duration::from_millis(250));
    assert_eq!(east.errors(), 0.5);
    // What is wrong in a part changes nothing.
    for wrong in [
        "floor_ms=7&errors=2",
        "floor_ms=7&depth=1",
        "floor_ms=soon",
        "floor_ms=nan",
    ] {
        let refused = http(&web, &post(&format!("/region/east?{wrong}"), "", "")).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(refused.contains("{\"error\":\""), "{refused}");
        assert_eq!(east.floor(), Duration::from_millis(250));
    }

    // So does a load that plays to it from elsewhere.
    let remote = Remote::new(&format!("{}/", web.uri())).unwrap();
    assert_eq!(remote.stats().await.unwrap()["grpc"], gateway.uri());
    remote
        .change(&Region::named("east").unwrap())
        .await
        .unwrap();
    assert_eq!((east.floor(), east.errors()), (Duration::ZERO, 0.0));
    let nowhere = Region::new("north");
    let error = remote.change(&nowhere).await.unwrap_err().to_string();
    assert!(error.contains("/region/north"), "{error}");
    for (phase, name) in [
        (Some(Phase::Errors), json!("error ramp")),
        (None, json!(null)),
    ] {
        remote.enter(phase).await.unwrap();
        assert_eq!(remote.stats().await.unwrap()["phase"], name);
    }
    let refused = http(&web, &post("/phase/lunch", "", "")).await;
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    for wrong in ["127.0.0.1:1", "http://", "http://a/b"] {
        assert!(Remote::new(wrong).is_err(), "{wrong}");
    }

    // A lane that has more than it may shed the next one. After their first tokens its calls teach
    // it nothing.
    let batch = "x-criticality: sheddable\r\n";
    let mut answers = Vec::new();
    let mut client = ChatClient::connect(gateway.uri()).await.unwrap();
    for call in 1..=20 {
        let mut request = request(call, 512);
        let sheddable = "sheddable".parse().unwrap();
        request.metadata_mut().insert("x-criticality", sheddable);
        let mut answer = client.stream(request).await.unwrap().into_inner();
        assert!(answer.message().await.unwrap().is_some());
        answers.push(answer);
    }
    gateway.lanes.as_ref().unwrap().resume("batch", 1);
    let shed = http(&web, &post("/chat", batch, "Why?")).await;
    assert!(shed.starts_with("HTTP/1.1 429"), "{shed}");
    assert!(shed.to_lowercase().contains("retry-after: "), "{shed}");
    let told = "{\"error\":\"the lane batch has no place\"}\n";
    assert!(shed.ends_with(told), "{shed}");
}

/// A load that is stopped, or of which something fails, leaves nothing wrong with the regions.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_stopped() {
    let metrics = Metrics::new().unwrap();
    let gateway = start(Kind::Whole, &metrics).await;
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let phase = web::Phase::default();
    let (shown, told) = (Arc::clone(&gateway), Arc::clone(&phase));
    let web = Web::start(shown, metrics, told, any).await.unwrap();
    let asked = Load {
        uri: web.uri(),
        length: Duration::from_secs(5),
    };
    let [west, east] = ["west", "east"].map(|it| gateway.fleet.region(it).unwrap());
    let fails = || west.errors() > 0.0 && east.errors() > 0.0;
    let stopped = async {
        until(fails).await;
        assert_eq!(*phase.lock(), Some(Phase::Errors));
        Ok(())
    };
    assert!(!load(&asked, stopped).await.unwrap());
    assert_eq!((west.errors(), east.errors()), (0.0, 0.0));
    assert_eq!(*phase.lock(), None);

    let no_signals = async {
        until(fails).await;
        Err(std::io::Error::other("no signals here"))
    };
    assert!(!load(&asked, no_signals).await.unwrap());
    assert_eq!((west.errors(), east.errors()), (0.0, 0.0));

    // Its gateway goes meanwhile.
    let gone = async {
        until(fails).await;
        drop(web);
        std::future::pending().await
    };
    let error = load(&asked, gone).await.unwrap_err().to_string();
    assert!(error.contains(&asked.uri), "{error}");
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
