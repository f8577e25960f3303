//! A task of a channel's that starts with its first call and ends with the channel.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, task::AbortHandle};

/// One background task. A channel is built without a runtime, so it starts at the first call;
/// and again, on the runtime of that call, when its own runtime has ended.
#[derive(Debug, Default)]
pub(crate) struct Background {
    started: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

impl Background {
    /// Starts `work` on the current runtime, unless it runs. One load afterwards. Without a
    /// runtime it does nothing, and the next call tries again.
    pub(crate) fn ensure_started<F>(&self, work: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Relaxed: a stale answer only leads to `start`, which decides.
        if !self.started.load(Ordering::Relaxed) {
            self.start(work);
        }
    }

    #[cold]
    fn start<F>(&self, work: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // Locked before the flag is set, so that two who start do not swap their tasks.
        let mut task = self.task.lock();
        // Relaxed: only who swaps first matters; what the work reads is reached by spawning it.
        if self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        let running = Running(Arc::clone(&self.started));
        let work = work();
        let spawned = runtime.spawn(async move {
            let _running = running;
            work.await;
        });
        *task = Some(spawned.abort_handle());
    }
}

/// Dropped with its task, whatever ended that.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}
