//! Calls that go on while something happens to a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use interop::{Mode, probe::ProbeReply};
use tokio::{sync::watch, task::JoinSet};
use tonic::Status;

use super::{
    Failed,
    replicas::{Client, request_in},
};

/// Callers of each kind.
const CALLERS: usize = 2;

/// Between two calls of a caller: enough of them to meet any moment, and no load.
const PAUSE: Duration = Duration::from_millis(2);

/// Callers that call until they are told to stop.
pub(super) struct Load {
    callers: JoinSet<Vec<Made>>,
    stop: Arc<AtomicBool>,
    made: watch::Receiver<usize>,
}

/// One call that was made.
pub(super) struct Made {
    pub(super) id: String,
    pub(super) repeatable: bool,
    pub(super) result: Result<ProbeReply, Status>,
}

impl Load {
    /// Starts half of the callers with a repeatable method, and half with one that is not.
    pub(super) fn start(client: &Client, mode: Mode) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (count, made) = watch::channel(0);
        let count = Arc::new(count);
        let mut callers = JoinSet::new();
        for repeatable in [true, false].repeat(CALLERS) {
            let (client, stop, count) = (client.clone(), Arc::clone(&stop), Arc::clone(&count));
            callers.spawn(async move {
                let mut made = Vec::new();
                // Nothing else is published by it.
                while !stop.load(Ordering::Relaxed) {
                    made.push(call(client.clone(), mode, repeatable).await);
                    count.send_modify(|count| *count += 1);
                    tokio::time::sleep(PAUSE).await;
                }
                made
            });
        }
        Self {
            callers,
            stop,
            made,
        }
    }

    /// Waits until so many more calls have ended.
    pub(super) async fn more(&mut self, calls: usize) -> Result<(), Failed> {
        let enough = *self.made.borrow() + calls;
        self.made.wait_for(|made| *made >= enough).await?;
        Ok(())
    }

    /// Stops, and hands over all calls that were made.
    pub(super) async fn stop(self) -> Vec<Made> {
        self.stop.store(true, Ordering::Relaxed);
        self.callers
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}

async fn call(mut client: Client, mode: Mode, repeatable: bool) -> Made {
    let message = request_in(mode);
    let id = message.id.clone();
    let result = match repeatable {
        true => client.probe.get(message).await,
        false => client.probe.put(message).await,
    };
    Made {
        id,
        repeatable,
        result: result.map(tonic::Response::into_inner),
    }
}
