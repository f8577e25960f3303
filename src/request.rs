//! What one request can say about itself, by extension trait on `tonic::Request`.

use tonic_hedge_engine::policy::Hedge;

use crate::{criticality::Criticality, sealed::Sealed};

/// What a request's extensions say. Strongest in the order of precedence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) repeatable: bool,
    pub(crate) first_message: bool,
    pub(crate) criticality: Option<Criticality>,
    pub(crate) hedging: Option<Hedging>,
}

/// A request's own hedging policy.
#[derive(Clone, Debug)]
pub(crate) enum Hedging {
    Off,
    On(Box<Hedge>),
}

/// Per-request settings. They travel in the request's extensions, which reach the channel
/// through the generated client, and an interceptor can set them for a whole client.
///
/// ```
/// use tonic_hedge::{Criticality, RequestExt as _};
///
/// let request = tonic::Request::new(())
///     .mark_repeatable()
///     .criticality(Criticality::Sheddable);
/// # drop(request);
/// ```
pub trait RequestExt: Sealed + Sized {
    /// The request may be sent more than once whatever its method says: it carries an
    /// idempotency key that the server honours. Its method must be known to be unary, or to hedge
    /// the first message of its answer.
    #[must_use]
    fn mark_repeatable(self) -> Self;

    /// The wait for the first message of a streamed answer is hedged. Its method must be known to
    /// stream its answer only, and be repeatable, or this request.
    #[must_use]
    fn first_message(self) -> Self;

    /// How much its answer matters. A sheddable call is never hedged.
    #[must_use]
    fn criticality(self, criticality: Criticality) -> Self;

    /// This call is not hedged.
    #[must_use]
    fn without_hedging(self) -> Self;

    /// This call is hedged by a policy of its own. A policy that does not validate fails the
    /// call with INVALID_ARGUMENT. Repeatability is a matter of its own, and so are the
    /// method's latency window and win rate: the request's `window`, `scope` and `win_rate` say nothing.
    #[must_use]
    fn hedge(self, policy: Hedge) -> Self;
}

impl<T> RequestExt for tonic::Request<T> {
    fn mark_repeatable(mut self) -> Self {
        overrides(&mut self).repeatable = true;
        self
    }

    fn first_message(mut self) -> Self {
        overrides(&mut self).first_message = true;
        self
    }

    fn criticality(mut self, criticality: Criticality) -> Self {
        overrides(&mut self).criticality = Some(criticality);
        self
    }

    fn without_hedging(mut self) -> Self {
        overrides(&mut self).hedging = Some(Hedging::Off);
        self
    }

    fn hedge(mut self, policy: Hedge) -> Self {
        overrides(&mut self).hedging = Some(Hedging::On(Box::new(policy)));
        self
    }
}

fn overrides<T>(request: &mut tonic::Request<T>) -> &mut Overrides {
    request.extensions_mut().get_or_insert_default()
}
