//! The background work of a set: follows its source and runs one keeper for each endpoint.

use std::{
    collections::{BTreeMap, HashSet},
    future::{pending, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::AbortHandle, time::sleep};

use super::{
    Endpoint, EndpointSpec, dns,
    keeper::keep,
    members::Members,
    source::{Source, Update},
    spec::{Route, server_of},
};

/// Changes taken from a stream before the set is published: one copy of the set serves them all,
/// and a stream that never pauses does not keep its news from the calls.
const BATCH: usize = 1024;

/// The pause after a stream's error, which might otherwise come again at once and for ever.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// What the set, its supervisor and its keepers share.
pub(super) struct Shared {
    pub(super) endpoints: ArcSwap<Members>,
    /// Fires when an endpoint became ready or failed, and when the set changed.
    pub(super) changed: Notify,
    /// Asks for a name to be resolved soon. A permit is kept.
    pub(super) resolve: Notify,
    pub(super) discovery: Mutex<Discovery>,
    ready: AtomicUsize,
    /// For addresses of a name, which have no key of the user's.
    next_key: AtomicU64,
    pub(super) source: Source,
}

/// What the source has said so far.
#[derive(Default)]
pub(super) struct Discovery {
    /// Its first word, or the rest of what it is saying, is still to come.
    pub(super) pending: bool,
    /// Its last word was an error.
    pub(super) error: Option<Arc<str>>,
}

/// Counts one connected endpoint until it is dropped, with its keeper or before.
pub(super) struct Ready(Arc<Shared>);

impl Shared {
    pub(super) fn new(endpoints: Members, source: Source) -> Self {
        let pending = !matches!(source, Source::Fixed);
        Self {
            next_key: AtomicU64::new(endpoints.len() as u64),
            endpoints: ArcSwap::from_pointee(endpoints),
            changed: Notify::new(),
            resolve: Notify::new(),
            discovery: Mutex::new(Discovery {
                pending,
                error: None,
            }),
            ready: AtomicUsize::new(0),
            source,
        }
    }

    pub(super) fn count_ready(self: &Arc<Self>) -> Ready {
        // Relaxed: it decides the length of a pause only.
        self.ready.fetch_add(1, Ordering::Relaxed);
        Ready(Arc::clone(self))
    }

    pub(super) fn any_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > 0
    }

    pub(super) fn endpoint_failed(&self) {
        // An original may have been waiting for this one, and perhaps now for none.
        self.changed.notify_waiters();
        self.resolve.notify_one();
    }

    /// The source has spoken; `pending` where it has more to say at once.
    fn discovered(&self, error: Option<Arc<str>>, pending: bool) {
        *self.discovery.lock() = Discovery { pending, error };
        self.changed.notify_waiters();
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.0.ready.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs until it is dropped.
///
/// Dropped with its runtime while the set lives on, it lets the next call start another one on the
/// runtime of that call.
pub(super) async fn supervise(shared: Arc<Shared>) {
    let mut keepers = Keepers::of(Arc::clone(&shared));
    match &shared.source {
        Source::Fixed => pending().await,
        Source::Stream(_) => follow_stream(&shared, &mut keepers).await,
        Source::Dns(endpoint, interval) => {
            let Some((host, port)) = server_of(endpoint.uri()) else {
                shared.discovered(Some("the name has no host".into()), false);
                return pending().await;
            };
            dns::follow(
                *interval,
                &shared.resolve,
                || dns::look_up(&host, port),
                |resolved| match resolved {
                    Ok(addresses) => {
                        let specs = addresses
                            .into_iter()
                            .map(|address| EndpointSpec::resolved(Arc::clone(endpoint), address));
                        keepers.become_these(specs.collect());
                        shared.discovered(None, false);
                    }
                    // The addresses that were known are better than none.
                    Err(error) => {
                        let error = format!("cannot resolve {host}: {error}");
                        tracing::debug!(%error);
                        shared.discovered(Some(error.into()), false);
                    }
                },
            )
            .await;
        }
    }
}

async fn follow_stream(shared: &Shared, keepers: &mut Keepers) {
    loop {
        let (updates, ended) = next_batch(shared).await;
        // A list that is empty where the batch was cut is no news yet.
        let more = updates.len() == BATCH && !ended;
        let mut error = None;
        for update in updates {
            match update {
                Update::Insert(key, spec) => keepers.insert(key, *spec),
                Update::Remove(key) => keepers.remove(key),
                Update::Error(text) => error = Some(text),
            }
        }
        keepers.publish();
        let failed = error.is_some();
        if let Some(error) = &error {
            tracing::debug!(%error, "discovery failed");
        }
        shared.discovered(error, more);
        if ended {
            // The set stays as it is.
            return pending().await;
        }
        if failed {
            sleep(ERROR_PAUSE).await;
        }
    }
}

/// Waits for a change, then takes all that are there.
async fn next_batch(shared: &Shared) -> (Vec<Update>, bool) {
    // A stream that is always ready would never let go of the worker.
    tokio::task::yield_now().await;
    let mut updates = Vec::new();
    let mut ended = false;
    // Its cooperative budget would make a tokio channel look empty in the middle of a list.
    let take = poll_fn(|cx| {
        let Source::Stream(stream) = &shared.source else {
            return Poll::Pending;
        };
        let mut stream = stream.lock();
        while updates.len() < BATCH {
            match stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(update)) => {
                    let failed = matches!(update, Update::Error(_));
                    updates.push(update);
                    if failed {
                        break;
                    }
                }
                Poll::Ready(None) => {
                    ended = true;
                    break;
                }
                Poll::Pending if updates.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    });
    tokio::task::unconstrained(take).await;
    (updates, ended)
}

/// One keeper for each endpoint. Dropping this ends them all.
struct Keepers {
    shared: Arc<Shared>,
    kept: BTreeMap<u64, Kept>,
}

struct Kept {
    endpoint: Arc<Endpoint>,
    /// None for a ready-made channel, which needs no keeper.
    _keeper: Option<AbortOnDrop>,
}

impl Keepers {
    fn of(shared: Arc<Shared>) -> Self {
        let endpoints = shared.endpoints.load_full();
        let mut keepers = Self {
            shared,
            kept: BTreeMap::new(),
        };
        for endpoint in endpoints.iter() {
            keepers.keep(Arc::clone(endpoint));
        }
        keepers
    }

    fn keep(&mut self, endpoint: Arc<Endpoint>) {
        let keeper = match endpoint.route {
            Route::Made(_) => None,
            _ => {
                let task = keep(Arc::clone(&endpoint), Arc::clone(&self.shared));
                Some(AbortOnDrop(tokio::spawn(task).abort_handle()))
            }
        };
        let kept = Kept {
            endpoint: Arc::clone(&endpoint),
            _keeper: keeper,
        };
        self.kept.insert(endpoint.key, kept);
    }

    fn insert(&mut self, key: u64, spec: EndpointSpec) {
        self.keep(Arc::new(Endpoint::new(key, spec)));
    }

    fn remove(&mut self, key: u64) {
        self.kept.remove(&key);
    }

    /// Makes the set these, leaving alone those that are in it already.
    fn become_these(&mut self, specs: Vec<EndpointSpec>) {
        let names: HashSet<_> = specs.iter().filter_map(EndpointSpec::name).collect();
        self.kept
            .retain(|_, kept| names.contains(&*kept.endpoint.name));
        let known: HashSet<_> = self
            .kept
            .values()
            .map(|kept| Arc::clone(&kept.endpoint.name))
            .collect();
        for spec in specs {
            if spec.name().is_none_or(|name| !known.contains(name)) {
                let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
                self.insert(key, spec);
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let endpoints = self.kept.values().map(|kept| Arc::clone(&kept.endpoint));
        self.shared.endpoints.store(Arc::new(endpoints.collect()));
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
