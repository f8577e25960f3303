//! When a second copy of a slow call may start.

use std::{future::Future, time::Duration};

use super::{BoxError, Delay, PolicyError, Upcoming, WinRate};

/// When a second copy of a slow call may start.
///
/// [`Hedge::at`] is a complete configuration; the setters change one default each.
/// Values are checked when the channel is built ([`Hedge::validate`]).
///
/// ```
/// use tonic_hedge_engine::policy::Hedge;
/// use std::time::Duration;
///
/// let hedge = Hedge::at(0.95).minimum_delay(Duration::from_millis(25));
/// assert!(hedge.validate().is_ok());
/// assert_eq!(
///     Hedge::at(1.2).validate().unwrap_err().to_string(),
///     "Hedge.quantile: 1.2 is not in [0.5, 1)",
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Hedge {
    /// What makes a hedge due.
    pub timing: Timing,
    /// The quantile of whole calls that [`Timing::Within`] brings down; nothing else reads it.
    /// Default 0.99; 0.5 <= q < 1.
    pub target_quantile: f64,
    /// Attempts in flight at once, the original included. Default 2; at least 2.
    pub max_concurrent: u32,
    /// Hedges of one call, whichever way they end. Default `None`: what is outrun starts no more than
    /// `max_concurrent` has room for, which is one, and one that fails beside the original is
    /// followed by another while there are attempts (gRFC A6). With `Some(1)` a call has one,
    /// also where it fails early: then the original is waited for. At least 1. Retries are no hedges.
    pub max_hedges: Option<u32>,
    /// Recent calls that the estimate needs before any hedge fires. Default 20; at least 1.
    pub minimum_samples: u64,
    /// Floor under a measured threshold. Default 10 ms; at least 1 ms, so that a dependency
    /// that answers in microseconds is not asked everything twice.
    pub minimum_delay: Duration,
    /// Ceiling over a measured threshold. Default none; not below `minimum_delay`.
    pub maximum_delay: Option<Duration>,
    /// The threshold until there are `minimum_samples`. Default none: a cold process does
    /// not guess. At least 1 ms.
    pub cold_start: Option<Duration>,
    /// History that the estimate covers. Default 30 s; 1 s to 1 h.
    pub window: Duration,
    /// What shares one estimate. Default [`Scope::Method`].
    pub scope: Scope,
    /// Where a hedge may go. Default [`Target::Other`].
    pub target: Target,
    /// How far towards the breaker's trip point the error rate may climb before hedging
    /// stops. Default 0.5; more than 0, at most 1.
    pub suppress_at: f64,
    /// Holds hedges back once they stop winning. Default none.
    pub win_rate: Option<WinRate>,
}

/// What makes a hedge due.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Timing {
    /// The newest attempt outran this live quantile of its method's latency.
    Quantile(f64),
    /// The newest attempt outran the delay that brings the target quantile lowest for at most this
    /// share of extra calls.
    Within {
        /// Hedges for each original, at most.
        load: f64,
    },
    /// The newest attempt has run for this long.
    After(Duration),
    /// The newest attempt has run for as long as this function says.
    With(Delay),
    /// Never on latency: only a failure while another attempt is in flight.
    OnFailure,
}

/// What shares one latency estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// One estimate per method.
    #[default]
    Method,
    /// One per method and endpoint.
    Endpoint,
    /// One per method and locality, so that a slow region has a threshold of its own; an endpoint
    /// without a locality has its own.
    Locality,
}

/// Where a hedge may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Only to an endpoint that no attempt of the call uses: a second stream to the same
    /// process is not an independent draw. Without one the hedge is held.
    #[default]
    Other,
    /// To another endpoint if one is connected, else to the same.
    OtherIfAny,
}

impl Hedge {
    /// Hedges a call that outruns the live quantile `quantile` (0.5 <= q < 1) of its
    /// method's latency. It is also the extra load: 0.95 costs about 5 %.
    pub fn at(quantile: f64) -> Self {
        Self::timed(Timing::Quantile(quantile))
    }

    /// Hedges when, and as often as, it brings the target quantile of the method's calls lowest
    /// ([`Hedge::target_quantile`], 0.99 unless said), for at most `load` (0 < load <= 0.5) hedges
    /// for each call: see [`plan`](crate::plan).
    ///
    /// [`Hedge::at`] costs a share of extra calls and takes the delay that comes with it. Where more
    /// calls are slow than that share, its threshold lies among the slow ones and gains little: this
    /// finds the delay below them, which for a little more load gains nearly all. And where hedges
    /// gain nothing it hardly sends any.
    ///
    /// Until the window holds `minimum_samples`, and enough of them in the tail (3 for each
    /// `1 - target_quantile`: 300 at 0.99), the threshold is the live quantile `1 - load`.
    ///
    /// ```
    /// use tonic_hedge_engine::policy::Hedge;
    ///
    /// assert!(Hedge::within(0.05).target_quantile(0.999).validate().is_ok());
    /// assert_eq!(
    ///     Hedge::within(0.7).validate().unwrap_err().to_string(),
    ///     "Hedge.load: 0.7 is not in (0, 0.5]",
    /// );
    /// ```
    pub fn within(load: f64) -> Self {
        Self::timed(Timing::Within { load })
    }

    /// Hedges a call whose newest attempt has run for `delay`. A fixed delay ages: prefer
    /// [`Hedge::at`] where the latency can be measured.
    pub fn after(delay: Duration) -> Self {
        Self::timed(Timing::After(delay))
    }

    /// Starts all attempts that `max_concurrent` and the call's `max_attempts` allow at once.
    pub fn immediately() -> Self {
        Self::timed(Timing::After(Duration::ZERO))
    }

    /// Hedges a call whose newest attempt has run for the time that `delay` returns, asked anew for
    /// each attempt that may follow, while the one before it runs. Zero starts the next one at once,
    /// and so does a failure, whatever the delay. An error of `delay` ends the call with it and
    /// drops its attempts.
    ///
    /// ```
    /// use std::{convert::Infallible, time::Duration};
    /// use tonic_hedge_engine::policy::Hedge;
    ///
    /// // The first hedge 100 ms after the original, the second 300 ms after the first.
    /// let hedge = Hedge::delay_with(|next| async move {
    ///     Ok::<_, Infallible>(Duration::from_millis(if next.attempt == 1 { 100 } else { 300 }))
    /// });
    /// assert!(hedge.max_concurrent(3).validate().is_ok());
    /// ```
    pub fn delay_with<F, R, E>(delay: F) -> Self
    where
        F: Fn(Upcoming) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Duration, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::timed(Timing::With(Delay::new(delay)))
    }

    /// Never hedges on latency.
    pub fn on_failure() -> Self {
        Self::timed(Timing::OnFailure)
    }

    fn timed(timing: Timing) -> Self {
        Self {
            timing,
            target_quantile: 0.99,
            max_concurrent: 2,
            max_hedges: None,
            minimum_samples: 20,
            minimum_delay: Duration::from_millis(10),
            maximum_delay: None,
            cold_start: None,
            window: Duration::from_secs(30),
            scope: Scope::Method,
            target: Target::Other,
            suppress_at: 0.5,
            win_rate: None,
        }
    }

    /// Sets [`Hedge::target_quantile`](Hedge#structfield.target_quantile).
    #[must_use]
    pub fn target_quantile(mut self, quantile: f64) -> Self {
        self.target_quantile = quantile;
        self
    }

    /// Sets [`Hedge::max_concurrent`].
    #[must_use]
    pub fn max_concurrent(mut self, attempts: u32) -> Self {
        self.max_concurrent = attempts;
        self
    }

    /// Sets [`Hedge::max_hedges`](Hedge#structfield.max_hedges).
    #[must_use]
    pub fn max_hedges(mut self, hedges: u32) -> Self {
        self.max_hedges = Some(hedges);
        self
    }

    /// Sets [`Hedge::minimum_samples`].
    #[must_use]
    pub fn minimum_samples(mut self, calls: u64) -> Self {
        self.minimum_samples = calls;
        self
    }

    /// Sets [`Hedge::minimum_delay`].
    #[must_use]
    pub fn minimum_delay(mut self, delay: Duration) -> Self {
        self.minimum_delay = delay;
        self
    }

    /// Sets [`Hedge::maximum_delay`].
    #[must_use]
    pub fn maximum_delay(mut self, delay: Duration) -> Self {
        self.maximum_delay = Some(delay);
        self
    }

    /// Sets [`Hedge::cold_start`].
    #[must_use]
    pub fn cold_start(mut self, threshold: Duration) -> Self {
        self.cold_start = Some(threshold);
        self
    }

    /// Sets [`Hedge::window`].
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets [`Hedge::scope`].
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets [`Hedge::target`].
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Sets [`Hedge::suppress_at`].
    #[must_use]
    pub fn suppress_at(mut self, fraction: f64) -> Self {
        self.suppress_at = fraction;
        self
    }

    /// Sets [`Hedge::win_rate`].
    #[must_use]
    pub fn win_rate(mut self, win_rate: WinRate) -> Self {
        self.win_rate = Some(win_rate);
        self
    }

    /// Hedges of one call, at most.
    pub fn hedges(&self) -> u32 {
        self.max_hedges.unwrap_or(u32::MAX)
    }

    /// Whether the delay is measured, so that gate 5 asks for samples.
    pub fn is_measured(&self) -> bool {
        self.quantile().is_some()
    }

    /// The live quantile that the estimate follows: what times the hedges, or does so until there is
    /// a plan. `None` where the delay is not measured.
    pub fn quantile(&self) -> Option<f64> {
        match self.timing {
            Timing::Quantile(quantile) => Some(quantile),
            Timing::Within { load } => Some(1.0 - load),
            Timing::After(_) | Timing::With(_) | Timing::OnFailure => None,
        }
    }

    /// The delay before a hedge, from what the estimate says (`None` without samples, or where a
    /// function says it).
    ///
    /// The floor and the ceiling bound a measured threshold only: a fixed delay is the
    /// user's own number.
    pub fn threshold(&self, measured: Option<Duration>) -> Option<Duration> {
        match self.timing {
            Timing::After(delay) => Some(delay),
            Timing::With(_) | Timing::OnFailure => None,
            Timing::Quantile(_) | Timing::Within { .. } => measured
                .map(|measured| {
                    let ceiling = self.maximum_delay.unwrap_or(Duration::MAX);
                    measured.max(self.minimum_delay).min(ceiling)
                })
                .or(self.cold_start),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if let Timing::Quantile(q) = self.timing {
            PolicyError::unless((0.5..1.0).contains(&q), "Hedge.quantile", q, "in [0.5, 1)")?;
        }
        if let Timing::Within { load } = self.timing {
            let fits = load > 0.0 && load <= 0.5;
            PolicyError::unless(fits, "Hedge.load", load, "in (0, 0.5]")?;
        }
        PolicyError::unless(
            (0.5..1.0).contains(&self.target_quantile),
            "Hedge.target_quantile",
            self.target_quantile,
            "in [0.5, 1)",
        )?;
        PolicyError::unless(
            self.max_concurrent >= 2,
            "Hedge.max_concurrent",
            self.max_concurrent,
            "at least 2",
        )?;
        PolicyError::unless(
            self.hedges() >= 1,
            "Hedge.max_hedges",
            self.hedges(),
            "at least 1",
        )?;
        PolicyError::unless(
            self.minimum_samples >= 1,
            "Hedge.minimum_samples",
            self.minimum_samples,
            "at least 1",
        )?;
        PolicyError::unless(
            self.minimum_delay >= Duration::from_millis(1),
            "Hedge.minimum_delay",
            self.minimum_delay,
            "at least 1ms",
        )?;
        if let Some(cold_start) = self.cold_start {
            PolicyError::unless(
                cold_start >= Duration::from_millis(1),
                "Hedge.cold_start",
                cold_start,
                "at least 1ms",
            )?;
        }
        if let Some(ceiling) = self.maximum_delay {
            PolicyError::unless(
                ceiling >= self.minimum_delay,
                "Hedge.maximum_delay",
                ceiling,
                "at least Hedge.minimum_delay",
            )?;
        }
        PolicyError::unless(
            (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.window),
            "Hedge.window",
            self.window,
            "in [1s, 3600s]",
        )?;
        PolicyError::unless(
            self.suppress_at > 0.0 && self.suppress_at <= 1.0,
            "Hedge.suppress_at",
            self.suppress_at,
            "in (0, 1]",
        )?;
        self.win_rate.as_ref().map_or(Ok(()), WinRate::validate)
    }
}
