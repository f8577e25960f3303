//! An attempt's place at its endpoint: counted in, and counted out by whatever ends it; and what
//! the attempt tells the picker of its endpoint's latency.

use std::{sync::Arc, time::Duration};

use crate::{channel::Shared, endpoint::Endpoint};

/// The longest that a stream's head is waited for on account of its endpoint. Past it the stream
/// has nothing to say yet, which is no slowness: many servers send the head with the first message, and
/// a subscription's may be an hour away.
const OPENING: Duration = Duration::from_secs(10);

/// Held by an attempt for as long as it is in flight. Dropped without a word, the attempt was
/// discarded: its endpoint took at least as long as it ran.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    endpoint: Arc<Endpoint>,
    launched: Duration,
    /// `None` once the attempt has ended.
    teaches: Option<Teaches>,
}

/// What of an attempt's time is its endpoint's latency.
///
/// How long a stream goes on is up to its caller and its data. Taken for latency, one watch of an
/// hour would keep its endpoint out of the picker's choice for more than a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teaches {
    /// All of it.
    Answer,
    /// A stream's, up to its first message, which is raced for.
    Message,
    /// Another stream's, up to its head.
    Head,
    /// No more: the stream has begun.
    Nothing,
}

impl Ticket {
    /// For an attempt that is launched at `launched`, on the channel's clock.
    pub(crate) fn new(
        shared: Arc<Shared>,
        endpoint: Arc<Endpoint>,
        launched: Duration,
        teaches: Teaches,
    ) -> Self {
        endpoint.load().started(launched);
        Self {
            shared,
            endpoint,
            launched,
            teaches: Some(teaches),
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

    /// The head is there, which is all that some streams are waited for.
    pub(crate) fn head(&mut self, now: Duration) {
        if self.teaches == Some(Teaches::Head) {
            self.began(now);
        }
    }

    /// What was waited for is there, and a stream may follow.
    pub(crate) fn began(&mut self, now: Duration) {
        if let Some(teaches @ (Teaches::Message | Teaches::Head)) = self.teaches {
            if let Some(latency) = self.latency(teaches, now) {
                self.endpoint.load().measured(now, latency);
            }
            self.teaches = Some(Teaches::Nothing);
        }
    }

    /// The endpoint gave an answer.
    pub(crate) fn answered(&mut self, now: Duration) {
        let Some(teaches) = self.teaches.take() else {
            return;
        };
        match self.latency(teaches, now) {
            Some(latency) => self.endpoint.load().finished(now, latency),
            None => self.endpoint.load().released(),
        }
    }

    /// The endpoint failed.
    pub(crate) fn failed(&mut self, now: Duration) {
        if let Some(teaches) = self.teaches.take() {
            let latency = self.latency(teaches, now).unwrap_or_default();
            self.endpoint.load().failed(now, latency);
        }
    }

    /// Whether the attempt, which is lost with its connection, is the first to tell of that.
    pub(crate) fn is_news(&self, now: Duration) -> bool {
        self.endpoint.losses().is_news(self.launched, now)
    }

    /// The attempt never reached the endpoint.
    pub(crate) fn released(&mut self) {
        if self.teaches.take().is_some() {
            self.endpoint.load().released();
        }
    }

    /// What the endpoint took, as far as the attempt can tell.
    fn latency(&self, teaches: Teaches, now: Duration) -> Option<Duration> {
        let elapsed = self.elapsed(now);
        match teaches {
            Teaches::Answer | Teaches::Message => Some(elapsed),
            Teaches::Head => Some(elapsed).filter(|elapsed| *elapsed <= OPENING),
            Teaches::Nothing => None,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(teaches) = self.teaches.take() else {
            return;
        };
        let now = self.shared.now();
        match self.latency(teaches, now) {
            Some(elapsed) => self.endpoint.load().discarded(now, elapsed),
            None => self.endpoint.load().released(),
        }
    }
}
