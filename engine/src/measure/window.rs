//! What every estimator of a method's latency offers.

use std::{fmt, time::Duration};

use super::{Latencies, Survival};

/// The recent latencies of one method, and the quantile of them that times a hedge.
///
/// Only originals are recorded: to the trailers where they answered, as cut off at the time they
/// had run where a hedge beat them or the deadline ended them ("at least this long"). Hedges,
/// retries and fast failures are not.
///
/// The gain of a quantile over a fixed delay is that it is the share of calls that are hedged:
/// on steady traffic `1 - q` of the calls outrun the threshold.
pub trait LatencyEstimator: Send + Sync + fmt::Debug {
    /// Records one latency.
    fn record(&self, now: Duration, latency: Duration);

    /// Records how long a call had run when it was given up: its latency is at least that.
    ///
    /// An estimator that cannot weigh such a sample takes it as a latency. The quantile is then
    /// right while it stands still, and lags where it climbs.
    fn record_cut(&self, now: Duration, ran: Duration) {
        self.record(now, ran);
    }

    /// The configured quantile over the window.
    ///
    /// `None` below the minimum of samples, with an empty window, or when the quantile lies in
    /// the tracker's top bucket: such a value says "very long", and nothing to wait for. It is
    /// never zero. The usual path is one atomic load.
    fn threshold(&self, now: Duration) -> Option<Duration>;

    /// Any quantile `q` (clamped to `[0, 1]`), computed now: the slow path, for snapshots and
    /// for policies of single requests, which bring their own minimum of samples.
    ///
    /// `None` with an empty window or in the top bucket.
    fn quantile(&self, now: Duration, q: f64) -> Option<Duration>;

    /// The share of the window's originals that outlasts each time: what
    /// [`Planner`](crate::plan::Planner) plans with. Computed now, and not on a call's path.
    ///
    /// `None` from an estimator that cannot say: then there is never a plan.
    fn survival(&self, now: Duration) -> Option<Survival> {
        let _ = now;
        None
    }

    /// What the window holds, for the estimator of another process to go on from. Computed now, and
    /// not on a call's path.
    ///
    /// `None` from an estimator that cannot say: its successor starts without samples.
    fn export(&self, now: Duration) -> Option<Latencies> {
        let _ = now;
        None
    }

    /// Takes over what another process had in its window, as if all of it had been recorded at `now`:
    /// it leaves the window with what is recorded then. `false` if nothing was taken: latencies out of
    /// their bounds, none at all, a `now` that has left the window, or an estimator that cannot.
    fn import(&self, now: Duration, latencies: &Latencies) -> bool {
        let _ = (now, latencies);
        false
    }

    /// Samples in the window.
    fn samples(&self, now: Duration) -> u64;

    /// Bytes held.
    fn memory(&self) -> usize;

    /// Work that the estimator keeps off the call's path. The owner calls it from a task of its
    /// own every 250 ms or so; [`Ring`](super::Ring) needs none.
    fn fold(&self, now: Duration) {
        let _ = now;
    }
}
