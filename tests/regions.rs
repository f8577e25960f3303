//! Two regions of two replicas each, in memory and under virtual time: an estimate for each, the hedge
//! to the other, and one hedge for a call.

#![allow(clippy::unwrap_used)]

#[path = "support/duplex.rs"]
mod duplex;
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use duplex::{InMemory, get, inserted};
use support::{Answer, Arrival, ProbeClient, ProbeReply, ProbeRequest, probe, request};
use tonic::{Code, Request, Response, Status};
use tonic_hedge::{
    AttemptOutcome, BudgetPolicy, Builder, CallLog, Destination, EstimateMeasured, Hedge,
    HedgedChannel, ResponseExt as _, Scope,
};

const REGIONS: [&str; 2] = ["near", "far"];
const NEAR: usize = 0;
const FAR: usize = 1;

/// More than anything else here takes.
const STUCK: u32 = 10_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The replicas, and how long each region takes, in milliseconds.
struct World {
    replicas: Vec<InMemory>,
    takes: Arc<[AtomicU32; 2]>,
}

impl World {
    fn new(near: u32, far: u32) -> Self {
        let takes = Arc::new([near, far].map(AtomicU32::new));
        let replica = |name: &str| {
            let takes = Arc::clone(&takes);
            InMemory::start(name, move |arrival| answer(arrival, Arc::clone(&takes)))
        };
        Self {
            replicas: ["near-1", "near-2", "far-1", "far-2"].map(replica).into(),
            takes,
        }
    }

    fn takes(&self, region: usize, millis: u32) {
        self.takes[region].store(millis, Ordering::Relaxed);
    }

    /// An original goes where its request says.
    fn builder(&self, hedge: Hedge) -> Builder {
        let specs = self.replicas.iter().enumerate();
        let specs: Vec<_> = specs
            .map(|(key, it)| inserted(key, it.spec().locality(region_of(&it.name))))
            .collect();
        HedgedChannel::builder()
            .discover(tokio_stream::iter(specs))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(hedge)
            .budget(BudgetPolicy::default().initial(100.0))
            .target_with(|attempt| {
                let region = attempt.metadata().get("x-region")?.to_str().ok()?;
                (attempt.number() == 0).then(|| Destination::locality(region))
            })
    }

    fn channel(&self, hedge: Hedge) -> HedgedChannel {
        self.builder(hedge).build().unwrap()
    }
}

fn region_of(endpoint: &str) -> &str {
    endpoint.split('-').next().unwrap()
}

/// An original takes as long as its request says, else everything takes what its region takes, and up
/// to a fifth more.
async fn answer(arrival: Arrival, takes: Arc<[AtomicU32; 2]>) -> Answer {
    let region = usize::from(region_of(&arrival.replica) == REGIONS[FAR]);
    let usual = takes[region].load(Ordering::Relaxed);
    let millis = match arrival.previous() {
        0 if arrival.request.delay_ms > 0 => arrival.request.delay_ms,
        _ => usual + usual * (arrival.index % 20) as u32 / 100,
    };
    tokio::time::sleep(ms(millis.into())).await;
    match arrival.previous() {
        1 if arrival.request.status > 0 => Err(Status::new(
            Code::from(arrival.request.status as i32),
            "a hedge",
        )),
        _ => arrival.ok(),
    }
}

fn to(region: usize, message: ProbeRequest) -> Request<ProbeRequest> {
    let mut request = Request::new(message);
    let region = REGIONS[region].parse().unwrap();
    request.metadata_mut().insert("x-region", region);
    request
}

/// A call whose original goes to this region.
async fn call(channel: &HedgedChannel, region: usize, delay_ms: u32) -> Response<ProbeReply> {
    let message = ProbeRequest {
        delay_ms,
        ..request("call")
    };
    let mut client = ProbeClient::new(channel.clone());
    client.get(to(region, message)).await.unwrap()
}

async fn calls(channel: &HedgedChannel, region: usize, count: usize) -> usize {
    let mut hedged = 0;
    for _ in 0..count {
        hedged += usize::from(call(channel, region, 0).await.hedged());
    }
    hedged
}

/// When the hedge of a call starts whose original does not answer.
async fn hedged_at(channel: &HedgedChannel, region: usize) -> Duration {
    let response = call(channel, region, STUCK).await;
    response.call_log().unwrap().attempts()[1].start()
}

fn estimate(channel: &HedgedChannel, region: usize) -> EstimateMeasured {
    let mut estimates = get(channel).estimates.into_iter();
    let estimate = estimates.find(|it| &*it.name == REGIONS[region]);
    estimate.unwrap_or_else(|| panic!("no call went there: {:?}", get(channel)))
}

fn threshold(channel: &HedgedChannel, region: usize) -> Duration {
    estimate(channel, region).threshold.unwrap()
}

fn regional() -> Hedge {
    Hedge::at(0.95).scope(Scope::Locality)
}

/// Each region's calls are hedged by that region's quantile, whichever of its replicas they are at.
#[tokio::test(start_paused = true)]
async fn each_region_has_an_estimate() {
    let world = World::new(20, 200);
    let channel = world.channel(regional());
    for _ in 0..100 {
        calls(&channel, NEAR, 1).await;
        calls(&channel, FAR, 1).await;
    }
    for (region, range) in [(NEAR, ms(20)..=ms(25)), (FAR, ms(200)..=ms(245))] {
        assert_eq!(estimate(&channel, region).samples, 100);
        let threshold = threshold(&channel, region);
        assert!(range.contains(&threshold), "{threshold:?}");
        let late = hedged_at(&channel, region).await - threshold;
        assert!(late < ms(2), "{late:?}");
    }
    assert_eq!(get(&channel).threshold, None, "there is no common one");
}

/// Floor and ceiling hold for each region's threshold.
#[tokio::test(start_paused = true)]
async fn each_region_is_clamped() {
    let world = World::new(20, 200);
    let hedge = regional().minimum_delay(ms(50)).maximum_delay(ms(100));
    let channel = world.channel(hedge);
    for region in [NEAR, FAR] {
        calls(&channel, region, 50).await;
    }
    for (region, bound) in [(NEAR, ms(50)), (FAR, ms(100))] {
        assert_eq!(threshold(&channel, region), bound);
        let late = hedged_at(&channel, region).await - bound;
        assert!(late < ms(2), "{late:?}");
    }
}

/// A region without samples has the cold start's threshold, beside one that has its own; and without
/// a cold start it has none.
#[tokio::test(start_paused = true)]
async fn each_region_starts_cold() {
    let world = World::new(20, 200);
    let channel = world.channel(regional().cold_start(ms(70)));
    calls(&channel, NEAR, 50).await;
    assert!(hedged_at(&channel, NEAR).await < ms(27));
    let late = hedged_at(&channel, FAR).await - ms(70);
    assert!(late < ms(2), "{late:?}");

    let world = World::new(20, 200);
    let channel = world.channel(regional());
    calls(&channel, NEAR, 50).await;
    assert!(hedged_at(&channel, NEAR).await < ms(27));
    assert!(!call(&channel, FAR, STUCK).await.hedged());
    assert_eq!(get(&channel).suppressed, [("samples", 1 + 19 + 1)]);
}

/// Never to the replica beside the original's, while the other region is there; and to that when it is
/// not.
#[tokio::test(start_paused = true)]
async fn the_hedge_goes_to_the_other_region() {
    let mut world = World::new(20, 200);
    let regions = |log: &CallLog| -> Vec<String> {
        let attempts = log.attempts().iter();
        attempts
            .map(|it| region_of(it.endpoint()).to_owned())
            .collect()
    };
    let channel = world.channel(Hedge::after(ms(30)));
    for turn in 0..8 {
        let response = call(&channel, turn % 2, STUCK).await;
        let (here, there) = (REGIONS[turn % 2], REGIONS[(turn + 1) % 2]);
        assert_eq!(regions(response.call_log().unwrap()), [here, there]);
    }
    world.replicas.truncate(2);
    let channel = world.channel(Hedge::after(ms(30)));
    let response = call(&channel, NEAR, STUCK).await;
    let log = response.call_log().unwrap();
    assert_eq!(regions(log), ["near", "near"]);
    assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
}

/// A region that becomes ten times slower raises its own threshold, and does not go on to send all of
/// its calls twice; the other's stays.
#[tokio::test(start_paused = true)]
async fn a_slow_region_raises_its_own_threshold() {
    let world = World::new(20, 30);
    let channel = world.channel(regional());
    for region in [NEAR, FAR] {
        calls(&channel, region, 200).await;
    }
    let far = threshold(&channel, FAR);
    assert!((ms(30)..=ms(37)).contains(&far), "{far:?}");
    world.takes(NEAR, 200);
    // A window of them, and the other region's beside them.
    for _ in 0..160 {
        calls(&channel, NEAR, 1).await;
        calls(&channel, FAR, 2).await;
    }
    let near = threshold(&channel, NEAR);
    assert!((ms(200)..=ms(245)).contains(&near), "{near:?}");
    let now = threshold(&channel, FAR);
    assert!((ms(30)..=ms(37)).contains(&now), "{now:?}");
    let hedged = calls(&channel, NEAR, 100).await;
    assert!(hedged <= 10, "{hedged} of 100 hedged: it aims at 5");
}

/// A call that is slow has one hedge, however slow that is. One that fails beside the original is
/// followed by another, unless the user wants one in all: then the original is waited for.
#[tokio::test(start_paused = true)]
async fn a_call_has_one_hedge() {
    let attempts = async |hedge: Hedge, builds: fn(Builder) -> Builder| {
        let world = World::new(20, 20);
        let channel = builds(world.builder(hedge)).build().unwrap();
        let message = ProbeRequest {
            delay_ms: 1_000,
            status: Code::Unavailable as u32,
            ..request("call")
        };
        let mut client = ProbeClient::new(channel.clone());
        let response = client.get(to(NEAR, message)).await.unwrap();
        let log = response.call_log().unwrap().clone();
        let outcomes = log.attempts().iter().map(|it| it.outcome());
        (outcomes.collect::<Vec<_>>(), get(&channel).hedges)
    };
    let after = || Hedge::after(ms(50));
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    let won = AttemptOutcome::Won(Code::Ok);
    let two = (vec![AttemptOutcome::Discarded, failed, won], 2);
    assert_eq!(attempts(after(), |it| it).await, two);
    assert_eq!(attempts(after().max_hedges(2), |it| it).await, two);
    // More attempts would not change it.
    let one = (vec![won, failed], 1);
    let one_hedge = || after().max_hedges(1);
    assert_eq!(attempts(one_hedge(), |it| it).await, one);
    assert_eq!(attempts(one_hedge(), |it| it.max_attempts(5)).await, one);
    let three_at_once = one_hedge().max_concurrent(3);
    assert_eq!(attempts(three_at_once, |it| it).await, one);

    // Nothing fails: both are slow, for many thresholds.
    let world = World::new(1_000, 1_000);
    let channel = world.channel(after());
    assert!(call(&channel, NEAR, STUCK).await.hedged());
    assert_eq!((get(&channel).attempts, get(&channel).hedges), (2, 1));
}
