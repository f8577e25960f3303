//! The tower layer that admits calls to their lanes.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{LaneBody, Lanes, held::Held, scope::Scope, shed, unread::Unread};
use crate::{call::deadline, criticality::Criticality, endpoint::fraction, request::Overrides};

/// The layer of some [`Lanes`]: around a [`HedgedChannel`](crate::HedgedChannel), or in a tonic
/// server.
#[derive(Clone, Debug)]
pub struct LaneLayer {
    lanes: Lanes,
    side: Side,
}

/// The service of a [`LaneLayer`].
#[derive(Debug)]
pub struct LaneService<S> {
    inner: S,
    /// The inner service was ready when it was last asked.
    ready: bool,
    lanes: Lanes,
    side: Side,
}

/// Where a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl LaneLayer {
    pub(super) fn new(lanes: Lanes, side: Side) -> Self {
        Self { lanes, side }
    }
}

impl<S> Layer<S> for LaneLayer {
    type Service = LaneService<S>;

    fn layer(&self, inner: S) -> LaneService<S> {
        LaneService {
            inner,
            ready: false,
            lanes: self.lanes.clone(),
            side: self.side,
        }
    }
}

impl<S: Clone> LaneService<S> {
    /// The inner service that was asked whether it is ready; a clone stays, which was not. What it
    /// has reserved, or waits for in some line, goes with it: kept by a service that nobody polls
    /// it would be lost to all others, and to the call itself.
    fn take_asked(&mut self) -> S {
        self.ready = false;
        let fresh = self.inner.clone();
        std::mem::replace(&mut self.inner, fresh)
    }
}

impl<S: Clone> Clone for LaneService<S> {
    /// A clone of a service that is ready is not ready itself.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            ready: false,
            lanes: self.lanes.clone(),
            side: self.side,
        }
    }
}

pin_project! {
    /// The future of a [`LaneService`].
    #[must_use = "a call runs only while it is polled"]
    pub struct LaneFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, S::Future, A>,
        // `None` for a call that was shed, and when the response is there.
        held: Option<Held>,
        scope: Scope,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, A> {
        // The lane's answer, and what has to be read before it goes out.
        Shed {
            response: Option<Response<()>>,
            #[pin]
            unread: Option<Unread<A>>,
        },
        // The inner service is not ready yet: waiting for it is a part of the call.
        Waiting { service: S, request: Option<Request<A>> },
        Running { #[pin] call: F },
    }
}

impl<S, A, B> Service<Request<A>> for LaneService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    S::Error: 'static,
    A: Body,
    B: Body,
{
    type Response = Response<LaneBody<B>>;
    type Error = S::Error;
    type Future = LaneFuture<S, A>;

    /// Always ready, unless the inner service has failed: what is shed waits for nothing, and the
    /// others wait in their lanes.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.ready = match self.inner.poll_ready(cx) {
            Poll::Ready(ready) => ready.map(|()| true)?,
            Poll::Pending => false,
        };
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> LaneFuture<S, A> {
        let (mut head, body) = request.into_parts();
        let (held, scope, state) = match self.lanes.admit(&mut head, self.side) {
            Err(response) => {
                drop(self.take_asked());
                let state = State::Shed {
                    response: Some(response),
                    // A client's request does not exist until it is read.
                    unread: (self.side == Side::Server).then(|| Unread::new(body)),
                };
                (None, Scope::default(), state)
            }
            Ok((held, scope)) => {
                let request = Request::from_parts(head, body);
                // Ready for one call.
                let state = match std::mem::take(&mut self.ready) {
                    true => State::Running {
                        call: scope.within(|| self.inner.call(request)),
                    },
                    false => State::Waiting {
                        service: self.take_asked(),
                        request: Some(request),
                    },
                };
                (Some(held), scope, state)
            }
        };
        LaneFuture { state, held, scope }
    }
}

impl Lanes {
    /// A place for the call, or the lane's answer.
    fn admit(&self, head: &mut Parts, side: Side) -> Result<(Held, Scope), Response<()>> {
        let shared = &self.0;
        let now = shared.now();
        shared.metrics.look(now);
        let number = shared
            .by_function(head)
            .unwrap_or_else(|| shared.by_criticality(criticality(head)));
        let lane = &shared.lanes[number];
        let Some(permit) = shared.try_admit(now, head, number) else {
            let retry = lane.lane.retry_after(now, fraction());
            return Err(shed::response(lane, &head.headers, retry));
        };
        // For the hedges of this call, or of those that it causes, which need places of their own.
        let room = permit.room();
        let scope = match side {
            Side::Client => {
                head.extensions.insert(room);
                Scope::default()
            }
            Side::Server => Scope::of(room),
        };
        let timeout = deadline::read(&head.headers);
        let held = Held::new(permit, shared.epoch, timeout, lane.round_trip);
        Ok((held, scope))
    }
}

fn criticality(head: &Parts) -> Criticality {
    let overrides = head.extensions.get::<Overrides>();
    let said = overrides.and_then(|overrides| overrides.criticality);
    let metadata = || Criticality::of_metadata(&head.headers);
    Criticality::of_call(said, metadata, Criticality::current)
}

impl<S, A, B> Future for LaneFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Error: 'static,
    A: Body,
    B: Body,
{
    type Output = Result<Response<LaneBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            let call = match this.state.as_mut().project() {
                StateProjection::Shed { response, unread } => {
                    if let Some(unread) = unread.as_pin_mut() {
                        ready!(unread.poll(cx));
                    }
                    let response = response.take().unwrap_or_default();
                    return Poll::Ready(Ok(response.map(|()| LaneBody::empty())));
                }
                StateProjection::Running { call } => {
                    break ready!(this.scope.within(|| call.poll(cx)));
                }
                StateProjection::Waiting { service, request } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        break Err(error);
                    }
                    match request.take() {
                        Some(request) => this.scope.within(|| service.call(request)),
                        // Polled after its end.
                        None => return Poll::Pending,
                    }
                }
            };
            this.state.set(State::Running { call });
        };
        let Some(mut held) = this.held.take() else {
            // Polled after its end.
            return Poll::Pending;
        };
        Poll::Ready(match result {
            Ok(response) => {
                held.head(&response);
                let scope = std::mem::take(this.scope);
                Ok(response.map(|body| LaneBody::new(body, held, scope)))
            }
            Err(error) => {
                held.failed(&error);
                Err(error)
            }
        })
    }
}

impl<S, A> fmt::Debug for LaneFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneFuture").finish_non_exhaustive()
    }
}
