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
    /// For an attempt that is launched at `launched`, on the channel's clock.
    pub(crate) fn new(shared: Arc<Shared>, endpoint: Arc<Endpoint>, launched: Duration) -> Self {
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

    /// When the attempt was launched, on the channel's clock.
    pub(crate) fn launched(&self) -> Duration {
        self.launched
    }

    /// Something came back.
    pub(crate) fn heard(&self) {
        self.endpoint.answered(self.launched);
    }

    /// And more of it: the connection has proved itself already.
    pub(crate) fn heard_more(&self) {
        self.endpoint.ration().answered(self.launched);
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

    /// How long the attempt has run. Here and below, `now` is the channel's clock, which those
    /// who ask have read already.
    pub(crate) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.launched)
    }

    /// The endpoint gave an answer.
    pub(crate) fn answered(&mut self, now: Duration) {
        if self.close() {
            self.endpoint.load().finished(now, self.elapsed(now));
        }
    }

    /// The endpoint failed.
    pub(crate) fn failed(&mut self, now: Duration) {
        if self.close() {
            self.endpoint.load().failed(now, self.elapsed(now));
        }
    }

    /// Whether the attempt, which is lost with its connection, is the first to tell of that.
    pub(crate) fn is_news(&self, now: Duration) -> bool {
        self.endpoint.losses().is_news(self.launched, now)
    }

    /// The attempt never reached the endpoint.
    pub(crate) fn released(&mut self) {
        if self.close() {
            self.endpoint.load().released();
        }
    }

    /// Whether this is the attempt's end: it has one.
    fn close(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.close() {
            let now = self.shared.now();
            self.endpoint.load().discarded(now, self.elapsed(now));
        }
    }
}
