//! A hedging delay that the user computes for each attempt.

use std::{error::Error, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

/// A user's error, kept as it is.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What a [`Delay`] returns: the time from the newest launch to the next, or an error that ends the
/// call.
pub type DelayFuture = Pin<Box<dyn Future<Output = Result<Duration, BoxError>> + Send>>;

/// The next attempt of a call, whose delay is wanted.
#[derive(Clone)]
#[non_exhaustive]
pub struct Upcoming {
    /// Its number: attempts before it that count. 1 is the first hedge.
    pub attempt: u32,
    /// Since the start of the call.
    pub elapsed: Duration,
    /// The call's request.
    pub request: Arc<dyn RequestView>,
}

/// What a delay can depend on of a request.
pub trait RequestView: Send + Sync {
    /// `package.Service/Method`.
    fn method(&self) -> &str;

    /// The first value of this metadata key, in lower case; of a `-bin` key, in base64.
    fn metadata(&self, key: &str) -> Option<&[u8]>;
}

/// An async function from an attempt to its delay. Two are equal if they are clones of one.
#[derive(Clone)]
pub struct Delay(Arc<dyn Fn(Upcoming) -> DelayFuture + Send + Sync>);

impl Delay {
    pub(super) fn new<F, R, E>(delay: F) -> Self
    where
        F: Fn(Upcoming) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Duration, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move |upcoming| {
            let delay = delay(upcoming);
            Box::pin(async move { delay.await.map_err(Into::into) })
        }))
    }

    /// Starts to compute the delay of an attempt.
    pub fn of(&self, upcoming: Upcoming) -> DelayFuture {
        (self.0)(upcoming)
    }
}

impl Upcoming {
    /// The next attempt of a call.
    pub fn new(attempt: u32, elapsed: Duration, request: Arc<dyn RequestView>) -> Self {
        Self {
            attempt,
            elapsed,
            request,
        }
    }
}

impl PartialEq for Delay {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delay")
    }
}

impl fmt::Debug for Upcoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upcoming")
            .field("attempt", &self.attempt)
            .field("elapsed", &self.elapsed)
            .field("method", &self.request.method())
            .finish()
    }
}
