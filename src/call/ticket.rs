//! An attempt's place at its endpoint: counted in, and counted out by whatever ends it.

use std::{sync::Arc, time::Duration};

use crate::{channel::Shared, endpoint::Endpoint};

/// Held by an attempt for as long as it is in flight. Dropped without a word, the attempt was
/// discarded: its endpoint took at least as long as it ran.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    endpoint: Arc<Endpoint>,
    launched: Duration,
    open: bool,
}

impl Ticket {
    pub(crate) fn new(shared: Arc<Shared>, endpoint: Arc<Endpoint>) -> Self {
        let launched = shared.now();
        endpoint.load().started(launched);
        Self {
            shared,
            endpoint,
            launched,
            open: true,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Something came back.
    pub(crate) fn heard(&self) {
        self.endpoint.answered(self.launched);
    }

    /// Takes one of the endpoint's resets, and says whether the attempt may be reset.
    pub(crate) fn try_reset(&self) -> bool {
        let granted = self
            .endpoint
            .ration()
            .try_reset(self.shared.now(), self.launched);
        if granted {
            self.shared.counters().reset();
        }
        granted
    }

    /// The attempt is reset whatever the ration says: its time is over, or it keeps too much.
    pub(crate) fn cut(&self) {
        self.endpoint
            .ration()
            .forced(self.shared.now(), self.launched);
        self.shared.counters().reset();
    }

    /// How long the attempt has run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.now().saturating_sub(self.launched)
    }

    /// The endpoint gave an answer.
    pub(crate) fn answered(&mut self) {
        if let Some((now, elapsed)) = self.close() {
            self.endpoint.load().finished(now, elapsed);
        }
    }

    /// The endpoint failed.
    pub(crate) fn failed(&mut self) {
        if let Some((now, elapsed)) = self.close() {
            self.endpoint.load().failed(now, elapsed);
        }
    }

    /// The attempt never reached the endpoint.
    pub(crate) fn released(&mut self) {
        if std::mem::take(&mut self.open) {
            self.endpoint.load().released();
        }
    }

    /// Now, and how long the attempt ran; `None` if it has ended before. Reads the clock once,
    /// and not at all in the drop of an attempt that has ended.
    fn close(&mut self) -> Option<(Duration, Duration)> {
        std::mem::take(&mut self.open).then(|| {
            let now = self.shared.now();
            (now, now.saturating_sub(self.launched))
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some((now, elapsed)) = self.close() {
            self.endpoint.load().discarded(now, elapsed);
        }
    }
}
