//! What a call holds while it is in a lane.

use std::{fmt, sync::Arc as StdArc, time::Duration};

use super::{
    Lane, LaneOutcome, LaneSample,
    admission::SOONEST,
    tenants::{Share, Tenant},
};

/// A call's place in a lane. Dropping it gives the place back, whatever became of the call, and
/// tells the lane nothing: for a call that was cancelled, or never sent.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Permit {
    place: Place,
    admitted: Duration,
    in_flight: u32,
    sampled: bool,
}

/// A hedge's place in its call's lane. Dropping it gives the place back.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Extra {
    _place: Place,
}

/// Asks a call's lane for more places. It holds none itself, and may outlive the call.
#[derive(Clone)]
pub struct Room {
    lane: Lane,
    tenant: Option<(StdArc<Tenant>, usize)>,
}

/// A place in a lane, and in a tenant's share of it.
#[derive(Debug)]
pub(super) struct Place {
    lane: Lane,
    share: Option<Share>,
}

impl Permit {
    pub(super) fn new(place: Place, admitted: Duration, in_flight: u32) -> Self {
        Self {
            place,
            admitted,
            in_flight,
            sampled: false,
        }
    }

    /// What is measured is known before the call has ended: its first message is there.
    pub fn sample(&mut self, now: Duration, outcome: LaneOutcome) {
        self.sampled = true;
        let sample = LaneSample {
            rtt: now.saturating_sub(self.admitted),
            in_flight: self.in_flight,
            outcome,
        };
        self.place.lane.learn(now, sample);
    }

    /// The call has ended: tells the lane, and gives the place back. After [`Permit::sample`] an
    /// end says nothing more, unless it is an overload.
    pub fn finish(mut self, now: Duration, outcome: LaneOutcome) {
        // A refusal comes sooner than a place is free in the long run; a timeout does not.
        let held = now.saturating_sub(self.admitted);
        if outcome == LaneOutcome::Answered || held > SOONEST {
            self.place.lane.was_held(held);
        }
        if !self.sampled || outcome == LaneOutcome::Overloaded {
            self.sample(now, outcome);
        }
    }

    /// A place for a hedge of this call; `None` if the lane, or the tenant's share of it, is
    /// full. A hedge is last in line: it gets a place only while a call would get one, and nobody
    /// waits for places, so none is taken from a first attempt that was there before.
    pub fn try_extra(&self) -> Option<Extra> {
        self.room().try_extra()
    }

    /// What a hedge of this call asks, where the permit itself is out of reach.
    pub fn room(&self) -> Room {
        Room {
            lane: self.place.lane.clone(),
            tenant: self.place.share.as_ref().map(Share::whose),
        }
    }

    /// When the call was admitted.
    pub fn admitted(&self) -> Duration {
        self.admitted
    }
}

impl Room {
    /// As [`Permit::try_extra`].
    pub fn try_extra(&self) -> Option<Extra> {
        let share = match &self.tenant {
            Some((tenant, class)) => Some(Share::take(tenant, *class, &self.lane)?),
            None => None,
        };
        self.lane.take()?;
        let mut place = Place::new(self.lane.clone());
        place.share = share;
        Some(Extra { _place: place })
    }

    /// Whether there is a place now. It takes none.
    pub fn has_place(&self) -> bool {
        let share_is_full = self
            .tenant
            .as_ref()
            .is_some_and(|(tenant, class)| tenant.is_full(*class, &self.lane));
        !share_is_full && self.lane.in_flight() < self.lane.limit()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl Place {
    /// For a place that was taken.
    pub(super) fn new(lane: Lane) -> Self {
        Self { lane, share: None }
    }

    pub(super) fn in_share(lane: Lane, share: Share) -> Self {
        Self {
            lane,
            share: Some(share),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lane.give_back();
    }
}
