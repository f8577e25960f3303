//! What a launch has become: an attempt on its way, or the wait for an endpoint to send it to.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use smallvec::SmallVec;

use super::attempt::{Attempt, Finished};
use crate::{
    budget::Loan,
    channel::Shared,
    criticality::Criticality,
    endpoint::{Destination, Endpoint, Purpose, Wanted},
};

/// A launch that is under way.
// A box around each attempt would be an allocation more on every call.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Running {
    /// On the wire, or about to be.
    Sent(Attempt),
    /// The endpoint that it could go to is being connected again.
    Waiting(Waiting),
    /// It has ended before there was a race to tell.
    Ended(Option<Finished>),
}

/// What it comes to.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Ran {
    /// The attempt has ended.
    Finished(Finished),
    /// The endpoints have changed: time to place the launch again.
    Place(Place),
}

/// A launch that has found no endpoint yet.
pub(crate) struct Place {
    pub(crate) purpose: Purpose,
    pub(crate) criticality: Criticality,
    /// Where its user sends it.
    pub(crate) only: Option<Destination>,
    /// What it has withdrawn from the budget.
    pub(crate) loan: Option<Loan>,
}

pub(crate) struct Waiting {
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
    place: Option<Place>,
}

impl Waiting {
    /// Waits as long as none that `place` could go to is ready and one may become so.
    pub(crate) fn new(
        shared: Arc<Shared>,
        tried: SmallVec<[Arc<Endpoint>; 2]>,
        place: Place,
    ) -> Self {
        let purpose = place.purpose;
        let criticality = place.criticality;
        let only = place.only.clone();
        let changed = async move {
            let endpoints = shared.endpoints();
            loop {
                let changed = endpoints.changed();
                // Asked again now that no change can be missed.
                let wanted = Wanted {
                    purpose,
                    criticality,
                    only: only.as_ref(),
                };
                if !endpoints.is_worth_waiting(&tried, wanted) {
                    break;
                }
                changed.await;
            }
        };
        Self {
            changed: Box::pin(changed),
            place: Some(place),
        }
    }
}

impl Future for Running {
    type Output = Ran;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ran> {
        match self.get_mut() {
            Self::Sent(attempt) => Pin::new(attempt).poll(cx).map(Ran::Finished),
            Self::Ended(finished) => match finished.take() {
                Some(finished) => Poll::Ready(Ran::Finished(finished)),
                None => Poll::Pending,
            },
            Self::Waiting(waiting) => {
                std::task::ready!(waiting.changed.as_mut().poll(cx));
                match waiting.place.take() {
                    Some(place) => Poll::Ready(Ran::Place(place)),
                    None => Poll::Pending,
                }
            }
        }
    }
}
