//! What the calls inherit that a request causes: how critical it is, and that it is part of a hedge.
//!
//! A hedge that reaches a gateway is a second copy of a call already. Hedged again there, and at the
//! next gateway, it would be four copies and then eight, and each budget on the way sees only its own
//! share. So a hedge is marked, [`InheritLayer`] in a tonic server opens a scope from the mark, and
//! calls made inside the scope carry it on and are not hedged.

mod layer;

use std::future::Future;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::futures::TaskLocalFuture;

pub use layer::{InheritBody, InheritFuture, InheritLayer, InheritService};

use crate::{call::wire::PREVIOUS_ATTEMPTS, criticality::Criticality};

/// The mark of a hedge, and of all that it causes. The value is `1`; any other is the caller's own.
pub(crate) const HEDGE: HeaderName = HeaderName::from_static("x-hedge");
pub(crate) const MARK: HeaderValue = HeaderValue::from_static("1");

tokio::task_local! {
    // One for all that is inherited: a call looks once.
    static CURRENT: Inherited;
}

/// What a call inherits from the task that makes it.
///
/// [`InheritLayer`] and [`Criticality::scope`] open a scope around what they run. A task that is
/// spawned there is not in it; this takes the scope along:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use tonic_hedge::{Criticality, Inherited};
///
/// let handler = Criticality::Sheddable.scope(async {
///     let work = async { Inherited::current().criticality() };
///     tokio::spawn(Inherited::current().scope(work)).await.unwrap()
/// });
/// assert_eq!(handler.await, Some(Criticality::Sheddable));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    criticality: Option<Criticality>,
    is_hedge: bool,
    /// The server's own word: its calls may be hedged all the same.
    hedge_again: bool,
}

/// The future of [`Inherited::scope`] and [`Criticality::scope`].
pub type InheritScope<F> = TaskLocalFuture<Inherited, F>;

impl Inherited {
    /// Of the innermost scope that this task is in; outside of any it says nothing.
    pub fn current() -> Self {
        CURRENT.try_with(|current| *current).unwrap_or_default()
    }

    /// Runs `work` as if in the scope that this was taken from.
    pub fn scope<F: Future>(self, work: F) -> InheritScope<F> {
        CURRENT.scope(self, work)
    }

    /// How critical calls are here that say nothing of their own.
    pub fn criticality(self) -> Option<Criticality> {
        self.criticality
    }

    /// Whether this is done for a further attempt of a call: a hedge, ours or another client's, or a
    /// retry. Calls made here are not hedged, unless their request brings a policy of its own or the
    /// server's [`InheritLayer::hedge_again`] says so.
    pub fn is_hedge(self) -> bool {
        self.is_hedge
    }

    /// As this, but as critical as that.
    pub(crate) fn with_criticality(self, criticality: Criticality) -> Self {
        Self {
            criticality: Some(criticality),
            ..self
        }
    }

    /// Whether a call made here is kept from hedging, `marked` being its own metadata's word.
    pub(crate) fn holds_hedges(self, marked: bool) -> bool {
        (self.is_hedge || marked) && !self.hedge_again
    }

    /// What a request causes. Other clients' hedges have gRPC's own count and no mark.
    fn of_request(headers: &HeaderMap, hedge_again: bool) -> Self {
        let previous = headers.get(PREVIOUS_ATTEMPTS);
        let further = previous
            .and_then(|value| value.to_str().ok()?.parse::<u32>().ok())
            .is_some_and(|previous| previous > 0);
        Self {
            criticality: Some(Criticality::of_metadata(headers).unwrap_or_default()),
            is_hedge: further || is_marked(headers),
            hedge_again,
        }
    }
}

/// Whether a request's metadata carries the mark.
pub(crate) fn is_marked(headers: &HeaderMap) -> bool {
    headers.get(HEDGE).is_some_and(|value| *value == MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_marks_a_request() {
        for (name, value, expected) in [
            ("x-hedge", "1", true),
            ("x-hedge", "0", false),
            ("x-hedge", "", false),
            ("x-hedge", "true", false),
            ("grpc-previous-rpc-attempts", "1", true),
            ("grpc-previous-rpc-attempts", "2", true),
            ("grpc-previous-rpc-attempts", "0", false),
            ("grpc-previous-rpc-attempts", "-1", false),
            ("grpc-previous-rpc-attempts", "many", false),
            ("x-other", "1", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            for again in [false, true] {
                let inherited = Inherited::of_request(&headers, again);
                assert_eq!(inherited.is_hedge(), expected, "{name}: {value}");
                let holds = inherited.holds_hedges(false);
                assert_eq!(holds, expected && !again, "{name}: {value}");
                assert_eq!(inherited.holds_hedges(true), !again);
            }
        }
        assert!(!Inherited::default().holds_hedges(false));
        assert!(Inherited::default().holds_hedges(true));
    }

    /// Another criticality does not make a hedge's calls an original's.
    #[tokio::test]
    async fn an_inner_scope_stays_part_of_the_hedge() {
        let hedge = Inherited {
            criticality: Some(Criticality::Default),
            is_hedge: true,
            hedge_again: false,
        };
        hedge
            .scope(async {
                let inner = Criticality::Critical.scope(async { Inherited::current() });
                assert_eq!(inner.await, hedge.with_criticality(Criticality::Critical));
                assert_eq!(Inherited::current(), hedge);
            })
            .await;
        assert_eq!(Inherited::current(), Inherited::default());
    }
}
