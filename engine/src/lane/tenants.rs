//! The tenants of a few lanes, and the share that each has of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{Lane, Permit, TenantPolicy, millis, permit::Place};
use crate::{
    policy::PolicyError,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Who has asked a lane within this time has a share of it, in milliseconds: long enough that a
/// tenant of one call a second keeps its share, short enough that one who leaves soon makes room.
const ACTIVE: u64 = 1_000;

/// How often the active tenants are counted anew, in milliseconds: thousands of loads cost some
/// microseconds, a ten-thousandth of this.
const RECOUNT: u64 = 100;

/// A table that is full is looked through again after this many milliseconds: a flood of
/// invented names must not look through it for each.
const FULL: u64 = 1_000;

/// Longer names are not kept: the table is bounded in bytes, not only in names.
const LONGEST: usize = 128;

/// What those without a name or a place in the table are called together.
const OTHER: &str = "other";

/// Divides lanes among tenants: first the tenant's share, then the lane.
///
/// A tenant's share of a lane is its limit, divided by the tenants that use it: that have a call
/// in flight, asked within the last second, or were shed and are due back: until a second after
/// the latest time that they may have been told (counted ten times a second). It is at least one; what
/// a division leaves over they have in turn. A tenant that is alone has all of it; one that comes to a full lane gets its
/// share as soon as the calls of those who are over theirs have ended.
///
/// Tenants are known by name, up to [`TenantPolicy::most`] of them; those who come when the table
/// is full, whose names are longer than 128 bytes, or who have none, are one tenant together,
/// `other`. Known ones are looked up without a lock.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::lane::{Lane, LanePolicy, TenantPolicy, Tenants};
///
/// let now = Duration::from_secs(1);
/// let batch = Lane::new(&LanePolicy::default().initial(4))?;
/// let tenants = Tenants::new(&TenantPolicy::default(), [batch])?;
/// let mut ours: Vec<_> = (0..4).map(|_| tenants.try_admit(now, Some("a"), 0)).collect();
/// assert!(ours.iter().all(Option::is_some), "alone");
/// assert!(tenants.try_admit(now, Some("b"), 0).is_none(), "full");
/// ours.pop();
/// assert!(tenants.try_admit(now, Some("a"), 0).is_none(), "over its half");
/// assert!(tenants.try_admit(now, Some("b"), 0).is_some());
/// # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
/// ```
#[derive(Debug)]
pub struct Tenants {
    most: usize,
    /// In milliseconds, as all times here.
    idle: u64,
    lanes: Box<[Lane]>,
    known: ArcSwap<Known>,
    /// Who changes `known`.
    changing: Mutex<()>,
    /// Until then `known` is full, and nobody in it is idle for long enough.
    full_until: AtomicU64,
    recount_at: AtomicU64,
    other: Arc<Tenant>,
}

type Known = HashMap<Arc<str>, Arc<Tenant>>;

/// What a tenant has of each lane.
#[derive(Debug)]
pub(super) struct Tenant {
    name: Arc<str>,
    came: u64,
    classes: Box<[Class]>,
}

/// What a tenant has of one lane.
#[derive(Debug, Default)]
struct Class {
    in_flight: AtomicU32,
    /// Whether it was counted among the lane's tenants.
    active: AtomicBool,
    /// One more than when it last asked; zero is never.
    asked: AtomicU64,
    /// Its place in the line of those who have what is left over, from 1; zero is none yet.
    turn: AtomicU32,
    /// Who was shed is expected back until then, and its share is kept for it.
    expected_until: AtomicU64,
    admitted: AtomicU64,
    shed: AtomicU64,
}

/// A place in a tenant's share. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    tenant: Arc<Tenant>,
    class: usize,
}

/// What a tenant has of a lane, at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantReading {
    /// The tenant, or `other`.
    pub name: Arc<str>,
    /// Its calls in flight, hedges included.
    pub in_flight: u32,
    /// Calls that were let in, since the tenant is known.
    pub admitted: u64,
    /// Calls that were shed.
    pub shed: u64,
}

impl Tenants {
    /// Over these lanes, which are nobody else's.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(
        policy: &TenantPolicy,
        lanes: impl IntoIterator<Item = Lane>,
    ) -> Result<Self, PolicyError> {
        policy.validate()?;
        let lanes: Box<[_]> = lanes.into_iter().collect();
        Ok(Self {
            most: policy.most as usize,
            idle: millis(policy.idle),
            other: Arc::new(Tenant::new(OTHER, lanes.len(), 0)),
            lanes,
            known: ArcSwap::default(),
            changing: Mutex::new(()),
            full_until: AtomicU64::new(0),
            recount_at: AtomicU64::new(0),
        })
    }

    /// A place for a tenant's call in the lane of this number, if its share and the lane have
    /// one.
    ///
    /// # Panics
    /// There is no such lane.
    pub fn try_admit(&self, now: Duration, tenant: Option<&str>, lane: usize) -> Option<Permit> {
        let time = millis(now);
        let tenant = self.tenant(tenant, time);
        let class = &tenant.classes[lane];
        let number = lane;
        let lane = &self.lanes[lane];
        self.recount(time);
        class.asks(time, lane);
        let taken =
            Share::take(&tenant, number, lane).and_then(|share| Some((lane.take()?, share)));
        // Relaxed: counts.
        let Some((in_flight, share)) = taken else {
            class.shed.fetch_add(1, Ordering::Relaxed);
            lane.count_shed(now);
            class.is_expected(time, lane.retry_after(now, 1.0));
            return None;
        };
        class.is_back();
        class.admitted.fetch_add(1, Ordering::Relaxed);
        let place = Place::in_share(lane.clone(), share);
        Some(lane.admitted(now, in_flight, place))
    }

    /// The tenants of the lane of this number that have used it, by name; `other` is the last.
    ///
    /// # Panics
    /// There is no such lane.
    pub fn readings(&self, now: Duration, lane: usize) -> Vec<TenantReading> {
        self.forget_idle(millis(now));
        let known = self.known.load();
        let used = |tenant: &&Arc<Tenant>| tenant.classes[lane].was_used();
        let mut readings: Vec<_> = known
            .values()
            .filter(used)
            .map(|tenant| tenant.reading(lane))
            .collect();
        readings.sort_by(|a, b| a.name.cmp(&b.name));
        readings.extend(Some(&self.other).filter(used).map(|it| it.reading(lane)));
        readings
    }

    fn tenant(&self, name: Option<&str>, time: u64) -> Arc<Tenant> {
        let name = name.filter(|name| name.len() <= LONGEST && *name != OTHER);
        let Some(name) = name else {
            return Arc::clone(&self.other);
        };
        if let Some(tenant) = self.known.load().get(name) {
            return Arc::clone(tenant);
        }
        self.add(name, time)
    }

    #[cold]
    fn add(&self, name: &str, time: u64) -> Arc<Tenant> {
        // Relaxed: a stale time only leads to the lock, or to `other` once more.
        if time < self.full_until.load(Ordering::Relaxed) {
            return Arc::clone(&self.other);
        }
        let _changing = self.changing.lock();
        let known = self.known.load();
        if let Some(tenant) = known.get(name) {
            return Arc::clone(tenant);
        }
        let mut next = self.without_idle(&known, time);
        let tenant = if next.len() < self.most {
            let tenant = Arc::new(Tenant::new(name, self.lanes.len(), time));
            next.insert(Arc::clone(&tenant.name), Arc::clone(&tenant));
            tenant
        } else {
            self.full_until.store(time + FULL, Ordering::Relaxed);
            Arc::clone(&self.other)
        };
        self.known.store(Arc::new(next));
        tenant
    }

    fn without_idle(&self, known: &Known, time: u64) -> Known {
        let kept = known.iter().filter(|(_, it)| !it.is_idle(time, self.idle));
        kept.map(|(name, tenant)| (Arc::clone(name), Arc::clone(tenant)))
            .collect()
    }

    fn forget_idle(&self, time: u64) {
        let is_idle = |tenant: &Arc<Tenant>| tenant.is_idle(time, self.idle);
        if self.known.load().values().any(is_idle) {
            let _changing = self.changing.lock();
            let next = self.without_idle(&self.known.load(), time);
            self.known.store(Arc::new(next));
        }
    }

    /// Counts the active tenants of each lane, when it is time. Who comes meanwhile may be missed
    /// until the next time, and so may a call of one who was just forgotten: a moment of a share
    /// that is a little off, against a lock for each call.
    fn recount(&self, time: u64) {
        let due = self.recount_at.load(Ordering::Relaxed);
        if time < due {
            return;
        }
        // Relaxed: who wins counts; nothing else hangs on it.
        let won = self.recount_at.compare_exchange(
            due,
            time + RECOUNT,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if won.is_err() {
            return;
        }
        self.forget_idle(time);
        let known = self.known.load();
        for (number, lane) in self.lanes.iter().enumerate() {
            let everybody = || {
                let tenants = known.values().chain([&self.other]);
                tenants.map(|tenant| &tenant.classes[number])
            };
            let count = everybody().filter(|class| class.stays(time)).count() as u32;
            // Each in its turn has what is left over, so that in the long run all have the same.
            // Not one after the other: a turn that came as often as a call ends would be the same
            // tenant's each time. Multiples of the golden ratio are spread evenly, and so is each
            // second, third or fourth of them; their upper bits are the fraction.
            let fraction = (time / RECOUNT).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let first = ((fraction * u64::from(count)) >> 32) as u32;
            let active = everybody().filter(|class| class.active.load(Ordering::Relaxed));
            for (turn, class) in active.enumerate() {
                let turn = (first + turn as u32) % count.max(1);
                class.turn.store(turn + 1, Ordering::Relaxed);
            }
            lane.set_tenants(count);
        }
    }
}

impl Tenant {
    fn new(name: &str, lanes: usize, came: u64) -> Self {
        Self {
            name: name.into(),
            came,
            classes: (0..lanes).map(|_| Class::default()).collect(),
        }
    }

    /// The tenant's calls in flight in the lane of this number.
    pub(super) fn in_flight(&self, lane: usize) -> u32 {
        self.classes[lane].in_flight.load(Ordering::Relaxed)
    }

    /// Whether the tenant has no place left of its share.
    pub(super) fn is_full(&self, lane_number: usize, lane: &Lane) -> bool {
        let class = &self.classes[lane_number];
        self.in_flight(lane_number) >= class.share(lane)
    }

    fn is_idle(&self, time: u64, after: u64) -> bool {
        let is_idle = |class: &Class| {
            class.in_flight.load(Ordering::Relaxed) == 0
                && !class.asked_within(time, after)
                && !class.may_return(time)
        };
        // One that has just come has not asked yet.
        time.saturating_sub(self.came) > after && self.classes.iter().all(is_idle)
    }

    fn reading(&self, lane: usize) -> TenantReading {
        let class = &self.classes[lane];
        TenantReading {
            name: Arc::clone(&self.name),
            in_flight: self.in_flight(lane),
            admitted: class.admitted.load(Ordering::Relaxed),
            shed: class.shed.load(Ordering::Relaxed),
        }
    }
}

// Relaxed throughout: counts, flags and times that guard no other data.
impl Class {
    fn share(&self, lane: &Lane) -> u32 {
        lane.share(self.turn.load(Ordering::Relaxed))
    }

    /// Counts the tenant among the lane's, unless it is already.
    fn asks(&self, time: u64, lane: &Lane) {
        // Not each time: a store would take the cache line from those who read it.
        if self.asked.load(Ordering::Relaxed) <= time {
            self.asked.store(time + 1, Ordering::Relaxed);
        }
        if !self.active.load(Ordering::Relaxed) && !self.active.swap(true, Ordering::Relaxed) {
            lane.tenant_came();
        }
    }

    /// Whether the tenant is still one of the lane's.
    fn stays(&self, time: u64) -> bool {
        let stays = self.asked_within(time, ACTIVE)
            || self.in_flight.load(Ordering::Relaxed) > 0
            || self.may_return(time);
        self.active.store(stays, Ordering::Relaxed);
        stays
    }

    /// It was shed, and told to come again after `retry` at the latest. Forgotten meanwhile, it
    /// would find the lane as full as before, however often it comes when it is told to.
    fn is_expected(&self, time: u64, retry: Duration) {
        let until = time + millis(retry) + ACTIVE;
        self.expected_until.fetch_max(until, Ordering::Relaxed);
    }

    /// It has come, and is expected no more; whoever of its calls is shed later says so again.
    fn is_back(&self) {
        // Not each time, as in `asks`.
        if self.expected_until.load(Ordering::Relaxed) != 0 {
            self.expected_until.store(0, Ordering::Relaxed);
        }
    }

    fn may_return(&self, time: u64) -> bool {
        time < self.expected_until.load(Ordering::Relaxed)
    }

    fn asked_within(&self, time: u64, period: u64) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked
            .checked_sub(1)
            .is_some_and(|asked| time.saturating_sub(asked) <= period)
    }

    fn was_used(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }
}

impl Share {
    /// A place, if the tenant's share of the lane has one.
    pub(super) fn take(tenant: &Arc<Tenant>, class: usize, lane: &Lane) -> Option<Self> {
        let share = tenant.classes[class].share(lane);
        let places = &tenant.classes[class].in_flight;
        let mut taken = places.load(Ordering::Relaxed);
        loop {
            if taken >= share {
                return None;
            }
            match places.compare_exchange_weak(
                taken,
                taken + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(other) => taken = other,
            }
        }
        Some(Self {
            tenant: Arc::clone(tenant),
            class,
        })
    }

    pub(super) fn whose(&self) -> (Arc<Tenant>, usize) {
        (Arc::clone(&self.tenant), self.class)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let places = &self.tenant.classes[self.class].in_flight;
        places.fetch_sub(1, Ordering::Relaxed);
    }
}
