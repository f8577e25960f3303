//! Plays a plan's traffic, to as many gateways at once as there are.

use std::{
    error::Error,
    future::Future,
    iter::successors,
    pin::{Pin, pin},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tonic::transport::{Channel, Endpoint};

use super::{
    caller::{self, Job, Session},
    plan::{Phase, Plan},
};
use crate::api::chat_client::ChatClient;

/// Connections of all users together: one reader of frames is not to be what they wait for.
const CONNECTIONS: usize = 4;

/// The numbers of users' calls begin here: 0 is none.
const FIRST_CALL: u64 = 1;

/// One gateway's callers.
#[derive(Clone)]
pub(crate) struct Callers {
    users: Vec<ChatClient<Channel>>,
    batch: ChatClient<Channel>,
}

/// What they saw.
#[derive(Debug, Default)]
pub(crate) struct Saw {
    pub(crate) sessions: Vec<Session>,
    pub(crate) jobs: Vec<Job>,
}

/// One gateway's calls.
struct Side {
    sessions: JoinSet<Session>,
    workers: JoinSet<()>,
    /// Each as it ends: a worker is at work until the flood is over.
    jobs: (UnboundedSender<Job>, UnboundedReceiver<Job>),
}

impl Callers {
    /// # Errors
    /// Why there is no connection to the address, which it names.
    pub(crate) async fn connect(uri: &str) -> Result<Self, String> {
        let wrong = |error: tonic::transport::Error| {
            let first: &(dyn Error + 'static) = &error;
            let causes = successors(Some(first), |it| (*it).source());
            let causes: Vec<_> = causes.map(ToString::to_string).collect();
            format!("{uri}: {}", causes.join(": "))
        };
        let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(wrong)?;
        let mut users = Vec::new();
        for _ in 0..CONNECTIONS {
            users.push(ChatClient::new(endpoint.connect().await.map_err(wrong)?));
        }
        let batch = ChatClient::new(endpoint.connect().await.map_err(wrong)?);
        Ok(Self { users, batch })
    }

    fn user(&self, call: u64) -> ChatClient<Channel> {
        self.users[call as usize % self.users.len()].clone()
    }
}

/// Each call of the plan goes to every gateway at the same time. Returns when the last one has
/// ended, with what each gateway's callers saw; or when `stop` has, with what they saw until then, and
/// what it ended with.
///
/// # Errors
/// A call panicked.
pub(crate) async fn drive<S: Future>(
    plan: &Plan,
    seed: u64,
    start: Instant,
    gateways: &[Callers],
    stop: S,
) -> Result<(Vec<Saw>, Option<S::Output>), JoinError> {
    let side = |_| Side {
        sessions: JoinSet::new(),
        workers: JoinSet::new(),
        jobs: unbounded_channel(),
    };
    let mut sides: Vec<_> = gateways.iter().map(side).collect();
    let (begin, end) = plan.span(Phase::Slow);
    let mut flooded = false;
    let mut saw: Vec<_> = gateways.iter().map(|_| Saw::default()).collect();
    let mut stop = pin!(stop);
    let mut stopped = None;
    for (call, at) in (FIRST_CALL..).zip(plan.schedule(seed)) {
        tokio::select! {
            () = sleep_until(start + at) => {}
            why = &mut stop => {
                stopped = Some(why);
                break;
            }
        }
        if at >= begin && !std::mem::replace(&mut flooded, true) {
            for (side, callers) in sides.iter_mut().zip(gateways) {
                for number in 0..u64::from(plan.workers) {
                    let (client, ended) = (callers.batch.clone(), side.jobs.0.clone());
                    let work = caller::worker(client, number, start + end, ended);
                    side.workers.spawn(work);
                }
            }
        }
        let phase = plan.phase(at);
        for (side, callers) in sides.iter_mut().zip(gateways) {
            let client = callers.user(call);
            let session = caller::session(client, call, start + at, phase);
            side.sessions.spawn(session);
        }
    }
    for (side, saw) in sides.iter_mut().zip(&mut saw) {
        while let Some(session) = next(&mut side.sessions, stop.as_mut(), &mut stopped).await {
            saw.sessions.push(session?);
        }
        while let Some(ended) = next(&mut side.workers, stop.as_mut(), &mut stopped).await {
            ended?;
        }
        while let Ok(job) = side.jobs.1.try_recv() {
            saw.jobs.push(job);
        }
    }
    Ok((saw, stopped))
}

/// What ends next; once stopped, only what has ended already.
async fn next<T: 'static, S: Future>(
    tasks: &mut JoinSet<T>,
    stop: Pin<&mut S>,
    stopped: &mut Option<S::Output>,
) -> Option<Result<T, JoinError>> {
    if stopped.is_none() {
        tokio::select! {
            biased;
            ended = tasks.join_next() => return ended,
            why = stop => *stopped = Some(why),
        }
    }
    tasks.try_join_next()
}
