//! When to hedge for a share of load that the user grants: [`Hedge::within`].
//!
//! A [`Planner`] is shared by the calls of a method and plans for them: it looks for the delay, and
//! for the probability of a hedge then, that bring the target quantile of whole calls lowest, by
//! what the method's window says of originals and by how long its own hedges took. The family of
//! plans is that of "Optimal Reissue Policies for Reducing Tail Latency" (Kaler, He, Elnikety, SPAA
//! 2017).
//!
//! The load is kept exactly, whatever the plan expects: each original pays its share of a hedge
//! in, and each hedge takes a whole one out. What is saved up is a tenth of a window's share, so no
//! window of steady traffic costs more than 1.1 times the load.
//!
//! Where calls wait for each other, a hedge makes all of them slower. The planner sees it by the waves
//! of the traffic: how much slower are calls when there happen to be more of them? A plan has to gain
//! more than its load costs by that.
//!
//! It plans one hedge for each call. Where a policy allows more of them, the others take from the same
//! share, at the same delay after the one before.

mod drag;
mod hedges;
mod optimum;
mod share;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use self::{
    hedges::Hedges,
    optimum::{Outlook, Plan, Search, Terms},
    share::{ONE, Share, Totals},
};
use crate::{
    measure::{LatencyEstimator, Survival, micros},
    policy::{Hedge, Timing},
};

/// How often a plan is made: often enough to follow a shift within the shortest window.
const INTERVAL: Duration = Duration::from_secs(1);

/// Samples beyond the target quantile that say where it is.
const TAIL_SAMPLES: f64 = 3.0;

/// The part of a window's load that the purse saves up: no window costs more than that beyond its
/// share.
const SAVED: f64 = 0.1;

/// The part of its time that a plan must save to be worth its load, and to be taken up again.
const GAIN: f64 = 0.02;
const GAIN_TO_WAKE: f64 = 0.03;

/// The part of the load that explores while the plan rests, so that it learns when hedges gain
/// again; and the most of the calls that it hedges for that.
const EXPLORED: f64 = 0.1;
const MOST_EXPLORED: f64 = 0.01;

/// Windows that hedges count for while the plan rests. There are a tenth as many of them: forgotten as
/// fast as ever they would leave nothing to rest by, and the plan would wake up to see it all again.
const RESTED: u32 = 10;

/// Hedges that tell what hedges take: fewer are made up to as many by originals. A plan that rests at
/// twenty calls a second sees about as many in a window.
const ENOUGH_HEDGES: f64 = 5.0;

/// Parts of a window by which the load it got is counted.
const PARTS: usize = 8;

/// Chooses when to hedge, and keeps to the share of load that it may spend.
///
/// One serves all calls of a method that share an estimate. A call that is not hedged costs it two
/// atomic additions ([`Planner::started`], [`Planner::call_ended`]) and one atomic load
/// ([`Planner::delay`]); what locks is for calls that outran their threshold. Someone calls
/// [`Planner::replan`] every 250 ms or so, off the calls' path: it plans once a second, in some 10 to
/// 60 microseconds. It holds less than 5 KiB.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::{
///     measure::{LatencyEstimator, Ring},
///     plan::{PlanState, Planner},
///     policy::Hedge,
/// };
///
/// let hedge = Hedge::within(0.12);
/// let planner = Planner::new(&hedge).unwrap();
/// let ring = Ring::new(hedge.quantile().unwrap(), hedge.window, hedge.minimum_samples);
/// let now = Duration::ZERO;
/// for call in 0..1_000 {
///     planner.started();
///     // Nine in ten take 20 to 44 ms, one in ten 250 to 580.
///     let slow = if call % 10 == 0 { call / 10 * 3 + 230 } else { 0 };
///     ring.record(now, Duration::from_millis(20 + call * 7 % 25 + slow));
/// }
/// assert_eq!(planner.delay(), None, "no plan yet: the ring's threshold, 250 ms, decides");
/// planner.replan(now, &ring);
/// let delay = planner.delay().unwrap();
/// assert!(delay < Duration::from_millis(50), "between the fast and the slow: {delay:?}");
/// assert_eq!(planner.reading(now).state, PlanState::Planned);
/// ```
#[derive(Debug)]
pub struct Planner {
    load: f64,
    /// 1 - the target quantile.
    tail: f64,
    minimum_samples: u64,
    window: Duration,
    /// Bounds of the delay, in microseconds.
    earliest: u32,
    latest: u32,
    /// The plan in force: its delay in microseconds in the upper half, its probability in
    /// millionths in the lower; 0 is none. In one word, so that both are of one plan.
    plan: AtomicU64,
    share: Share,
    took: drag::Took,
    /// Locked for a count, by calls that were hedged.
    hedges: Mutex<Hedges>,
    /// Held for as long as a plan is made.
    view: Mutex<View>,
}

/// What the planner knows beside what calls read.
#[derive(Debug)]
struct View {
    /// When it last planned.
    planned: Option<Duration>,
    state: PlanState,
    /// Totals at the beginning of each part of the window, the oldest first.
    parts: Vec<(Duration, Totals)>,
    forecast: Forecast,
    drag: drag::Drag,
    got: Option<Duration>,
}

/// What the last plan was made by.
#[derive(Clone, Copy, Debug, Default)]
struct Forecast {
    expected: Option<Duration>,
    unhedged: Option<Duration>,
    load: Option<f64>,
}

/// What a planner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum PlanState {
    /// There are too few samples for a plan: the live quantile `1 - load` times the hedges.
    Learning,
    /// A plan is in force.
    Planned,
    /// Hedges would gain too little: a tenth of the load, at most one call in 100, goes on to see when
    /// that changes.
    Resting,
}

/// What a planner chose, what it expects of it, and what it got.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PlanReading {
    /// The most hedges for each call.
    pub load: f64,
    /// The quantile that is brought down.
    pub target_quantile: f64,
    /// What it is doing.
    pub state: PlanState,
    /// When a hedge is due; `None` without a plan.
    pub delay: Option<Duration>,
    /// The part of the calls beyond the delay that are hedged, as far as the share lasts.
    pub probability: f64,
    /// The target quantile under the plan; `None` without one.
    pub expected: Option<Duration>,
    /// The target quantile without hedges.
    pub unhedged: Option<Duration>,
    /// Hedges for each call under the plan.
    pub expected_load: Option<f64>,
    /// The target quantile of the window's calls.
    pub got: Option<Duration>,
    /// Hedges for each call in the window.
    pub got_load: Option<f64>,
    /// What is left of the share, in hedges. One takes 1.
    pub balance: f64,
    /// What the plan's load costs the other calls: how much the logarithm of their time grows, for a
    /// hedge for each call. 0 where calls do not wait for each other.
    pub drag: f64,
}

impl Planner {
    /// `None` unless the policy is [`Hedge::within`]. Its bounds are those of
    /// [`Hedge::validate`].
    pub fn new(hedge: &Hedge) -> Option<Self> {
        let Timing::Within { load } = hedge.timing else {
            return None;
        };
        Some(Self {
            load,
            tail: 1.0 - hedge.target_quantile,
            minimum_samples: hedge.minimum_samples,
            window: hedge.window,
            earliest: micros(hedge.minimum_delay),
            latest: hedge.maximum_delay.map_or(u32::MAX, micros),
            plan: AtomicU64::new(0),
            share: Share::new(load),
            took: drag::Took::new(),
            hedges: Mutex::new(Hedges::new()),
            view: Mutex::new(View::new()),
        })
    }

    /// An original was launched.
    #[inline]
    pub fn started(&self) {
        self.share.started();
    }

    /// When a hedge is due by the plan in force, after the launch of the attempt before it. `None`
    /// without a plan: then the estimate's threshold, the quantile `1 - load`, decides.
    #[inline]
    pub fn delay(&self) -> Option<Duration> {
        // Relaxed: the word is all there is to see.
        unpack(self.plan.load(Ordering::Relaxed)).map(|(delay, _)| delay)
    }

    /// Whether this would-be hedge starts: by the plan's probability, and by what is left of the
    /// share. It takes its part of both, so it is asked last of all that may hold a hedge back,
    /// and once.
    pub fn allow(&self) -> bool {
        self.share.allow(self.probability())
    }

    /// A hedge that was allowed is not started after all: its part of the share comes back.
    pub fn give_back(&self) {
        self.share.give_back();
    }

    /// What [`Planner::allow`] would say now. Reading changes nothing.
    pub fn would_allow(&self) -> bool {
        self.share.would_allow(self.probability())
    }

    /// The part of the would-be hedges that start now: less than 1 where the plan hedges only some,
    /// or where less than a hedge is left of the share.
    pub fn allowance(&self) -> f64 {
        (self.probability() as f64 / ONE as f64).min(self.share.balance())
    }

    /// A call was answered `took` after its start, by whichever attempt. Not its original alone: where a
    /// queue is full, those that came again are the slow ones.
    #[inline]
    pub fn call_ended(&self, now: Duration, took: Duration) {
        self.took.add(now, took);
    }

    /// A hedge was answered after `took` of its own time.
    pub fn hedge_ended(&self, took: Duration) {
        self.hedges.lock().ended(took);
    }

    /// One was discarded after it had run for `ran`.
    pub fn hedge_cut(&self, ran: Duration) {
        self.hedges.lock().cut(ran);
    }

    /// Makes the plan anew if a second has passed. Not on a call's path: it looks at the whole
    /// window.
    pub fn replan(&self, now: Duration, originals: &dyn LatencyEstimator) {
        // Another one is at it.
        let Some(mut view) = self.view.try_lock() else {
            return;
        };
        let is_due = |planned: Duration| now.saturating_sub(planned) >= INTERVAL;
        if !view.planned.is_none_or(is_due) {
            return;
        }
        view.planned = Some(now);
        view.drag.learn(now, &self.took);
        let survival = originals.survival(now);
        // A window that another process handed on has had more calls than were seen here.
        let had = survival.as_ref().map_or(0.0, |it| it.samples() as f64);
        let calls = view.turn(now, self.window, self.share.totals()).max(had);
        let capacity = (SAVED * self.load * calls).max(1.0);
        self.share.set_capacity(capacity);
        let hedges = {
            let mut hedges = self.hedges.lock();
            let window = match view.state {
                PlanState::Resting => self.window * RESTED,
                PlanState::Planned | PlanState::Learning => self.window,
            };
            hedges.age(now, window);
            hedges.clone()
        };
        if survival.as_ref().is_none_or(|it| it.samples() == 0) {
            // Nothing is recent, and what hedges took neither.
            self.hedges.lock().forget();
        }
        view.got = survival.as_ref().and_then(|it| it.observed(self.tail));
        let plan = survival
            .filter(|it| self.is_enough(it, view.state))
            .map(|it| self.plan(&mut view, &it, &hedges, capacity));
        if plan.is_none() {
            view.state = PlanState::Learning;
            view.forecast = Forecast::default();
        }
        // Relaxed: as in `delay`.
        self.plan.store(plan.map_or(0, pack), Ordering::Relaxed);
    }

    /// What it chose, expects and got.
    pub fn reading(&self, now: Duration) -> PlanReading {
        let view = self.view.lock();
        let plan = unpack(self.plan.load(Ordering::Relaxed));
        PlanReading {
            load: self.load,
            target_quantile: 1.0 - self.tail,
            state: view.state,
            delay: plan.map(|(delay, _)| delay),
            probability: plan.map_or(1.0, |(_, probability)| probability as f64 / ONE as f64),
            expected: view.forecast.expected,
            unhedged: view.forecast.unhedged,
            expected_load: view.forecast.load,
            got: view.got,
            got_load: view.load(now, self.window, self.share.totals()),
            balance: self.share.balance(),
            drag: view.drag.of_load(),
        }
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + Hedges::memory() + PARTS * size_of::<(Duration, Totals)>()
    }

    fn probability(&self) -> u64 {
        unpack(self.plan.load(Ordering::Relaxed)).map_or(ONE, |(_, probability)| probability)
    }

    /// Enough to plan with. A plan in force stays until there are half as many, so that it does not
    /// come and go with single calls.
    fn is_enough(&self, originals: &Survival, state: PlanState) -> bool {
        let tail = (TAIL_SAMPLES / self.tail).ceil() as u64;
        let enough = self.minimum_samples.max(tail);
        match state {
            PlanState::Learning => originals.samples() >= enough,
            PlanState::Planned | PlanState::Resting => {
                originals.samples() >= self.minimum_samples.max(enough / 2)
            }
        }
    }

    fn plan(&self, view: &mut View, originals: &Survival, hedges: &Hedges, capacity: f64) -> Plan {
        let (own, count) = hedges.survival();
        // As long as there are fewer, originals stand for the others.
        let others = (ENOUGH_HEDGES - count).max(0.0);
        let hedges = own.mean(count, originals, others);
        let search = Search::new(Terms {
            originals,
            hedges: &hedges,
            tail: self.tail,
            load: self.load,
            capacity,
            drag: view.drag.of_load(),
            earliest: self.earliest,
            latest: self.latest,
        });
        let in_force = unpack(self.plan.load(Ordering::Relaxed)).map(|(delay, probability)| Plan {
            delay: micros(delay),
            probability: probability as f64 / ONE as f64,
        });
        view.forecast.unhedged = originals.time(self.tail);
        let gain = match view.state {
            PlanState::Resting => GAIN_TO_WAKE,
            PlanState::Planned | PlanState::Learning => GAIN,
        };
        let worth = search.unhedged() + (1.0 - gain).ln();
        let chosen = search.choose(in_force).filter(|it| it.score <= worth);
        view.state = match chosen {
            Some(_) => PlanState::Planned,
            None => PlanState::Resting,
        };
        let Outlook { plan, load, .. } = chosen
            .unwrap_or_else(|| search.rest((EXPLORED * self.load).min(MOST_EXPLORED), in_force));
        view.forecast.expected = Some(Duration::from_micros(search.time(plan, self.tail) as u64));
        view.forecast.load = Some(load);
        plan
    }
}

impl View {
    fn new() -> Self {
        Self {
            planned: None,
            state: PlanState::Learning,
            parts: Vec::with_capacity(PARTS + 2),
            forecast: Forecast::default(),
            drag: drag::Drag::default(),
            got: None,
        }
    }

    /// Begins a part of the window if it is time, and says how many calls a window has at the rate
    /// of this one.
    fn turn(&mut self, now: Duration, window: Duration, totals: Totals) -> f64 {
        let part = window / PARTS as u32;
        let is_old = |&(at, _): &(Duration, Totals)| now.saturating_sub(at) >= part;
        match self.parts.last() {
            // What there was before the first plan belongs to its window.
            None => self.parts.push((now, Totals::default())),
            Some(newest) if is_old(newest) => self.parts.push((now, totals)),
            Some(_) => {}
        }
        // The newest that is as old as the window is where it began.
        let began = self
            .parts
            .iter()
            .rposition(|&(at, _)| now.saturating_sub(at) >= window)
            .unwrap_or(0);
        self.parts.drain(..began);
        let (at, began) = self.parts[0];
        let passed = now.saturating_sub(at).as_secs_f64();
        let calls = (totals.started - began.started) as f64;
        match passed >= INTERVAL.as_secs_f64() {
            true => calls * window.as_secs_f64() / passed,
            false => calls,
        }
    }

    /// Hedges for each call since the window began; `None` without calls.
    fn load(&self, now: Duration, window: Duration, totals: Totals) -> Option<f64> {
        let within = |&&(at, _): &&(Duration, Totals)| now.saturating_sub(at) < window * 2;
        let (_, began) = self.parts.iter().find(within).copied()?;
        let started = totals.started - began.started;
        let hedges = totals.hedges - began.hedges;
        (started > 0).then(|| hedges as f64 / started as f64)
    }
}

/// A plan in one word: never 0, since a delay is a millisecond at least.
fn pack(plan: Plan) -> u64 {
    let probability = (plan.probability * ONE as f64).round() as u64;
    u64::from(plan.delay) << 32 | probability.min(ONE)
}

fn unpack(word: u64) -> Option<(Duration, u64)> {
    let delay = Duration::from_micros(word >> 32);
    (word != 0).then_some((delay, word & u64::from(u32::MAX)))
}
