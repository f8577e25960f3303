//! The gateway's own service: asks the replicas, and passes their tokens on as they come.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming, codegen::BoxStream};
use tonic_hedge::{Criticality, HedgedChannel, ResponseExt as _};

use crate::{
    api::{ChatRequest, ChatToken, chat_client::ChatClient, chat_server::Chat},
    recent::Recent,
    tokens::Tokens,
};

/// Calls without a number get one from here on.
const OWN_CALLS: u64 = 1 << 48;

/// Clones are the same front.
#[derive(Clone)]
pub(crate) struct Front(Arc<Shared>);

struct Shared {
    channel: HedgedChannel,
    tokens: Arc<Tokens>,
    interactive: Recent,
    batch: Recent,
    next: AtomicU64,
}

impl Front {
    pub(crate) fn new(channel: HedgedChannel, tokens: Arc<Tokens>) -> Self {
        Self(Arc::new(Shared {
            channel,
            tokens,
            interactive: Recent::new(),
            batch: Recent::new(),
            next: AtomicU64::new(OWN_CALLS),
        }))
    }

    pub(crate) fn interactive(&self) -> &Recent {
        &self.0.interactive
    }

    pub(crate) fn batch(&self) -> &Recent {
        &self.0.batch
    }

    /// Asks the replicas. What it returns may be dropped at any time, and so may this: whatever is
    /// in flight is cancelled at its replica.
    pub(crate) async fn ask(&self, mut request: ChatRequest) -> Result<Answer, Status> {
        if request.call == 0 {
            // Relaxed: each gets another number, in whatever order.
            request.call = self.0.next.fetch_add(1, Ordering::Relaxed);
        }
        let mut asking = Asking::new(self.clone(), request.call);
        // The layer's scope says how critical this is, and the call inherits it.
        let mut client = ChatClient::new(self.0.channel.clone());
        match client.stream(request).await {
            Ok(response) => {
                if response.hedged() {
                    asking.recent().hedged(response.hedge_won());
                }
                Ok(Answer {
                    tokens: response.into_inner(),
                    asking,
                })
            }
            Err(status) => {
                asking.end(false);
                Err(status)
            }
        }
    }
}

#[tonic::async_trait]
impl Chat for Front {
    type StreamStream = BoxStream<ChatToken>;

    async fn stream(
        &self,
        request: Request<ChatRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let answer = self.ask(request.into_inner()).await?;
        Ok(Response::new(answer.boxed()))
    }
}

/// An answer that is passed on.
pub(crate) struct Answer {
    // Declared after what is told first: see `Asking`.
    asking: Asking,
    tokens: Streaming<ChatToken>,
}

impl Stream for Answer {
    type Item = Result<ChatToken, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let token = ready!(self.tokens.poll_next_unpin(cx));
        match &token {
            Some(Ok(_)) => self.asking.token(),
            Some(Err(_)) => self.asking.end(false),
            None => self.asking.end(true),
        }
        Poll::Ready(token)
    }
}

/// A call from its arrival to its end. Dropped before, its caller has left. It has to be dropped
/// before the replica's stream is: the replica then finds that the call was left, not lost.
struct Asking {
    front: Front,
    call: u64,
    batch: bool,
    began: Instant,
    first: Option<Duration>,
    over: bool,
}

impl Asking {
    fn new(front: Front, call: u64) -> Self {
        let asking = Self {
            front,
            call,
            batch: Criticality::current() == Some(Criticality::Sheddable),
            began: Instant::now(),
            first: None,
            over: false,
        };
        asking.recent().called();
        asking
    }

    fn recent(&self) -> &Recent {
        match self.batch {
            true => self.front.batch(),
            false => self.front.interactive(),
        }
    }

    fn token(&mut self) {
        if self.first.is_none() {
            self.first = Some(self.began.elapsed());
        }
    }

    fn end(&mut self, answered: bool) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        match (answered, self.first) {
            (true, Some(first)) => {
                let now = Instant::now();
                let total = now.saturating_duration_since(self.began);
                self.recent().answered(now, first, total);
            }
            _ => self.recent().failed(),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.over {
            self.front.0.tokens.caller_leaves(self.call);
            self.recent().left();
        }
    }
}
