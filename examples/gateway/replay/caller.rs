//! The gateway's callers: users who ask once, and batch jobs that come again when they are told to.

use std::time::Duration;

use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, sleep_until},
};
use tonic::{Code, Request, Status, metadata::MetadataValue, transport::Channel};
use tonic_hedge::StatusExt as _;

use super::plan::Phase;
use crate::{
    api::{ChatRequest, chat_client::ChatClient},
    policy::TENANT,
    scale::chat,
};

/// The users' tenants; batch has two of its own.
const TENANTS: [&str; 4] = ["acme", "birch", "cedar", "delta"];
const BATCH_TENANTS: [&str; 2] = ["evals", "summaries"];

/// Of a thousand users this many read three tokens, and leave.
const LEAVE: u64 = 10;
const READ_BEFORE_LEAVING: u32 = 3;

/// Tokens of an answer.
const SHORTEST: u32 = 10;
const LONGEST: u32 = 12;

/// A batch job writes as many, with a larger model that takes ten times as long for each.
const BATCH_TOKENS: u32 = 11;
const BATCH_PACE: u32 = 10;

/// What a job takes that nothing keeps, in seconds of chat. A worker takes no more jobs than that,
/// also where they fail at once: a flood that grows with its failures would be another incident.
const JOB: f64 = 10.5;

/// No job comes so often: it would be a mistake somewhere.
const MOST_TRIES: u32 = 1_000;

/// The numbers of batch calls begin here.
const BATCH_CALLS: u64 = 1 << 40;
/// And each worker has so many, its jobs' tries.
const CALLS_OF_WORKER: u64 = 1 << 20;

/// How a user's call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered,
    /// By its user, in the middle.
    Left,
    /// By a lane.
    Shed,
    Failed(Code),
}

/// A user's call, as the user saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    /// Since the call was due, so that a late generator flatters nobody.
    pub(crate) first: Option<Duration>,
    pub(crate) total: Duration,
    pub(crate) ended: Ended,
}

/// A batch job, with all its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Calls of it that a lane shed.
    pub(crate) shed: u32,
    /// Those of them that were told when to come again.
    pub(crate) told_when: u32,
    pub(crate) done: bool,
}

/// Makes one user's call, which is due at `due`.
pub(crate) async fn session(
    client: ChatClient<Channel>,
    call: u64,
    due: Instant,
    phase: Phase,
) -> Session {
    let mut draws = fastrand::Rng::with_seed(call);
    let leaves = draws.u64(0..1_000) < LEAVE;
    let request = ChatRequest {
        prompt: format!("question {call}"),
        call,
        tokens: draws.u32(SHORTEST..=LONGEST),
        pace: 1,
    };
    let tenant = TENANTS[call as usize % TENANTS.len()];
    let wanted = if leaves {
        READ_BEFORE_LEAVING
    } else {
        u32::MAX
    };
    let mut first = None;
    let read = read(
        client,
        metadata(request, tenant, "critical"),
        wanted,
        || {
            first = Some(due.elapsed());
        },
    );
    let ended = match read.await {
        Ok(true) => Ended::Answered,
        Ok(false) => Ended::Left,
        Err(status) if is_shed(&status) => Ended::Shed,
        Err(status) => Ended::Failed(status.code()),
    };
    Session {
        phase,
        first,
        total: due.elapsed(),
        ended,
    }
}

/// Takes one job after the other until the flood ends, and tells `ended` of each; the last one is
/// brought to its end.
pub(crate) async fn worker(
    client: ChatClient<Channel>,
    number: u64,
    until: Instant,
    ended: UnboundedSender<Job>,
) {
    let mut draws = fastrand::Rng::with_seed(BATCH_CALLS + number);
    let mut call = BATCH_CALLS + number * CALLS_OF_WORKER;
    // Not all in one moment.
    sleep(chat(JOB).mul_f64(draws.f64())).await;
    while Instant::now() < until {
        let next = Instant::now() + chat(JOB).mul_f64(0.9 + 0.2 * draws.f64());
        let mut job = Job::default();
        for _ in 0..MOST_TRIES {
            call += 1;
            let request = ChatRequest {
                prompt: format!("job {call}"),
                call,
                tokens: BATCH_TOKENS,
                pace: BATCH_PACE,
            };
            let tenant = BATCH_TENANTS[number as usize % BATCH_TENANTS.len()];
            let request = metadata(request, tenant, "sheddable");
            let status = match read(client.clone(), request, u32::MAX, || {}).await {
                Ok(_) => {
                    job.done = true;
                    break;
                }
                Err(status) => status,
            };
            if !is_shed(&status) {
                break;
            }
            job.shed += 1;
            // Without a word on when, coming again would be a guess.
            let Some(after) = retry_after(&status) else {
                break;
            };
            job.told_when += 1;
            sleep(after).await;
        }
        if ended.send(job).is_err() {
            break;
        }
        sleep_until(next).await;
    }
}

/// Reads up to so many tokens, and says whether that was all of them.
async fn read(
    mut client: ChatClient<Channel>,
    request: Request<ChatRequest>,
    wanted: u32,
    first: impl FnOnce(),
) -> Result<bool, Status> {
    let mut tokens = client.stream(request).await?.into_inner();
    let mut first = Some(first);
    for _ in 0..wanted {
        if tokens.message().await?.is_none() {
            return Ok(true);
        }
        if let Some(first) = first.take() {
            first();
        }
    }
    Ok(false)
}

fn metadata(
    request: ChatRequest,
    tenant: &'static str,
    criticality: &'static str,
) -> Request<ChatRequest> {
    let mut request = Request::new(request);
    let metadata = request.metadata_mut();
    metadata.insert(TENANT, MetadataValue::from_static(tenant));
    metadata.insert("x-criticality", MetadataValue::from_static(criticality));
    request
}

fn is_shed(status: &Status) -> bool {
    status.shed_by().is_some()
}

/// When to come again; both ways of saying it have to be there.
fn retry_after(status: &Status) -> Option<Duration> {
    let both =
        !status.details().is_empty() && status.metadata().contains_key("grpc-retry-pushback-ms");
    status.retry_after().filter(|_| both)
}
