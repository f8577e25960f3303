//! What an attempt's end tells: the race, the breaker, the estimate, the endpoint, the log.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tonic::{Code, Status};
use tonic_hedge_engine::{
    measure::Lag,
    race::{Kind, Launch, Race, Verdict},
};

use super::CallHost;
use crate::{
    call::{
        attempt::{Complete, Held, Until},
        classify::{self, Health},
        fault::Fault,
        wire,
    },
    hooks::{AttemptResult, Classification},
    log::AttemptOutcome,
    method::HedgeEnd,
    telemetry::AttemptEnd,
};

impl CallHost {
    /// Records the outcome of an attempt that was `launched` then with the breaker, and tells once
    /// what it changed.
    #[inline]
    pub(super) fn record(&mut self, launched: Duration, clock: Duration, failed: bool) {
        let probe = self.probe.take().map(|it| *it);
        if let Some(circuit) = self.method.circuit() {
            circuit.record(launched, clock, probe, failed);
        }
    }

    /// An answer whose rest is judged when it has come.
    pub(in crate::call) fn judge_open(
        &mut self,
        now: Duration,
        launch: &Launch,
        held: &mut Held,
        enough: bool,
    ) {
        let clock = self.clock(now);
        let elapsed = held.ticket.elapsed(clock);
        held.ticket.began(clock);
        match (self.terms.until, enough) {
            (Until::Head, _) => {}
            (_, true) => self.learn(now, launch, held, elapsed),
            // It is longer than the buffer, and takes at least as long as that took.
            (_, false) => self.learn_cut(now, launch, held, elapsed),
        }
        self.answered_by(launch);
        self.log
            .ended(launch.id, AttemptOutcome::Won(Code::Ok), now);
        self.hedge_ended(launch, HedgeEnd::Won);
    }

    /// A whole response.
    pub(in crate::call) fn judge_complete(
        &mut self,
        now: Duration,
        launch: &Launch,
        held: &mut Held,
        complete: &Complete,
    ) -> Verdict {
        let code = complete.code;
        let verdict = self.judge_status(now, launch, held, complete);
        if verdict != Verdict::Answer {
            let headers = || complete.status_headers().clone();
            self.failed(|| wire::status(code, headers(), None));
        }
        self.ended(now, launch, held, code, verdict == Verdict::Answer);
        let end = match (code, verdict) {
            (Code::Ok, Verdict::Answer) => HedgeEnd::Won,
            _ => HedgeEnd::Failed,
        };
        self.hedge_ended(launch, end);
        verdict
    }

    /// A server's status: the endpoint answered.
    fn judge_status(
        &mut self,
        now: Duration,
        launch: &Launch,
        held: &mut Held,
        complete: &Complete,
    ) -> Verdict {
        let clock = self.clock(now);
        let elapsed = held.ticket.elapsed(clock);
        let code = complete.code;
        let verdict = self.classify(complete);
        let health = classify::health(code, complete.status_headers());
        match health {
            Health::Fails => held.ticket.failed(clock),
            Health::Sheds => self.shed(clock, held, complete.status_headers()),
            Health::Works => {
                held.ticket.answered(clock);
                if verdict == Verdict::Answer {
                    self.learn(now, launch, held, elapsed);
                }
            }
        }
        if code == Code::DeadlineExceeded {
            // The server's clock ran out a moment before ours.
            self.learn_cut(now, launch, held, elapsed);
        }
        if health != Health::Sheds {
            let launched = clock.saturating_sub(elapsed);
            self.record(launched, clock, health == Health::Fails);
        }
        verdict
    }

    /// The call has not reached its handler: that says nothing of how that fares, nor how fast it is.
    fn shed(&mut self, clock: Duration, held: &mut Held, status: &HeaderMap) {
        held.ticket.released();
        // Given back without an outcome, the probe is the next call's.
        self.probe = None;
        // Else an endpoint that is idle since it sheds all would look like the best.
        if let Some(delay) = wire::come_again(status, || wire::retry_info(status)) {
            let endpoint = held.ticket.endpoint();
            endpoint.shed(clock, self.terms.criticality, delay);
        }
    }

    /// A result without a status of the server's.
    pub(super) fn judge_fault(
        &mut self,
        now: Duration,
        launch: &Launch,
        held: &mut Held,
        fault: &Fault,
        race: &Race,
    ) -> Verdict {
        let code = fault.status.code();
        self.failed(|| fault.status.clone());
        let endpoint = held.ticket.endpoint();
        if fault.unreachable {
            let endpoints = self.shared.endpoints();
            endpoints.report_unreachable(endpoint, fault.status.message());
        }
        // One that is not replaced has failed like any other, and counts as that: else a
        // server that refuses all would be retried for nothing and for ever.
        if let Some(unsent) = fault.unsent
            && self.prototype.body.can_repeat()
            && race.would_replace(now, unsent)
        {
            // Nothing was sent: its token goes back if it is not replaced.
            if launch.kind != Kind::Original {
                let loan = self.shared.budget().loan();
                self.further().unsent.push(loan);
            }
            if !fault.unreachable {
                let endpoint = Arc::clone(endpoint);
                self.further().unsent_at = Some(endpoint);
            }
            held.ticket.released();
            self.ended(now, launch, held, code, false);
            return Verdict::Unsent(unsent);
        }
        let verdict = match fault.gateway {
            // Judged like a server's status: a 404 would only be repeated.
            true => classify::status(code, &HeaderMap::new(), self.method.retryable()),
            false => classify::fault(code, self.method.retryable()),
        };
        self.ended(now, launch, held, code, verdict == Verdict::Answer);
        // Without a status the code is tonic's guess: a reset under CANCELLED is as much
        // of a failure as any.
        let failed = !fault.gateway || classify::breaks(code);
        let clock = self.clock(now);
        let launched = clock.saturating_sub(held.ticket.elapsed(clock));
        if failed {
            held.ticket.failed(clock);
        } else {
            held.ticket.answered(clock);
        }
        // A connection's end is one failure, not as many as it had streams. A probe has
        // its outcome in any case.
        if !fault.lost || held.ticket.is_news(clock) || self.probe.is_some() {
            self.record(launched, clock, failed);
        }
        self.hedge_ended(launch, HedgeEnd::Failed);
        tracing::debug!(
            method = self.method.name(),
            endpoint = %held.ticket.endpoint().name(),
            status = %fault.status,
            "no status from the server"
        );
        verdict
    }

    fn classify(&self, complete: &Complete) -> Verdict {
        let Complete {
            head,
            data,
            trailers,
            code,
        } = complete;
        let status = complete.status_headers();
        let said = match self.method.classifier() {
            Some(classifier) => classifier.of(&AttemptResult {
                method: self.method.name(),
                code: *code,
                headers: &head.headers,
                trailers: trailers.as_ref(),
                data,
            }),
            None => Classification::Default,
        };
        match said {
            Classification::Answer => Verdict::Answer,
            Classification::Failure => classify::failure(*code, status),
            _ => classify::status(*code, status, self.method.retryable()),
        }
    }

    /// The estimate learns from originals only: of a hedge only the fast outcomes are seen. A plan
    /// asks what hedges take, and knows that.
    fn learn(&self, now: Duration, launch: &Launch, held: &Held, latency: Duration) {
        let (clock, endpoint) = (self.clock(now), held.ticket.endpoint());
        match launch.kind {
            _ if !self.may_learn(now) => return,
            Kind::Original => self.method.learn(clock, endpoint, latency),
            Kind::Hedge => {
                self.plan(now, |plan| plan.hedge_ended(latency));
            }
            Kind::Retry => {}
        }
        // It is the call's answer, whichever attempt gave it.
        self.plan(now, |plan| plan.call_ended(clock, now));
    }

    /// Its latency is at least `ran`.
    pub(super) fn learn_cut(&self, now: Duration, launch: &Launch, held: &Held, ran: Duration) {
        let (clock, endpoint) = (self.clock(now), held.ticket.endpoint());
        match launch.kind {
            _ if !self.may_learn(now) => {}
            Kind::Original => self.method.learn_cut(clock, endpoint, ran),
            Kind::Hedge => {
                self.plan(now, |plan| plan.hedge_cut(ran));
            }
            Kind::Retry => {}
        }
    }

    /// The latest failure, for hooks that want to know.
    fn failed(&mut self, status: impl FnOnce() -> Status) {
        if self.method.targeting().is_some() {
            self.further().last_failure = Some(status());
        }
    }

    fn may_learn(&self, now: Duration) -> bool {
        // What this process adds to a latency is not the dependency's.
        let saturated = |lag: &Lag| lag.is_saturated(self.clock(now));
        !self.shared.lag().is_some_and(saturated)
    }

    fn ended(&mut self, now: Duration, launch: &Launch, held: &mut Held, code: Code, won: bool) {
        let (end, outcome) = match won {
            true => (AttemptEnd::Won(code), AttemptOutcome::Won(code)),
            false => (AttemptEnd::Failed(code), AttemptOutcome::Failed(code)),
        };
        held.telemetry.end(end, self.clock(now));
        self.log.ended(launch.id, outcome, now);
        if won {
            self.answered_by(launch);
        }
    }

    /// This launch's answer ends the race.
    fn answered_by(&mut self, launch: &Launch) {
        if launch.kind == Kind::Hedge {
            self.further().winner = Some(launch.id);
        }
    }

    /// The end of an attempt that stays one: a hedge, or what has replaced it.
    #[inline]
    pub(super) fn hedge_ended(&mut self, launch: &Launch, end: HedgeEnd) {
        if launch.kind == Kind::Hedge
            && let Some(further) = &mut self.further
            && let Some(hedges) = &mut further.hedges
        {
            hedges.ended(end);
        }
    }
}
