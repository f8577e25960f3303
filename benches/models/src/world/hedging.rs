//! When a further attempt is due, and whether it may start: what a channel's method keeps.

use std::time::Duration;

use tonic_hedge_engine::{
    measure::{Budget, LatencyEstimator, Ring, WinRateMeter},
    plan::{PlanReading, Planner},
    policy::{Hedge, PolicyError, Retry},
    race::{Ask, Kind, Trigger},
};

use super::World;

/// The policy of a world, and all that it is decided by.
pub(super) struct Hedging {
    hedge: Option<Hedge>,
    ring: Ring,
    planner: Option<Planner>,
    budget: Option<Budget>,
    win_rate: Option<WinRateMeter>,
    retry: Retry,
}

impl Hedging {
    /// # Panics
    /// A policy is not valid.
    pub(super) fn new(world: &World) -> Self {
        let hedge = world.hedge.clone();
        if let Some(hedge) = &hedge {
            valid(hedge.validate());
        }
        // Without one it is not asked.
        let recorded = hedge.clone().unwrap_or_else(Hedge::on_failure);
        Self {
            ring: Ring::new(
                // Where none is asked for, it is one for reports.
                recorded.quantile().unwrap_or(0.95),
                recorded.window,
                recorded.minimum_samples,
            ),
            planner: Planner::new(&recorded),
            budget: world.budget.as_ref().map(|it| valid(Budget::new(it))),
            win_rate: recorded
                .win_rate
                .map(|policy| valid(WinRateMeter::new(&policy))),
            retry: Retry::default(),
            hedge,
        }
    }

    /// A call came.
    pub(super) fn arrived(&self, clock: Duration) {
        if let Some(budget) = &self.budget {
            budget.deposit(clock);
        }
    }

    /// An attempt was launched. A hedge is due the returned time later.
    pub(super) fn launched(&self, clock: Duration, kind: Kind) -> Option<Duration> {
        if kind == Kind::Hedge
            && let Some(meter) = &self.win_rate
        {
            meter.started(clock);
        }
        if kind == Kind::Original
            && let Some(planner) = &self.planner
        {
            planner.started();
        }
        let planned = self.planner.as_ref().and_then(Planner::delay);
        let measured = planned.or_else(|| self.ring.threshold(clock));
        self.hedge.as_ref()?.threshold(measured)
    }

    /// Whether a further attempt may start, and after what wait. `other` says whether a replica
    /// is left that the call has not been to; `fraction` is drawn from `[0, 1)`.
    pub(super) fn ask(
        &self,
        clock: Duration,
        ask: Ask,
        other: bool,
        fraction: f64,
    ) -> Option<Duration> {
        if let Ask::Hedge(trigger) = ask
            && !self.hedge_may_start(clock, trigger, other)
        {
            return None;
        }
        let funded = |budget: &Budget| budget.try_withdraw(clock);
        self.budget.as_ref().is_none_or(funded).then(|| match ask {
            Ask::Retry {
                backoff: Some(step),
            } => self.retry.backoff(step, fraction),
            _ => Duration::ZERO,
        })
    }

    /// The gates that a simulation knows, and the holds in a channel's order.
    fn hedge_may_start(&self, clock: Duration, trigger: Trigger, other: bool) -> bool {
        let Some(hedge) = &self.hedge else {
            return false;
        };
        let sampled = !hedge.is_measured()
            || hedge.cold_start.is_some()
            || self.ring.samples(clock) >= hedge.minimum_samples;
        let funded = |budget: &Budget| budget.balance(clock) >= 1.0;
        // What carries a remainder from call to call is asked last.
        sampled
            && other
            && self.budget.as_ref().is_none_or(funded)
            && self.win_rate.as_ref().is_none_or(|it| it.allow(clock))
            && self.planned_may_start(trigger)
    }

    /// A plan is for slow calls: what a failure starts is none of its.
    fn planned_may_start(&self, trigger: Trigger) -> bool {
        trigger == Trigger::Failure || self.planner.as_ref().is_none_or(Planner::allow)
    }

    /// What a channel's background does each 250 ms. Returns what the planner says, if there is one.
    pub(super) fn replan(&self, clock: Duration) -> Option<PlanReading> {
        let planner = self.planner.as_ref()?;
        planner.replan(clock, &self.ring);
        Some(planner.reading(clock))
    }

    /// A hedge was answered, or discarded, after that time.
    pub(super) fn hedge_ended(&self, ran: Duration, cut: bool) {
        if let Some(planner) = &self.planner {
            match cut {
                false => planner.hedge_ended(ran),
                true => planner.hedge_cut(ran),
            }
        }
    }

    /// An original answered after that time.
    pub(super) fn learn(&self, clock: Duration, took: Duration) {
        self.ring.record(clock, took);
    }

    /// An original was cut off after that time.
    pub(super) fn learn_cut(&self, clock: Duration, ran: Duration) {
        self.ring.record_cut(clock, ran);
    }

    /// A call was answered, that long after it came.
    pub(super) fn call_ended(&self, clock: Duration, took: Duration) {
        if let Some(planner) = &self.planner {
            planner.call_ended(clock, took);
        }
    }

    /// A call was answered, by an attempt of that kind.
    pub(super) fn answered(&self, clock: Duration, kind: Kind) {
        if kind == Kind::Hedge
            && let Some(meter) = &self.win_rate
        {
            meter.won(clock);
        }
    }
}

fn valid<T>(policy: Result<T, PolicyError>) -> T {
    match policy {
        Ok(valid) => valid,
        Err(wrong) => panic!("{wrong}"),
    }
}
