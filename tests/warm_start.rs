//! A restarted process goes on from what the one before it had learnt.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
#[path = "support/logged.rs"]
mod logged;
mod support;

use std::time::Duration;

use duplex::{InMemory, asked, get, inserted, tail, uniform};
use logged::Logged;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{ProbeClient, probe};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_hedge::{
    BudgetPolicy, Builder, Hedge, HedgedChannel, LanePolicy, Lanes, LanesLearned, Learned,
    PlanState, ResponseExt as _, Scope, WinRate,
};

const GET: &str = "hedge.testing.v1.Probe/Get";
const MAX_AGE: Duration = Duration::from_secs(600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One replica near, one far.
fn replicas() -> [InMemory; 2] {
    ["near", "far"].map(|name| InMemory::start(name, tail))
}

fn builder(replicas: &[InMemory; 2]) -> Builder {
    let specs = replicas.iter().enumerate().map(|(key, replica)| {
        let locality = replica.name.as_str();
        inserted(key, replica.spec().locality(locality))
    });
    HedgedChannel::builder()
        .discover(tokio_stream::iter(specs.collect::<Vec<_>>()))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .budget(BudgetPolicy::default().initial(100.0))
}

/// A process after a hundred calls of 1 to 100 ms.
async fn before(hedge: Hedge) -> HedgedChannel {
    let replicas = replicas();
    let channel = builder(&replicas).hedge(hedge).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for delay in 1..=100 {
        client.get(asked(delay, Code::Ok)).await.unwrap();
    }
    channel
}

/// What it knows, as it goes through a file.
async fn file(hedge: Hedge) -> String {
    serde_json::to_string(&before(hedge).await.learned()).unwrap()
}

fn read(file: &str) -> Learned {
    serde_json::from_str(file).unwrap()
}

/// When the hedge of a restarted process's first call starts, if one does.
async fn first_hedge(hedge: Hedge, learned: Learned, max_age: Duration) -> Option<Duration> {
    let replicas = replicas();
    let builder = builder(&replicas).hedge(hedge).resume(learned, max_age);
    let channel = builder.build().unwrap();
    let response = ProbeClient::new(channel)
        .get(asked(1_000, Code::Ok))
        .await
        .unwrap();
    let log = response.call_log().unwrap();
    Some(log.attempts().get(1)?.start())
}

/// Its first call is hedged by the threshold that the last one's would have been.
#[tokio::test(start_paused = true)]
async fn the_first_call_has_its_threshold() {
    let before = before(Hedge::at(0.95)).await;
    let file = serde_json::to_string(&before.learned()).unwrap();
    let [median, p95, _] = get(&before).latency.unwrap();
    // Whole milliseconds of the timer.
    let is_at = |at: Option<Duration>, threshold: Duration| {
        let at = at.unwrap();
        let late = at.checked_sub(threshold);
        assert!(late.is_some_and(|it| it < ms(2)), "{at:?}, {threshold:?}");
    };
    is_at(
        first_hedge(Hedge::at(0.95), read(&file), MAX_AGE).await,
        p95,
    );
    // The same calls by another quantile: it is the window that goes on.
    is_at(
        first_hedge(Hedge::at(0.5), read(&file), MAX_AGE).await,
        median,
    );
}

/// What the policy plans by is there from the first call on, and so is the plan.
#[tokio::test(start_paused = true)]
async fn a_plan_is_made_of_it() {
    let mut written: Value = serde_json::from_str(&file(Hedge::at(0.95)).await).unwrap();
    // One in eleven is late; they are as many as a plan for the last percent needs.
    let window = json!({"ended": [[10_000, 910], [500_000, 90]], "cut": []});
    written["methods"][GET]["window"] = window;
    let learned = read(&written.to_string());
    for (learned, state) in [
        (Some(learned), PlanState::Planned),
        (None, PlanState::Learning),
    ] {
        let replicas = replicas();
        let mut builder = builder(&replicas).hedge(Hedge::within(0.12));
        if let Some(learned) = learned {
            builder = builder.resume(learned, MAX_AGE);
        }
        let channel = builder.build().unwrap();
        let mut client = ProbeClient::new(channel.clone());
        client.get(asked(1, Code::Ok)).await.unwrap();
        assert_eq!(get(&channel).plan.unwrap().state, state);
    }
}

/// An original that a hedge beat stays one that took at least so long.
#[tokio::test(start_paused = true)]
async fn what_was_cut_off_goes_on_as_cut_off() {
    let replicas = replicas();
    let hedge = Hedge::at(0.9).cold_start(ms(50));
    let channel = builder(&replicas).hedge(hedge).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for call in 0..30 {
        let delay = if call % 5 == 0 { 500 } else { 10 };
        client.get(asked(delay, Code::Ok)).await.unwrap();
    }
    let hedges = get(&channel).hedges;
    assert!(hedges > 0);
    let written = serde_json::to_value(channel.learned()).unwrap();
    let window = &written["methods"][GET]["window"];
    let count = |kind: &str| {
        let entries = window[kind].as_array().unwrap().iter();
        entries.map(|it| it[1].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((count("cut"), count("ended")), (hedges, 30 - hedges));
}

/// Each region goes on for itself, and one that is not used is not there.
#[tokio::test(start_paused = true)]
async fn each_region_goes_on_for_itself() {
    let hedge = || Hedge::at(0.9).scope(Scope::Locality).minimum_samples(5);
    let mut written: Value = serde_json::from_str(&file(hedge()).await).unwrap();
    let places = written["methods"][GET]["places"].as_object_mut().unwrap();
    assert_eq!(places.keys().collect::<Vec<_>>(), ["far", "near"]);
    let of = |micros: u64| json!({"ended": [[micros, 100]], "cut": []});
    places.insert("near".to_owned(), of(30_000));
    places.insert("far".to_owned(), of(300_000));
    places.insert("nowhere".to_owned(), of(5_000));
    let learned = read(&written.to_string());
    let replicas = replicas();
    let builder = builder(&replicas).hedge(hedge());
    let channel = builder.resume(learned, MAX_AGE).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let mut seen = Vec::new();
    for _ in 0..20 {
        let response = client.get(asked(1_000, Code::Ok)).await.unwrap();
        let log = response.call_log().unwrap();
        let attempts = log.attempts();
        seen.push((attempts[0].endpoint() == "near", attempts[1].start()));
    }
    let at = |near| seen.iter().find(|it| it.0 == near).map(|it| it.1);
    let (near, far) = (at(true).unwrap(), at(false).unwrap());
    assert!((ms(29)..=ms(32)).contains(&near), "{near:?}");
    assert!((ms(298)..=ms(305)).contains(&far), "{far:?}");
    let estimates = get(&channel).estimates;
    let names: Vec<_> = estimates.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["far", "near"]);
}

/// Where hedges did not win, a restarted process does not start with all of them.
#[tokio::test(start_paused = true)]
async fn an_allowance_goes_on() {
    let hedge = || Hedge::after(ms(20)).win_rate(WinRate::at_least(0.5));
    let all = ["a", "b"].map(|name| InMemory::start(name, uniform));
    let channel = duplex::builder(&all).hedge(hedge()).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    // Both take as long: no hedge wins.
    while get_allowance(&channel).is_none_or(|it| it == 1.0) {
        client.get(asked(500, Code::Ok)).await.unwrap();
    }
    let learned = read(&serde_json::to_string(&channel.learned()).unwrap());
    let next = duplex::builder(&all).hedge(hedge());
    let next = next.resume(learned, MAX_AGE).build().unwrap();
    let mut client = ProbeClient::new(next.clone());
    for _ in 0..4 {
        client.get(asked(500, Code::Ok)).await.unwrap();
    }
    assert_eq!(get_allowance(&next), Some(0.5));
    let get = get(&next);
    assert_eq!((get.hedges, get.suppressed), (2, vec![("win_rate", 2)]));
}

fn get_allowance(channel: &HedgedChannel) -> Option<f64> {
    let measured = channel.measured();
    measured.method(GET)?.win_rate_allowance
}

/// What is old, of another version, of other methods or out of bounds is as if it were not there, and
/// the log says so in one line.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_gone_on_from_is_ignored() {
    let file = file(Hedge::at(0.95)).await;
    let written: Value = serde_json::from_str(&file).unwrap();
    let taken = written["taken"]["unix_ms"].as_u64().unwrap();
    let minute = 60_000;
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut changed = written.clone();
        change(&mut changed);
        changed
    };
    let window = |window: Value| changed(&|it| it["methods"][GET]["window"] = window.clone());
    let entries: Vec<_> = (0..5_000).map(|micros| json!([micros, 1])).collect();
    for (what, value, line) in [
        (
            "old",
            changed(&|it| it["taken"]["unix_ms"] = json!(taken - 11 * minute)),
            "nothing is gone on from why=\"it is too old\"",
        ),
        (
            "from the future",
            changed(&|it| it["taken"]["unix_ms"] = json!(taken + 2 * minute)),
            "nothing is gone on from why=\"it was taken in the future\"",
        ),
        (
            "another version",
            changed(&|it| it["taken"]["version"] = json!(2)),
            "nothing is gone on from why=\"it is of another version\"",
        ),
        (
            "another method",
            changed(&|it| it["methods"] = json!({"a.B/C": it["methods"][GET]})),
            "goes on from what was learnt before methods=0 unknown=1 refused=0",
        ),
        (
            "a name of no method",
            changed(&|it| it["methods"] = json!({"other": it["methods"][GET]})),
            "goes on from what was learnt before",
        ),
        (
            "too many calls",
            window(json!({"ended": [[5_000, 4_294_967_295_u32]]})),
            "goes on from what was learnt before methods=1 unknown=0 refused=1",
        ),
        (
            "too many entries",
            window(json!({"ended": entries})),
            "goes on from what was learnt before methods=1 unknown=0 refused=1",
        ),
        (
            "no window",
            window(Value::Null),
            "goes on from what was learnt before methods=1 unknown=0 refused=0",
        ),
    ] {
        let logged = Logged::here();
        let learned = read(&value.to_string());
        let hedge = first_hedge(Hedge::at(0.95), learned, MAX_AGE).await;
        assert_eq!(hedge, None, "{what}");
        let lines: Vec<_> = logged.of("gone on from");
        let lines = lines.into_iter().chain(logged.of("goes on from"));
        let lines: Vec<_> = lines.map(|it| it.text).collect();
        assert_eq!(lines.len(), 1, "{what}: {lines:?}");
        assert!(lines[0].starts_with(line), "{what}: {lines:?}");
    }
    // It is what was changed that was ignored.
    let unchanged = first_hedge(Hedge::at(0.95), read(&written.to_string()), MAX_AGE);
    assert!(unchanged.await.is_some());
}

/// It is one window old at most when it is gone on from: it leaves as the calls of then would have.
#[tokio::test(start_paused = true)]
async fn it_leaves_after_one_window() {
    let learned = read(&file(Hedge::at(0.95)).await);
    let replicas = replicas();
    let builder = builder(&replicas).hedge(Hedge::at(0.95));
    let channel = builder.resume(learned, MAX_AGE).build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    client.get(asked(1, Code::Ok)).await.unwrap();
    assert_eq!(get(&channel).samples, 101);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(get(&channel).samples, 0);
}

/// A lane starts at the limit that it had found, within the bounds that it has now.
#[tokio::test(start_paused = true)]
async fn a_lane_starts_at_its_limit() {
    let lanes = |minimum, maximum| {
        let policy = LanePolicy::default().initial(4.clamp(minimum, maximum));
        let policy = policy.minimum(minimum).maximum(maximum);
        let lanes = Lanes::builder().lane("all", policy.clone());
        lanes.lane("batch", policy).build().unwrap()
    };
    let limits = |lanes: &Lanes| -> Vec<u32> {
        let lanes = lanes.measured().into_iter();
        lanes.map(|lane| lane.limit).collect()
    };
    let before = lanes(1, 100);
    let replica = [InMemory::start("a", uniform)];
    let channel = duplex::builder(&replica).build().unwrap();
    let channel = tower::ServiceBuilder::new()
        .layer(before.client_layer())
        .service(channel);
    let client = ProbeClient::new(channel);
    for _ in 0..9 {
        let mut round = JoinSet::new();
        for _ in 0..limits(&before)[0] {
            let mut client = client.clone();
            round.spawn(async move { client.get(asked(200, Code::Ok)).await.unwrap() });
        }
        round.join_all().await;
    }
    assert_eq!(limits(&before), [13, 4]);
    let file = serde_json::to_string(&before.learned()).unwrap();
    let learned: LanesLearned = serde_json::from_str(&file).unwrap();
    for (after, expected) in [
        (lanes(1, 100), [13, 4]),
        (lanes(1, 8), [8, 4]),
        (lanes(20, 100), [20, 20]),
    ] {
        assert_eq!(after.resume_from(&learned, MAX_AGE), 2);
        assert_eq!(limits(&after), expected);
    }

    let changed = |key: &str, value: Value| -> LanesLearned {
        let mut written: Value = serde_json::from_str(&file).unwrap();
        *written.pointer_mut(key).unwrap() = value;
        serde_json::from_value(written).unwrap()
    };
    for (learned, resumed, expected) in [
        (changed("/taken/version", json!(9)), 0, [4, 4]),
        (changed("/taken/unix_ms", json!(0)), 0, [4, 4]),
        (changed("/limits", json!({"gone": 50})), 0, [4, 4]),
        (changed("/limits/all", json!(0)), 2, [1, 4]),
        (changed("/limits/all", json!(u32::MAX)), 2, [100, 4]),
    ] {
        let after = lanes(1, 100);
        assert_eq!(after.resume_from(&learned, MAX_AGE), resumed);
        assert_eq!(limits(&after), expected);
    }
}

proptest! {
    /// A file that was cut, or in which bytes have changed: it cannot be read, or a channel is built
    /// of it as of any other.
    #[test]
    fn a_damaged_file_harms_nothing(
        cut in 0_usize..2_000,
        changes in prop::collection::vec((0_usize..2_000, any::<u8>()), 0..4),
        digits in prop::collection::vec((0_usize..2_000, b'0'..=b'9'), 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let hedge = || Hedge::at(0.95).win_rate(WinRate::at_least(0.1));
            let mut file = FILE.as_bytes().to_vec();
            file.truncate(if cut < 1_000 { cut } else { usize::MAX });
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(at) {
                    *place = byte;
                }
            }
            for (at, digit) in digits {
                // Numbers of all sizes, which can be read.
                if let Some(place) = file.get_mut(at).filter(|it| it.is_ascii_digit()) {
                    *place = digit;
                }
            }
            let Ok(learned) = serde_json::from_slice::<Learned>(&file) else {
                return;
            };
            let replicas = replicas();
            let builder = builder(&replicas).hedge(hedge());
            let channel = builder.resume(learned, Duration::MAX).build().unwrap();
            let mut client = ProbeClient::new(channel.clone());
            client.get(asked(10, Code::Ok)).await.unwrap();
            let _hands_on = channel.learned();
        });
    }
}

/// As one is written, in short.
const FILE: &str = r#"{"taken":{"version":1,"unix_ms":1764000000000},"methods":{
"hedge.testing.v1.Probe/Get":{"window":{"ended":[[10020,3],[20011,17],[41999,70]],"cut":[[99000,2]]},
"places":{"near":{"ended":[[5000,10]],"cut":[]}},"win_rate_allowance":0.25},
"hedge.testing.v1.Probe/Put":{"window":null,"places":{},"win_rate_allowance":null}}}"#;

/// The form of a file is kept: what an older version wrote is read.
#[test]
fn the_form_of_a_file() {
    let learned: Learned = serde_json::from_str(FILE).unwrap();
    assert!(!learned.is_empty());
    let written = serde_json::to_value(&learned).unwrap();
    assert_eq!(written, serde_json::from_str::<Value>(FILE).unwrap());
    let least = r#"{"taken":{"version":1,"unix_ms":0},"methods":{"a.B/C":{}}}"#;
    assert!(serde_json::from_str::<Learned>(least).is_ok());
}
