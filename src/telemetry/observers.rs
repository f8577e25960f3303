//! The user's own functions: one that is awaited before a hedge starts, one that is told of what
//! became of hedges.
//!
//! Neither can harm a call, as long as the first does not block the thread that it is polled on.
//! What `on_hedge` returns, a panic, and a stall beyond
//! [`Builder::on_hedge`](crate::Builder::on_hedge)'s bound are reported and the hedge starts;
//! `on_event` runs on a thread of its own, behind a bounded queue.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tokio::time::timeout;

use crate::hooks::{BoxError, Guarded, PANICKED, Panicked, Reported, caught};

type Observation = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
type OnHedge = Arc<dyn Fn(HedgeStart) -> Observation + Send + Sync>;
type OnEvent = Arc<dyn Fn(&HedgeEvent) + Send + Sync>;

/// How long a hedge waits for `on_hedge`. What is worth observing takes microseconds; a tenth of a
/// second is where waiting costs more than the hedge could save.
const PATIENCE: Duration = Duration::from_millis(100);

/// Events that wait for `on_event`: seconds of a busy channel's hedges.
const QUEUE: usize = 4096;

/// A hedge that is about to start: all gates and holds let it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HedgeStart {
    /// `package.Service/Method`.
    pub method: Arc<str>,
    /// Attempts that the call has made so far.
    pub attempts: u32,
    /// The threshold that the newest attempt has outrun; `None` where a failure makes the hedge due.
    pub threshold: Option<Duration>,
    /// Since the call's start.
    pub elapsed: Duration,
}

/// Something that became of a hedge, or of a would-be one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeEvent {
    /// What.
    pub kind: HedgeEventKind,
    /// `package.Service/Method`; `other` where no descriptor knows the method.
    pub method: Arc<str>,
    /// The threshold at that time; `None` where there is none, or where a failure has made the hedge
    /// due.
    pub threshold: Option<Duration>,
    /// Since the call's start.
    pub elapsed: Duration,
}

/// The four hedge events. Attempts are numbered as in the call log: 0 is the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HedgeEventKind {
    /// A hedge was sent.
    #[non_exhaustive]
    Started {
        /// Its number.
        attempt: u32,
    },
    /// A hedge's OK became the call's.
    #[non_exhaustive]
    Won {
        /// Its number.
        attempt: u32,
    },
    /// An attempt of a hedged call, the original included, was given up: another one's answer had
    /// come, or the call had ended.
    #[non_exhaustive]
    Discarded {
        /// Its number.
        attempt: u32,
    },
    /// A hedge was kept back.
    #[non_exhaustive]
    Suppressed {
        /// The first gate or hold that did not hold.
        reason: &'static str,
    },
}

/// A channel's observers.
#[derive(Default)]
pub(crate) struct Observers {
    on_hedge: Option<OnHedge>,
    on_event: Option<Events>,
    /// A failing observer is reported once at `warn`, then at `debug`: each for itself.
    on_hedge_reported: Arc<Reported>,
    on_event_reported: Arc<Reported>,
}

struct Events {
    observer: OnEvent,
    /// To the observer's thread, which the first event starts; `None` if there is no thread to be
    /// had.
    queue: OnceLock<Option<SyncSender<HedgeEvent>>>,
    /// Events that found the queue full.
    lost: AtomicU64,
}

impl Observers {
    pub(crate) fn set_on_hedge<F, R, E>(&mut self, observer: F)
    where
        F: Fn(HedgeStart) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.on_hedge = Some(Arc::new(move |start| {
            let observation = observer(start);
            Box::pin(async move { observation.await.map_err(Into::into) })
        }));
    }

    pub(crate) fn set_on_event<F>(&mut self, observer: F)
    where
        F: Fn(&HedgeEvent) + Send + Sync + 'static,
    {
        self.on_event = Some(Events {
            observer: Arc::new(observer),
            queue: OnceLock::new(),
            lost: AtomicU64::new(0),
        });
    }

    /// What a hedge has to wait for before it starts. It ends, whatever the observer does.
    pub(crate) fn before_hedge(
        &self,
        start: impl FnOnce() -> HedgeStart,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let observer = Arc::clone(self.on_hedge.as_ref()?);
        let start = start();
        let reported = Arc::clone(&self.on_hedge_reported);
        Some(Box::pin(async move {
            let method = Arc::clone(&start.method);
            let outcome = match caught(|| observer(start)) {
                Err(Panicked) => Err(PANICKED.to_owned()),
                Ok(observation) => match timeout(PATIENCE, Guarded::new(observation)).await {
                    Err(_) => Err(format!("it was not ready in {PATIENCE:?}")),
                    Ok(Err(Panicked)) => Err(PANICKED.to_owned()),
                    Ok(Ok(Ok(()))) => Ok(()),
                    // Its text, and its drop, are the user's too.
                    Ok(Ok(Err(error))) => {
                        Err(caught(move || error.to_string()).unwrap_or(PANICKED.to_owned()))
                    }
                },
            };
            if let Err(error) = outcome {
                reported.report("on_hedge", &method, &error);
            }
        }))
    }

    /// Tells of an event, if somebody wants to know.
    pub(crate) fn event(&self, event: impl FnOnce() -> HedgeEvent) {
        let Some(events) = &self.on_event else { return };
        let queue = events.queue.get_or_init(|| {
            let observer = Arc::clone(&events.observer);
            start(observer, Arc::clone(&self.on_event_reported))
        });
        let Some(queue) = queue else { return };
        if queue.try_send(event()).is_err() {
            // Relaxed: a count.
            let lost = events.lost.fetch_add(1, Ordering::Relaxed) + 1;
            // Ever more rarely: an observer that is a little too slow must not fill the log.
            if lost.is_power_of_two() {
                tracing::warn!(lost, "on_event does not keep up");
            }
        }
    }

    /// Events that `on_event` was not told of.
    pub(crate) fn lost(&self) -> u64 {
        let lost = |events: &Events| events.lost.load(Ordering::Relaxed);
        self.on_event.as_ref().map_or(0, lost)
    }
}

/// Starts the thread that `observer` runs on. It ends with the channel.
fn start(observer: OnEvent, reported: Arc<Reported>) -> Option<SyncSender<HedgeEvent>> {
    let (sender, events) = sync_channel(QUEUE);
    let thread = thread::Builder::new().name("hedge-events".to_owned());
    match thread.spawn(move || run(&observer, &events, &reported)) {
        Ok(_detached) => Some(sender),
        Err(error) => {
            tracing::warn!(%error, "no thread for on_event: events are lost");
            None
        }
    }
}

fn run(observer: &OnEvent, events: &Receiver<HedgeEvent>, reported: &Reported) {
    for event in events {
        if let Err(Panicked) = caught(|| observer(&event)) {
            reported.report("on_event", &event.method, PANICKED);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("on_hedge", &self.on_hedge.is_some())
            .field("on_event", &self.on_event.is_some())
            .finish_non_exhaustive()
    }
}
