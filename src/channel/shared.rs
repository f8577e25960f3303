//! What all clones of a channel and all its calls share.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic_hedge_engine::measure::Lag;

use super::reuse;
#[cfg(feature = "reflection")]
use crate::reflection::Reflection;
use crate::{
    background::Background,
    budget::Tokens,
    circuit::{Circuit, Circuits},
    endpoint::EndpointSet,
    measured::{BreakerMeasured, EndpointMeasured, MethodMeasured},
    method::{Method, MethodTable},
    saturation::Sampler,
    telemetry::{Measure, Telemetry},
};

/// One channel's state.
#[derive(Debug)]
pub(crate) struct Shared {
    epoch: Instant,
    pub(super) settings: Settings,
    counters: Counters,
    /// Works up what estimators have put aside, where they do.
    folding: Background,
}

/// How often that is: a threshold is at most this much older than its samples.
const FOLD: Duration = Duration::from_millis(250);

/// What the builder has made.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) methods: MethodTable,
    pub(crate) endpoints: EndpointSet,
    pub(crate) budget: Tokens,
    pub(crate) saturation: Option<Sampler>,
    /// Grows when methods are learnt.
    pub(crate) circuits: Arc<Mutex<Circuits>>,
    #[cfg(feature = "reflection")]
    pub(crate) reflection: Option<Reflection>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) buffer_limit: usize,
    pub(crate) response_limit: usize,
}

/// What became of losers. The counts guard no other memory: relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    resets: AtomicU64,
    detached: AtomicU64,
}

impl Counters {
    pub(crate) fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets, then detached attempts, since the channel was built.
    pub(crate) fn reading(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.resets), read(&self.detached))
    }
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        let shared = Arc::new(Self {
            // One clock for what is measured and what is told.
            epoch: settings.telemetry.epoch(),
            settings,
            counters: Counters::default(),
            folding: Background::default(),
        });
        let weak: Weak<Self> = Arc::downgrade(&shared);
        shared.telemetry().watch(weak);
        shared
    }

    /// Now, on the channel's clock.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The instant of a time on the channel's clock.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.epoch + at
    }

    pub(crate) fn methods(&self) -> &MethodTable {
        &self.settings.methods
    }

    pub(crate) fn endpoints(&self) -> &EndpointSet {
        &self.settings.endpoints
    }

    pub(crate) fn budget(&self) -> &Tokens {
        &self.settings.budget
    }

    pub(crate) fn circuits(&self) -> Vec<Arc<Circuit>> {
        self.settings.circuits.lock().all()
    }

    #[cfg(feature = "reflection")]
    pub(crate) fn reflection(&self) -> Option<&Reflection> {
        self.settings.reflection.as_ref()
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.settings.telemetry
    }

    /// Starts what runs in the background, unless it runs.
    pub(crate) fn ensure_started(self: &Arc<Self>) {
        self.endpoints().ensure_started();
        #[cfg(feature = "reflection")]
        if let Some(reflection) = self.reflection() {
            reflection.ensure_started(self);
        }
        if let Some(sampler) = &self.settings.saturation {
            sampler.ensure_started(self.epoch);
        }
        if self.methods().folds() {
            self.folding
                .ensure_started(|| fold(self.methods().clone(), self.epoch));
        }
    }

    /// The runtime's timer lag, where the user asked for it.
    pub(crate) fn lag(&self) -> Option<&Lag> {
        self.settings.saturation.as_ref().map(Sampler::lag)
    }

    /// The largest request body, in bytes, that more than one attempt can send.
    pub(crate) fn buffer_limit(&self) -> usize {
        self.settings.buffer_limit
    }

    /// The bytes of a response that are held back until its status has come.
    pub(crate) fn response_limit(&self) -> usize {
        self.settings.response_limit
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Measure for Shared {
    fn methods(&self) -> Vec<MethodMeasured> {
        MethodMeasured::all(self, self.now())
    }

    fn budget(&self) -> Option<f64> {
        self.budget().balance(self.now())
    }

    fn breakers(&self) -> Vec<BreakerMeasured> {
        BreakerMeasured::all(self, self.now())
    }

    fn endpoints(&self) -> Vec<EndpointMeasured> {
        EndpointMeasured::all(self, self.now())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let calls = |method: &Arc<Method>| method.stats().reading().calls;
        reuse::dropped_after(self.methods().iter().map(calls).sum());
    }
}

async fn fold(methods: MethodTable, epoch: Instant) {
    loop {
        tokio::time::sleep(FOLD).await;
        for method in methods.iter() {
            method.fold(epoch.elapsed());
        }
    }
}
