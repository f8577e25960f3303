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
    /// Starts `work` on the current runtime, unless it was started. One load afterwards.
    pub(crate) fn ensure_started<F>(&self, work: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Relaxed: only who swaps first matters.
        if self.started.load(Ordering::Relaxed) || self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                let running = Running(Arc::clone(&self.started));
                let work = work();
                let task = runtime.spawn(async move {
                    let _running = running;
                    work.await;
                });
                *self.task.lock() = Some(task.abort_handle());
            }
            // The next call tries again.
            Err(_) => self.started.store(false, Ordering::Relaxed),
        }
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
