//! A closed loop: callers that each make their next call when the last one is answered.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tokio::{task::JoinSet, time::Instant};
use tonic::client::GrpcService;

use crate::{
    args::{BoxError, Outcome},
    at_once::probe::{ProbeRequest, probe_client::ProbeClient},
};

/// Makes one call at a time.
pub(crate) trait Call: Send + 'static {
    fn call(&mut self, request: ProbeRequest) -> impl Future<Output = Outcome<()>> + Send;
}

/// The client that tonic generates.
pub(crate) enum Generated<T> {
    /// Calls a method that is idempotent.
    Get(ProbeClient<T>),
    /// Calls one that is not.
    Put(ProbeClient<T>),
}

impl<T> Call for Generated<T>
where
    T: GrpcService<tonic::body::Body> + Send + 'static,
    T::Future: Send,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<BoxError> + Send,
{
    async fn call(&mut self, request: ProbeRequest) -> Outcome<()> {
        match self {
            Self::Get(client) => client.get(request).await?,
            Self::Put(client) => client.put(request).await?,
        };
        Ok(())
    }
}

/// Callers, whatever they call: boxed for many calls, so that no call pays for it.
pub(crate) trait Callers {
    /// Makes `calls` calls, all callers at once, and adds how long each took to `latencies` where
    /// somebody wants to know.
    fn make<'a>(
        &'a mut self,
        calls: usize,
        request: &'a ProbeRequest,
        latencies: Option<&'a mut Vec<Duration>>,
    ) -> Pin<Box<dyn Future<Output = Outcome<()>> + 'a>>;
}

impl<C: Call> Callers for Vec<C> {
    fn make<'a>(
        &'a mut self,
        calls: usize,
        request: &'a ProbeRequest,
        mut latencies: Option<&'a mut Vec<Duration>>,
    ) -> Pin<Box<dyn Future<Output = Outcome<()>> + 'a>> {
        Box::pin(async move {
            let timed = latencies.is_some();
            let next = Arc::new(AtomicUsize::new(0));
            let mut making = JoinSet::new();
            for caller in self.drain(..) {
                making.spawn(one(
                    caller,
                    Arc::clone(&next),
                    calls,
                    request.clone(),
                    timed,
                ));
            }
            while let Some(made) = making.join_next().await {
                let (caller, took) = made??;
                self.push(caller);
                if let Some(latencies) = &mut latencies {
                    latencies.extend(took);
                }
            }
            Ok(())
        })
    }
}

/// One caller's share of `calls` calls.
async fn one<C: Call>(
    mut caller: C,
    next: Arc<AtomicUsize>,
    calls: usize,
    request: ProbeRequest,
    timed: bool,
) -> Outcome<(C, Vec<Duration>)> {
    let mut took = Vec::new();
    // Relaxed: only the number counts.
    while next.fetch_add(1, Ordering::Relaxed) < calls {
        let request = request.clone();
        if timed {
            let started = Instant::now();
            caller.call(request).await?;
            took.push(started.elapsed());
        } else {
            caller.call(request).await?;
        }
    }
    Ok((caller, took))
}
