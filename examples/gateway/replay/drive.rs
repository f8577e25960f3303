//! Plays a plan's traffic, to as many gateways at once as there are.

use std::{
    future::Future,
    pin::{Pin, pin},
};

use tokio::{
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

impl Callers {
    pub(crate) async fn connect(uri: &str) -> Result<Self, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(uri.to_owned())?;
        let mut users = Vec::new();
        for _ in 0..CONNECTIONS {
            users.push(ChatClient::new(endpoint.connect().await?));
        }
        let batch = ChatClient::new(endpoint.connect().await?);
        Ok(Self { users, batch })
    }

    fn user(&self, call: u64) -> ChatClient<Channel> {
        self.users[call as usize % self.users.len()].clone()
    }
}

/// Each call of the plan goes to every gateway at the same time. Returns when the last one has
/// ended, with what each gateway's callers saw; or when `stop` has, with what they saw until then, and
/// what it ended with. Batch workers that are stopped have seen nothing.
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
    let mut sides: Vec<(JoinSet<Session>, JoinSet<Vec<Job>>)> =
        gateways.iter().map(|_| Default::default()).collect();
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
                    let client = callers.batch.clone();
                    side.1.spawn(caller::worker(client, number, start + end));
                }
            }
        }
        let phase = plan.phase(at);
        for (side, callers) in sides.iter_mut().zip(gateways) {
            let client = callers.user(call);
            side.0
                .spawn(caller::session(client, call, start + at, phase));
        }
    }
    for (side, saw) in sides.iter_mut().zip(&mut saw) {
        while let Some(session) = next(&mut side.0, stop.as_mut(), &mut stopped).await {
            saw.sessions.push(session?);
        }
        while let Some(jobs) = next(&mut side.1, stop.as_mut(), &mut stopped).await {
            saw.jobs.extend(jobs?);
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
