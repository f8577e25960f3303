//! What a call notes of attempts beyond its first.

use std::{sync::Arc, time::Duration};

use tonic::Status;
use tonic_hedge_engine::{lane::Extra, race::AttemptId};

use super::{hedges::Unended, launch::Unplaced};
use crate::{
    budget::Loan,
    endpoint::{Endpoint, Purpose},
    hooks::View,
};

/// Made when the first of it is noted: most calls have one attempt, and no room for this.
#[derive(Default)]
pub(super) struct Further {
    /// The token of the attempt that was granted, and is not launched yet.
    pub(super) granted: Option<Loan>,
    /// The plan has allowed that attempt, and is told if it is not launched.
    pub(super) allowed: bool,
    /// That attempt's place in the call's lane.
    pub(super) place: Option<Extra>,
    /// The threshold, where it made the hedge due that was asked for last: none was outrun where
    /// a failure did.
    pub(super) outran: Option<Duration>,
    /// The tokens of attempts that were not sent, until they are replaced.
    pub(super) unsent: Vec<Loan>,
    /// Where the last unsent attempt was to go.
    pub(super) unsent_at: Option<Arc<Endpoint>>,
    /// The newest launch waits for an endpoint.
    pub(super) waits: bool,
    /// What the next launch is for, where it has waited for an endpoint.
    pub(super) waited: Option<Purpose>,
    /// Why the original found no endpoint.
    pub(super) unplaced: Option<Unplaced>,
    /// The hedges whose end is not counted yet; `None` before the first.
    pub(super) hedges: Option<Unended>,
    /// The hedge whose answer ended the race.
    pub(super) winner: Option<AttemptId>,
    /// For the user's hooks; kept only where there are some.
    pub(super) last_failure: Option<Status>,
    /// The request as delays see it, from the first on.
    pub(super) view: Option<Arc<View>>,
    /// The deadline's failure is recorded.
    pub(super) timed_out: bool,
}
