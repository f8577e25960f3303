//! What the gates and holds say of a call's further attempts, and what is told of it.

use std::time::Duration;

use tonic_hedge_engine::{
    gate::{Gate, Hold, Reading, Reason, Report, Snapshot, Value},
    lane::Room,
    race::{Answer, Kind, Launch, Trigger},
};

use super::CallHost;
use crate::{circuit::Circuit, criticality::Criticality, endpoint, lane};

impl CallHost {
    fn snapshot(&self, clock: Duration) -> Snapshot {
        let hedge = match self.terms.held {
            true => self.method.hedge(),
            false => self.terms.hedge.as_ref(),
        };
        let hedge = hedge.map(|hedge| &**hedge);
        Snapshot {
            configured: hedge.is_some(),
            repeatable: self.terms.repeatable,
            breaker: self.method.circuit().map(|circuit| circuit.reading(clock)),
            suppress_at: hedge.map_or(1.0, |hedge| hedge.suppress_at),
            samples: self
                .method
                .samples(clock, self.tried.last().map(|it| &**it)),
            minimum_samples: hedge
                .filter(|hedge| hedge.is_measured() && hedge.cold_start.is_none())
                .map(|hedge| hedge.minimum_samples),
            budget: self.shared.budget().balance(clock),
            criticality: self.terms.criticality.name(),
            sheddable: self.terms.criticality == Criticality::Sheddable,
        }
    }

    /// Whether the race asks for hedges at all.
    pub(super) fn may_hedge(&self) -> bool {
        self.terms.hedge.is_some()
            && self.terms.repeatable.is_ok()
            && self.method.max_attempts() > 1
    }

    /// What the gates say of a call that can never hedge, at its start.
    pub(in crate::call) fn report_at_start(&self) {
        // The first two need no measurement, and are what nearly all such calls fail at.
        let first = match (&self.terms.hedge, self.terms.repeatable) {
            (None, _) if !self.terms.held => Some(Gate::HedgeConfigured),
            (_, Err(_)) => Some(Gate::Repeatable),
            _ => None,
        };
        if let Some(gate) = first
            && !self.telemetry.wants_gates()
        {
            return self.suppressed(Reason::Gate(gate));
        }
        let mut report = Report::of(&self.snapshot(self.started));
        if self.terms.held {
            let reading = Reading::new(false, true, false);
            report.holds.push((Hold::Inherited, reading));
        } else if first.is_none() {
            let most = u64::from(self.method.max_attempts());
            let reading = Reading::new(most > 1, 1_u64, most);
            report.holds.push((Hold::MaxAttempts, reading));
        }
        self.held(&report);
    }

    /// A hedge of this call is never due: no threshold without samples.
    pub(super) fn report_no_threshold(&self, now: Duration) {
        let measured = self.terms.hedge.as_ref().is_some_and(|it| it.is_measured());
        if measured && self.may_hedge() {
            self.held(&Report::of(&self.snapshot(self.clock(now))));
        }
    }

    /// The deadline came before the hedge was due.
    pub(super) fn report_deadline(&self, now: Duration, launch: &Launch, elapsed: Duration) {
        let launched = now.saturating_sub(elapsed);
        let (Some(threshold), Some(left)) = (self.threshold, self.time_left(launched)) else {
            return;
        };
        if launch.kind == Kind::Original && left <= threshold && self.may_hedge() {
            let mut report = Report::of(&self.snapshot(self.clock(now)));
            let reading = Reading::new(false, left, threshold);
            report.holds.push((Hold::Deadline, reading));
            self.held(&report);
        }
    }

    /// Tells what the gates said, and what kept the hedge back, if anything did.
    fn held(&self, report: &Report) {
        self.telemetry.gates(report);
        if let Some(reason) = report.reason() {
            self.suppressed(reason);
        }
    }

    /// A hedge that was granted is not launched after all.
    pub(super) fn not_launched(&self, launch: &Launch, reason: Reason) {
        if launch.kind == Kind::Hedge && launch.replaces.is_none() {
            self.suppressed(reason);
        }
    }

    fn suppressed(&self, reason: Reason) {
        self.method.stats().suppressed(reason);
        let method = self.method.name();
        tracing::debug!(method, gate = reason.name(), "hedge suppressed");
        self.telemetry.suppressed(reason, self.threshold);
    }

    pub(super) fn ask_hedge(&mut self, now: Duration, trigger: Trigger) -> Answer {
        let clock = self.clock(now);
        let mut report = Report::of(&self.snapshot(clock));
        let endpoints = self.shared.endpoints();
        let other = endpoints.has_ready(&self.tried, self.hedge_purpose());
        let observed = match endpoints.is_opaque() {
            // One channel that hides where its attempts go.
            true => Value::from("unknown"),
            false => Value::from(other),
        };
        report
            .holds
            .push((Hold::OtherEndpoint, Reading::new(other, observed, true)));
        let room = self.room();
        if let Some(room) = &room {
            let free = room.has_place();
            let reading = Reading::new(free, free, true);
            report.holds.push((Hold::Lane, reading));
        }
        if let Some(lag) = self.shared.lag() {
            let reading = lag.reading(clock);
            let holds = !lag.is_saturated(clock);
            let reading = Reading::new(holds, reading, lag.limit());
            report.holds.insert(0, (Hold::Saturation, reading));
        }
        if let Some(meter) = self.method.win_rate() {
            let allowance = meter.allowance(clock);
            // A would-be hedge is one that all else lets start: it alone moves the remainder
            // that is carried from call to call.
            let holds = match report.reason() {
                None => meter.allow(clock),
                Some(_) => meter.would_allow(clock),
            };
            let reading = Reading::new(holds, allowance, 1.0);
            report.holds.insert(0, (Hold::WinRate, reading));
        }
        // A plan is for slow calls. What a failure starts at once is the budget's.
        if trigger == Trigger::Threshold {
            // Like the win rate's: it takes its part only where all else holds.
            let takes = report.reason().is_none();
            let reading = self.plan(now, |plan| {
                let allowance = plan.allowance();
                let holds = match takes {
                    true => plan.allow(),
                    false => plan.would_allow(),
                };
                Reading::new(holds, allowance, 1.0)
            });
            self.further().allowed = takes && reading.as_ref().is_some_and(|it| it.holds);
            report.holds.extend(reading.map(|it| (Hold::Load, it)));
        }

        // Taking comes last, when all else holds.
        if report.reason().is_none() {
            self.take(now, room, &mut report);
        }
        self.telemetry.gates(&report);
        match report.reason() {
            None => Answer::Granted(Duration::ZERO),
            Some(reason) => {
                self.suppressed(reason);
                Answer::Held
            }
        }
    }

    /// The lane that a hedge of this call needs a place in: the call's own, else that of the server's
    /// request that it is made for.
    fn room(&self) -> Option<Room> {
        let own = self.prototype.extensions.get::<Room>();
        own.cloned().or_else(lane::current)
    }

    /// Takes the hedge's place in the call's lane, and its token. Since they were looked at another
    /// call may have taken the last: then the report says so, and nothing is kept.
    fn take(&mut self, now: Duration, room: Option<Room>, report: &mut Report) {
        if let Some(room) = room {
            let place = room.try_extra();
            let taken = place.is_some();
            self.further().place = place;
            if !taken {
                let lane = report.holds.iter_mut().find(|(it, _)| *it == Hold::Lane);
                if let Some((_, reading)) = lane {
                    *reading = Reading::new(false, false, true);
                }
                return self.withdraw(now);
            }
        }
        let clock = self.clock(now);
        let granted = self.shared.budget().try_withdraw(clock);
        let taken = granted.is_some();
        self.further().granted = granted;
        if !taken {
            self.withdraw(now);
            let balance = self.shared.budget().balance(clock);
            report.gates[Gate::Budget.number() as usize - 1] = Reading::new(false, balance, 1.0);
        }
    }

    pub(super) fn breaker_is_closed(&self) -> bool {
        self.method.circuit().is_none_or(Circuit::is_closed)
    }

    pub(super) fn ask_retry(&mut self, now: Duration, backoff: Option<u32>) -> Answer {
        let clock = self.clock(now);
        if !self.breaker_is_closed() {
            return Answer::Held;
        }
        let Some(loan) = self.shared.budget().try_withdraw(clock) else {
            return Answer::Held;
        };
        self.further().granted = Some(loan);
        let wait = backoff.map_or(Duration::ZERO, |step| {
            let retry = self.method.retry(self.terms.hedge.is_some());
            retry.backoff(step, endpoint::fraction())
        });
        Answer::Granted(wait)
    }
}
