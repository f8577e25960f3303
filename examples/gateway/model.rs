//! A model replica: it has so many slots, and writes its answer token by token.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, sleep_until},
};
use tonic::{Request, Response, Status, codegen::BoxStream, metadata::MetadataMap};

use crate::{
    api::{ChatRequest, ChatToken, chat_server::Chat},
    region::Region,
    scale::chat,
    tokens::Tokens,
};

/// Streams that one replica writes at once; the next one is refused.
pub(crate) const SLOTS: usize = 20;

/// The first token takes at least this, in seconds of chat, and on average as much again as the
/// second says: a median of 0.37 s.
const FIRST: (f64, f64) = (0.30, 0.10);

/// Of a thousand attempts so many stall, each for itself, for another 0.5 to 1.3 s of chat: the
/// tail that healthy replicas have. It says nothing of the next attempt.
const STALLS: u64 = 25;
const STALL: (f64, f64) = (0.5, 1.3);

/// Between two tokens, in seconds of chat, a tenth more or less.
const BETWEEN: f64 = 0.1;

/// A region that is slow before its first token is slow after it too: this many times.
const SLOW_PACE: f64 = 2.5;

/// A failing replica fails soon, in seconds of chat.
const FAILS_AFTER: f64 = 0.2;

/// Tokens of an answer whose length nobody asked for.
const USUAL_TOKENS: u32 = 11;
const MOST_TOKENS: u32 = 512;
const MOST_PACE: u32 = 32;

const WORDS: [&str; 12] = [
    "a", "slow", "answer", "is", "raced", "by", "its", "twin", "and", "the", "first", "wins",
];

pub(crate) struct Model {
    pub(crate) name: Arc<str>,
    pub(crate) region: Arc<Region>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) slots: Arc<Semaphore>,
}

impl Model {
    pub(crate) fn new(name: String, region: Arc<Region>, tokens: Arc<Tokens>) -> Self {
        Self {
            name: name.into(),
            region,
            tokens,
            slots: Arc::new(Semaphore::new(SLOTS)),
        }
    }
}

#[tonic::async_trait]
impl Chat for Model {
    type StreamStream = BoxStream<ChatToken>;

    async fn stream(
        &self,
        request: Request<ChatRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let full = |_| Status::unavailable("all slots are taken");
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(full)?;
        let mut draws = draws(request.get_ref().call, attempts_before(request.metadata()));
        if draws.f64() < self.region.errors() {
            sleep(chat(FAILS_AFTER)).await;
            return Err(Status::unavailable("the model has crashed"));
        }
        let writing = Writing::new(self, request.get_ref(), draws, slot);
        let tokens = stream::unfold(writing, |mut writing| async move {
            let token = writing.next().await?;
            Some((Ok(token), writing))
        });
        Ok(Response::new(tokens.boxed()))
    }
}

/// An answer that is being written. Dropped before its end, it was cancelled.
struct Writing {
    call: u64,
    replica: Arc<str>,
    tokens: Arc<Tokens>,
    draws: fastrand::Rng,
    due: Instant,
    between: Duration,
    written: u32,
    length: u32,
    _slot: OwnedSemaphorePermit,
}

impl Writing {
    fn new(
        model: &Model,
        request: &ChatRequest,
        mut draws: fastrand::Rng,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let floor = model.region.floor();
        let mut first = FIRST.0 - FIRST.1 * (1.0 - draws.f64()).ln();
        if draws.u64(0..1_000) < STALLS {
            first += STALL.0 + (STALL.1 - STALL.0) * draws.f64();
        }
        let slow = if floor.is_zero() { 1.0 } else { SLOW_PACE };
        let pace = f64::from(request.pace.clamp(1, MOST_PACE));
        Self {
            call: request.call,
            replica: Arc::clone(&model.name),
            tokens: Arc::clone(&model.tokens),
            due: Instant::now() + floor + chat(first),
            between: chat(BETWEEN * slow * pace),
            draws,
            written: 0,
            length: match request.tokens {
                0 => USUAL_TOKENS,
                asked => asked.min(MOST_TOKENS),
            },
            _slot: slot,
        }
    }

    async fn next(&mut self) -> Option<ChatToken> {
        if self.written == self.length {
            return None;
        }
        sleep_until(self.due).await;
        // From when it was due: a late timer does not make the whole answer late.
        self.due += self.between.mul_f64(0.9 + 0.2 * self.draws.f64());
        self.written += 1;
        self.tokens.sent();
        let word = WORDS[self.written as usize % WORDS.len()];
        Some(ChatToken {
            text: format!("{word} "),
            replica: self.replica.to_string(),
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.written < self.length {
            self.tokens.cut(self.call, self.written.into());
        }
    }
}

/// Draws for one attempt, independent of its call's other attempts, and the same whichever gateway
/// sends it: two gateways then differ by what they do, not by their luck.
fn draws(call: u64, before: u64) -> fastrand::Rng {
    // More than a call ever has attempts.
    fastrand::Rng::with_seed(call.wrapping_mul(64).wrapping_add(before))
}

/// The header that tells a server which attempt of its call it has got; absent on the first.
fn attempts_before(metadata: &MetadataMap) -> u64 {
    metadata
        .get("grpc-previous-rpc-attempts")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}
