//! The user's own functions on a call's way: what is common to them.
//!
//! They run without a lock held, and may call through the same channel. A panic in one is caught
//! and reported; what it means for the call is each hook's own matter.

mod classify;
mod delay;
mod target;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
};

pub(crate) use self::{
    classify::Classifier,
    delay::{Delaying, View},
    target::{Targeting, Unplaced},
};
pub use self::{
    classify::{AttemptResult, Classification},
    target::NextAttempt,
};

pub(crate) use tonic_hedge_engine::policy::BoxError;

/// The text of a panic, which has none of its own.
pub(crate) const PANICKED: &str = "it panicked";

/// What a user's function ended in.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs a user's function, which may panic, and so may the drop of what it panics with.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // It could go on like this for ever.
            std::mem::forget(again);
        }
        Panicked
    })
}

/// A hook that fails is reported once at `warn`, then at `debug`.
#[derive(Debug, Default)]
pub(crate) struct Reported(AtomicBool);

impl Reported {
    pub(crate) fn report(&self, hook: &'static str, method: &str, error: &str) {
        // Relaxed: two reports at once do no harm.
        match self.0.swap(true, Ordering::Relaxed) {
            false => tracing::warn!(hook, method, error, "hook failed"),
            true => tracing::debug!(hook, method, error, "hook failed"),
        }
    }
}

/// A future whose panic is its error, wherever it panics: polled or dropped.
pub(crate) struct Guarded<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Guarded<T> {
    pub(crate) fn new(future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        Self(Some(future))
    }
}

impl<T> Future for Guarded<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = caught(|| match &mut self.0 {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        });
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let future = self.0.take();
        // Whoever wants to know of it: the panic's own hook has told.
        let _dropped = caught(|| drop(future));
    }
}
