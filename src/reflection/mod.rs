//! Descriptors from a running server, by gRPC's reflection service.
//!
//! The channel starts with what it was built with, and learns in the background. What is learnt
//! replaces the table of methods once; where it and the user's own sets disagree, the stricter wins.

mod client;

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tonic::transport::Channel;

use self::client::Failed;
use crate::{
    background::Background,
    channel::Shared,
    descriptor,
    endpoint::{Picked, Purpose},
    method::Learner,
};

/// All questions to one server together: hundreds of files, one after the other, from far away.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between tries that failed: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// How far a channel is with learning from its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ReflectionState {
    /// No server has answered yet. The latest failure, if there was one: it is tried again.
    Asking(Option<String>),
    /// So many methods are known now, the user's own included.
    Learned(usize),
    /// The server has no reflection service. Nothing more is tried.
    Unsupported,
    /// What the server says cannot be used, and why. Nothing more is tried.
    Refused(String),
}

/// One channel's learning.
pub(crate) struct Reflection {
    learner: Learner,
    state: Mutex<ReflectionState>,
    /// Nothing is left to do.
    over: AtomicBool,
    task: Background,
}

impl Reflection {
    pub(crate) fn new(learner: Learner) -> Self {
        Self {
            learner,
            state: Mutex::new(ReflectionState::Asking(None)),
            over: AtomicBool::new(false),
            task: Background::default(),
        }
    }

    pub(crate) fn state(&self) -> ReflectionState {
        self.state.lock().clone()
    }

    /// Starts to learn, unless that runs or is over.
    pub(crate) fn ensure_started(&self, shared: &Arc<Shared>) {
        // Relaxed: at worst a task starts that ends at once.
        if !self.over.load(Ordering::Relaxed) {
            self.task.ensure_started(|| learn(Arc::downgrade(shared)));
        }
    }

    fn end(&self, state: ReflectionState) {
        match &state {
            ReflectionState::Refused(why) => tracing::warn!(why, "reflection refused"),
            state => tracing::info!(?state, "reflection"),
        }
        *self.state.lock() = state;
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Holds the channel only between its waits, so that it can be dropped meanwhile.
async fn learn(channel: Weak<Shared>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(server) = server(&channel).await else {
            return;
        };
        let asked = tokio::time::timeout(PATIENCE, client::ask(&server)).await;
        let Some(shared) = channel.upgrade() else {
            return;
        };
        let Some(reflection) = shared.reflection() else {
            return;
        };
        let failed = match asked {
            Ok(Ok(set)) => {
                return reflection.end(match descriptor::read(&set) {
                    Ok(more) => {
                        ReflectionState::Learned(shared.methods().learn(&reflection.learner, more))
                    }
                    Err(why) => ReflectionState::Refused(why.to_string()),
                });
            }
            Ok(Err(Failed::Unsupported)) => return reflection.end(ReflectionState::Unsupported),
            Ok(Err(Failed::Incomplete(why))) => {
                return reflection.end(ReflectionState::Refused(why));
            }
            Ok(Err(Failed::Status(status))) => status.to_string(),
            Err(_) => format!("no answer in {PATIENCE:?}"),
        };
        let before = std::mem::replace(
            &mut *reflection.state.lock(),
            ReflectionState::Asking(Some(failed.clone())),
        );
        match before {
            ReflectionState::Asking(None) => tracing::warn!(failed, "reflection is tried again"),
            _ => tracing::debug!(failed, "reflection is tried again"),
        }
        drop(shared);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// A connected server; `None` once the channel is gone.
async fn server(channel: &Weak<Shared>) -> Option<Channel> {
    // Endpoints tell of changes only to those who hold them.
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        let shared = channel.upgrade()?;
        let picked = shared
            .endpoints()
            .pick(shared.now(), &[], Purpose::Original);
        drop(shared);
        if let Picked::Endpoint(_, line) = picked {
            return Some(line.channel);
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
