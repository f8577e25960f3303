//! The world of one race: where its attempts go, what they cost, and what is learnt of them.

mod ask;
mod further;
mod hedges;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Request};
use smallvec::SmallVec;
use tokio::time::Instant;
use tonic::{Code, Status, body::Body};
use tonic_hedge_engine::{
    gate::{Gate, Hold, Reason},
    measure::{Lag, Probe},
    plan::Planner,
    policy::{Hedge, RequestView, Target, Timing, Upcoming},
    race::{
        Answer, Ask, Asked, AttemptId, Gone, Host, Kind, Launch, Launched, Race, Trigger, Unsent,
        Verdict,
    },
};

use self::{further::Further, hedges::Unended};
use super::{
    attempt::{Attempt, Complete, Finished, Held, Reply, Until},
    body::Sending,
    classify,
    course::How,
    deadline,
    loser::{self, Disposed},
    prototype::{Prototype, Source},
    running::{Place, Ran, Running, Waiting},
    ticket::{Teaches, Ticket},
    wire,
};
use crate::{
    channel::Shared,
    criticality::Criticality,
    endpoint::{Destination, Endpoint, Picked, Purpose, Unavailable, Wanted},
    hooks::{self, AttemptResult, BoxError, Classification, Delaying, View},
    inherit,
    log::{AttemptKind, AttemptOutcome, CallLogBuilder},
    method::{HedgeEnd, Method, Shape},
    telemetry::{AttemptEnd, AttemptInfo, CallTelemetry},
};

/// An original that waited this long for a connection gets the time that is left, not the
/// caller's own text: less is the cost of the call's own path.
const LATE: Duration = Duration::from_millis(1);

/// A call's own view of what applies to it.
pub(crate) struct Terms {
    /// The hedging policy, if one applies.
    pub(crate) hedge: Option<Arc<Hedge>>,
    /// The method's own would, were the call not part of a hedge.
    pub(crate) held: bool,
    /// Whether the call may be repeated, and why, or why not.
    pub(crate) repeatable: Result<&'static str, &'static str>,
    pub(crate) criticality: Criticality,
    /// From the start of the call.
    pub(crate) deadline: Option<Duration>,
    pub(crate) until: Until,
    pub(crate) body: How,
}

/// One call's host.
pub(crate) struct CallHost {
    pub(super) shared: Arc<Shared>,
    pub(super) method: Arc<Method>,
    pub(super) terms: Terms,
    pub(super) prototype: Prototype,
    /// The call's start, on the channel's clock.
    started: Duration,
    pub(super) telemetry: CallTelemetry,
    log: CallLogBuilder,
    /// The endpoints that the call uses or has used.
    tried: SmallVec<[Arc<Endpoint>; 2]>,
    /// The half-open breaker's one call.
    pub(super) probe: Option<Box<Probe>>,
    /// When a hedge is due after the newest launch, where that is known.
    pub(super) threshold: Option<Duration>,
    further: Option<Box<Further>>,
}

/// One attempt's own copies, and where its user sends it.
#[derive(Default)]
struct Targeted {
    /// As the user's hook leaves them; none without one.
    own: Option<(HeaderMap, Extensions)>,
    only: Option<Destination>,
}

/// What a call's host leaves behind, apart from its telemetry.
pub(crate) struct Ending {
    pub(crate) log: CallLogBuilder,
    /// Not used up where the result is not judged yet.
    pub(crate) probe: Option<Probe>,
    /// The hedge whose answer became the call's, and its threshold.
    pub(crate) hedge_won: Option<(AttemptId, Option<Duration>)>,
    pub(crate) sending: Sending,
}

/// What a launch has become.
pub(super) enum Placed {
    /// An attempt on the wire.
    Sent,
    Waits(Waiting),
}

/// Why a launch found no endpoint.
pub(crate) enum Unplaced {
    /// One may become ready.
    NotYet,
    /// None will soon.
    Never(Unavailable),
}

impl CallHost {
    pub(crate) fn new(
        shared: Arc<Shared>,
        method: Arc<Method>,
        terms: Terms,
        prototype: Prototype,
        started: Duration,
        telemetry: CallTelemetry,
    ) -> Self {
        Self {
            shared,
            method,
            terms,
            prototype,
            started,
            telemetry,
            log: CallLogBuilder::default(),
            tried: SmallVec::new(),
            probe: None,
            threshold: None,
            further: None,
        }
    }

    fn further(&mut self) -> &mut Further {
        self.further.get_or_insert_default()
    }

    /// Why the original found no endpoint.
    pub(super) fn take_unplaced(&mut self) -> Option<Unplaced> {
        self.further.as_mut()?.unplaced.take()
    }

    /// Ends it: what is left to be told goes to whoever tells the call's result.
    pub(crate) fn end(&mut self) -> Ending {
        self.log.tell_losers(self.method.name());
        let read = Source::Whole(Bytes::new());
        Ending {
            log: std::mem::take(&mut self.log),
            probe: self.probe.take().map(|it| *it),
            hedge_won: self
                .further
                .as_ref()
                .and_then(|it| Some((it.winner?, self.threshold))),
            sending: match std::mem::replace(&mut self.prototype.body, read) {
                Source::Whole(bytes) => Sending::Whole(bytes.len()),
                Source::Passing(rewind) => Sending::Passing(rewind),
                Source::Unread(_) => Sending::Whole(0),
            },
        }
    }

    /// The time since the call's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.now().saturating_sub(self.started)
    }

    /// The call's start.
    pub(super) fn began(&self) -> Instant {
        self.shared.instant(self.started)
    }

    /// An attempt's launch, as the race counts: since the call's start.
    pub(super) fn launched_at(&self, held: &Held) -> Duration {
        held.ticket.launched().saturating_sub(self.started)
    }

    /// Whether a stream's first message ends the race.
    pub(crate) fn races_for_message(&self) -> bool {
        matches!(self.terms.until, Until::Message)
    }

    /// `now` of the race, on the channel's clock.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        self.started + now
    }

    fn time_left(&self, now: Duration) -> Option<Duration> {
        self.terms
            .deadline
            .map(|deadline| deadline.saturating_sub(now))
    }

    /// When a hedge is due after a launch.
    fn hedge_after(&mut self, now: Duration) -> Option<Duration> {
        if self.may_hedge() {
            self.threshold = self.due_after(now);
        }
        self.threshold
    }

    fn due_after(&self, now: Duration) -> Option<Duration> {
        let hedge = self.terms.hedge.as_ref()?;
        let endpoint = self.tried.last()?;
        let measured = self.method.measured(hedge, self.clock(now), endpoint);
        hedge.threshold(measured)
    }

    fn hedge_purpose(&self) -> Purpose {
        match self.terms.hedge.as_ref().map(|hedge| hedge.target) {
            Some(Target::OtherIfAny) => Purpose::HedgeAnywhere,
            _ => Purpose::Hedge,
        }
    }

    fn purpose(&mut self, launch: &Launch) -> Purpose {
        let waited = self.further.as_mut().and_then(|it| it.waited.take());
        match (waited, launch.replaces, launch.kind) {
            (Some(waited), ..) => waited,
            (None, Some(_), _) => Purpose::Replacement,
            (None, None, Kind::Original) => Purpose::Original,
            (None, None, Kind::Hedge) => self.hedge_purpose(),
            (None, None, Kind::Retry) => Purpose::Retry,
        }
    }

    fn pick(&mut self, now: Duration, wanted: Wanted<'_>) -> Picked {
        let endpoints = self.shared.endpoints();
        let clock = self.clock(now);
        let picked = endpoints.pick(clock, &self.tried, wanted);
        let unsent_at = self.further.as_mut().and_then(|it| it.unsent_at.take());
        match unsent_at {
            _ if matches!(picked, Picked::Endpoint(..)) => picked,
            // One may have become ready since.
            None if endpoints.has_ready(&self.tried, wanted) => {
                endpoints.pick(clock, &self.tried, wanted)
            }
            None => picked,
            // It has served no attempt of this call, and it is the only one there is.
            Some(unsent_at) => {
                self.tried.retain(|tried| !Arc::ptr_eq(tried, &unsent_at));
                endpoints.pick(clock, &self.tried, wanted)
            }
        }
    }

    /// Where the user sends the attempt, and what it carries by the user's word.
    fn target(&mut self, now: Duration, launch: &Launch, kind: AttemptKind) -> Targeted {
        let Some(targeting) = self.method.targeting() else {
            return Targeted::default();
        };
        // What no descriptor knows has a name all the same.
        let (_, name) = self.shared.methods().find(self.prototype.path());
        let attempt = hooks::Unplaced {
            number: launch.id,
            previous: launch.previous,
            kind,
            method: name,
            elapsed: now,
            last_failure: self
                .further
                .as_ref()
                .and_then(|it| it.last_failure.as_ref()),
        };
        let mut headers = self.prototype.headers();
        let mut extensions = self.prototype.extensions.clone();
        let mut only = targeting.of(&attempt, &mut headers, &mut extensions);
        // One that is being connected is waited for; where there is none, or it is down, the picker
        // does what it can.
        if let Some(gone) = only.take_if(|it| !self.shared.endpoints().may_serve(it)) {
            targeting.failed(name, &format!("{gone:?} is not there, or down"));
        }
        Targeted {
            own: Some((headers, extensions)),
            only,
        }
    }

    fn request(
        &mut self,
        now: Duration,
        launch: &Launch,
        body: Body,
        own: Option<(HeaderMap, Extensions)>,
    ) -> Request<Body> {
        let mut request = self.prototype.request(body);
        if let Some((headers, extensions)) = own {
            *request.headers_mut() = headers;
            *request.extensions_mut() = extensions;
        }
        // An original that goes out at once carries what the caller wrote.
        let late = launch.id > 0 || now >= LATE;
        if let Some(left) = self.time_left(now).filter(|_| late) {
            deadline::write(request.headers_mut(), left);
        }
        if launch.previous > 0 {
            let previous = HeaderValue::from(launch.previous);
            request
                .headers_mut()
                .insert(wire::PREVIOUS_ATTEMPTS, previous);
        }
        if launch.kind == Kind::Hedge {
            request.headers_mut().insert(inherit::HEDGE, inherit::MARK);
        }
        request
    }

    /// Records the outcome of an attempt that was `launched` then with the breaker, and tells once
    /// what it changed.
    fn record(&mut self, launched: Duration, clock: Duration, failed: bool) {
        let probe = self.probe.take().map(|it| *it);
        if let Some(circuit) = self.method.circuit() {
            circuit.record(launched, clock, probe, failed);
        }
    }

    /// An answer whose rest is judged when it has come.
    pub(super) fn judge_open(
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
    pub(super) fn judge_complete(
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
        let breaks = classify::breaks(code);
        if breaks {
            held.ticket.failed(clock);
        } else {
            held.ticket.answered(clock);
            if verdict == Verdict::Answer {
                self.learn(now, launch, held, elapsed);
            }
        }
        if code == Code::DeadlineExceeded {
            // The server's clock ran out a moment before ours.
            self.learn_cut(now, launch, held, elapsed);
        }
        self.record(clock.saturating_sub(elapsed), clock, breaks);
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
    fn learn_cut(&self, now: Duration, launch: &Launch, held: &Held, ran: Duration) {
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

    /// What was reserved for an attempt that is not launched goes back: its token, its place, and its
    /// part of the plan.
    fn withdraw(&mut self, now: Duration) {
        if let Some(further) = &mut self.further {
            further.granted = None;
            further.place = None;
        }
        self.disallow(now);
    }

    /// What the plan has allowed, and was not launched, goes back.
    fn disallow(&mut self, now: Duration) {
        if let Some(further) = &mut self.further
            && std::mem::take(&mut further.allowed)
        {
            self.plan(now, Planner::give_back);
        }
    }

    /// With the plan that times this call's hedge, if one does: that of the place where its first
    /// attempt went.
    fn plan<T>(&self, now: Duration, with: impl FnOnce(&Planner) -> T) -> Option<T> {
        let (hedge, first) = (self.terms.hedge.as_ref()?, self.tried.first()?);
        self.method.plan(hedge, self.clock(now), first, with)
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

    /// Launches an attempt, which is put into its place at once: it is large, and a call with one
    /// attempt has a place for it. The [`threshold`](Self::threshold) is then the hedge's.
    pub(super) fn launch_into(
        &mut self,
        now: Duration,
        launch: Launch,
        sent: &mut Option<Attempt>,
    ) -> Option<Placed> {
        let purpose = self.purpose(&launch);
        // Given back where nothing is sent.
        let loan = match (launch.kind, launch.replaces) {
            (Kind::Original, _) => None,
            (_, None) => self.further().granted.take(),
            (_, Some(_)) => self.further().unsent.pop(),
        };
        let place = match (launch.kind, launch.replaces) {
            (Kind::Hedge, None) => self.further().place.take(),
            // The original failed while the hedge was still being granted.
            (Kind::Retry, None) => {
                self.withdraw(now);
                None
            }
            // One that replaces a hedge has its place.
            _ => None,
        };
        // What held when it was asked for may hold no more: a backoff or an observer is over.
        let further = launch.kind != Kind::Original && launch.replaces.is_none();
        if further && !self.breaker_is_closed() {
            self.not_launched(&launch, Reason::Gate(Gate::BreakerClosed));
            return None;
        }
        let kind = match purpose {
            Purpose::Original => AttemptKind::Original,
            Purpose::Hedge | Purpose::HedgeAnywhere => AttemptKind::Hedge,
            Purpose::Retry => AttemptKind::Retry,
            Purpose::Replacement => AttemptKind::Replacement,
        };
        let targeted = self.target(now, &launch, kind);
        let wanted = Wanted {
            purpose,
            only: targeted.only.as_ref(),
        };
        let (endpoint, line) = match self.pick(now, wanted) {
            Picked::Endpoint(endpoint, line) => (endpoint, line),
            // The original waits in the call, which has nothing under way.
            _ if launch.kind != Kind::Hedge
                && purpose != Purpose::Original
                && self
                    .shared
                    .endpoints()
                    .is_worth_waiting(&self.tried, wanted) =>
            {
                let shared = Arc::clone(&self.shared);
                self.further().waits = true;
                let only = targeted.only;
                let place = Place {
                    purpose,
                    only,
                    loan,
                };
                let waiting = Waiting::new(shared, self.tried.clone(), place);
                return Some(Placed::Waits(waiting));
            }
            Picked::Wait => {
                self.unplaced(&launch, Unplaced::NotYet);
                return None;
            }
            Picked::None(why) => {
                self.unplaced(&launch, Unplaced::Never(why));
                return None;
            }
        };
        let body = self.prototype.body.next()?;
        if let Some(loan) = loan {
            loan.spend();
        }
        let mut request = self.request(now, &launch, body, targeted.own);
        let info = AttemptInfo {
            number: launch.id,
            previous: launch.previous,
            kind,
            address: endpoint.server_address(),
            port: endpoint.server_port(),
            endpoint: endpoint.name(),
        };
        let clock = self.clock(now);
        let told = self
            .telemetry
            .start_attempt(info, request.headers_mut(), clock);
        let hedge = launch.kind == Kind::Hedge;
        self.log
            .launched(launch.id, kind, hedge, Arc::clone(endpoint.name()), now);
        self.method.stats().launched(kind);
        if kind == AttemptKind::Hedge {
            let further = self.further.get_or_insert_default();
            further.allowed = false;
            self.telemetry.started(further.outran, launch.id);
            let hedges = || Unended::new(Arc::clone(&self.method));
            further.hedges.get_or_insert_with(hedges).started(place);
            if let Some(meter) = self.method.win_rate() {
                meter.started(clock);
            }
        }
        let teaches = self.teaches();
        let ticket = Ticket::new(
            Arc::clone(&self.shared),
            Arc::clone(&endpoint),
            clock,
            teaches,
        );
        self.tried.push(endpoint);
        if let Some(further) = &mut self.further {
            further.waits = false;
        }
        if kind == AttemptKind::Original {
            self.plan(now, Planner::started);
        }
        let held = Held {
            ticket,
            telemetry: told,
        };
        let left = self.time_left(now);
        let hedge_after = self.hedge_after(now);
        if kind == AttemptKind::Original && hedge_after.is_none() {
            self.report_no_threshold(now);
        }
        *sent = Some(Attempt::new(line, request, held, self.terms.until, left));
        Some(Placed::Sent)
    }

    /// What an attempt's time says of its endpoint.
    fn teaches(&self) -> Teaches {
        match (self.terms.until, self.method.shape()) {
            (_, Shape::Unary) => Teaches::Answer,
            (Until::Message, _) => Teaches::Message,
            (Until::Head | Until::Trailers, _) => Teaches::Head,
        }
    }

    /// A launch found no endpoint. A hedge that was to be replaced is over, and its place is free, though
    /// its call goes on.
    fn unplaced(&mut self, launch: &Launch, why: Unplaced) {
        self.not_launched(launch, Reason::Hold(Hold::OtherEndpoint));
        if launch.replaces.is_some() {
            self.hedge_ended(launch, HedgeEnd::Failed);
        }
        self.further().unplaced = Some(why);
    }

    /// The end of an attempt that stays one: a hedge, or what has replaced it.
    fn hedge_ended(&mut self, launch: &Launch, end: HedgeEnd) {
        if launch.kind == Kind::Hedge
            && let Some(further) = &mut self.further
            && let Some(hedges) = &mut further.hedges
        {
            hedges.ended(end);
        }
    }
}

impl Drop for CallHost {
    /// The call may have ended while the hedge still waited for its observer.
    fn drop(&mut self) {
        self.disallow(Duration::ZERO);
    }
}

impl Host for CallHost {
    type Attempt = Running;
    type Reply = Ran;
    type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;
    type Delay = Delaying;
    type Error = BoxError;

    fn launch(&mut self, now: Duration, launch: Launch) -> Option<Launched<Running>> {
        let mut sent = None;
        let (attempt, hedge_after) = match self.launch_into(now, launch, &mut sent)? {
            Placed::Sent => (Running::Sent(sent?), self.threshold),
            Placed::Waits(waiting) => (Running::Waiting(waiting), None),
        };
        Some(Launched {
            attempt,
            hedge_after,
        })
    }

    fn delay(&mut self, now: Duration, launch: &Launch) -> Option<Delaying> {
        // The delay counts from when it is sent.
        if self.further.as_ref().is_some_and(|it| it.waits) {
            return None;
        }
        let Timing::With(delay) = &self.terms.hedge.as_ref()?.timing else {
            return None;
        };
        let further = self.further.get_or_insert_default();
        let view = further.view.get_or_insert_with(|| {
            Arc::new(View {
                method: self.method.name().into(),
                headers: self.prototype.headers(),
            })
        });
        let request = Arc::clone(view) as Arc<dyn RequestView>;
        let upcoming = Upcoming::new(launch.previous + 1, now, request);
        Some(Delaying::of(delay, upcoming))
    }

    fn delayed(&mut self, delay: Duration) {
        self.threshold = Some(delay);
    }

    fn withdraw(&mut self, now: Duration) {
        Self::withdraw(self, now);
    }

    fn ask(&mut self, now: Duration, ask: Ask) -> Asked<Self::Wait> {
        self.withdraw(now);
        let answer = match ask {
            Ask::Hedge(trigger) => self.ask_hedge(now, trigger),
            Ask::Retry { backoff } => self.ask_retry(now, backoff),
        };
        let outran = match ask {
            Ask::Hedge(Trigger::Threshold) => self.threshold,
            _ => None,
        };
        self.further().outran = outran;
        let observing = match (ask, answer) {
            (Ask::Hedge(_), Answer::Granted(_)) => {
                self.telemetry.before_hedge(self.log.count(), outran, now)
            }
            _ => None,
        };
        observing.map_or(Asked::Now(answer), Asked::After)
    }

    fn judge(&mut self, now: Duration, launch: &Launch, ran: &mut Ran, race: &Race) -> Verdict {
        let Finished { reply, held } = match ran {
            Ran::Finished(finished) => finished,
            Ran::Place(place) => {
                // Of one that is not replaced it goes back.
                let loan = place.loan.take();
                if race.would_replace(now, Unsent::NeverSent) {
                    self.further().unsent.extend(loan);
                }
                self.further().waited = Some(place.purpose);
                return Verdict::Unsent(Unsent::NeverSent);
            }
        };
        match reply {
            Reply::Open(response) => {
                let enough = response.body().enough;
                self.judge_open(now, launch, held, enough);
                Verdict::Answer
            }
            Reply::Complete(complete) => self.judge_complete(now, launch, held, complete),
            Reply::Fault(fault) => {
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
        }
    }

    fn discard(&mut self, now: Duration, launch: Launch, running: Running, why: Gone) {
        let Running::Sent(attempt) = running else {
            return;
        };
        let (rest, held) = attempt.into_rest();
        let Some(mut held) = held else { return };
        let left = self.time_left(now);
        let clock = self.clock(now);
        let elapsed = held.ticket.elapsed(clock);
        // An original that was cut off takes at least this long. Of one whose caller left before
        // the threshold that says nothing about the quantile.
        // A call that is never hedged has not asked for it before.
        let threshold = match self.may_hedge() {
            true => self.threshold,
            false => self.due_after(now),
        };
        let past = threshold.is_some_and(|threshold| elapsed >= threshold);
        if why != Gone::CallerGone || past {
            self.learn_cut(now, &launch, &held, elapsed);
        }
        if why == Gone::Deadline {
            held.telemetry.end(AttemptEnd::Expired, clock);
            // One failure for the call, however many attempts it has: hedging must not trip
            // the breaker sooner.
            if !std::mem::replace(&mut self.further().timed_out, true) {
                self.record(clock.saturating_sub(elapsed), clock, true);
            }
            self.report_deadline(now, &launch, elapsed);
        }
        let end = match why {
            Gone::Lost => HedgeEnd::Lost,
            Gone::Deadline | Gone::CallerGone => HedgeEnd::Abandoned,
        };
        self.hedge_ended(&launch, end);
        let disposed = loser::dispose(rest, held, self.prototype.body.upload(), left);
        let outcome = match disposed {
            Disposed::Reset => AttemptOutcome::Discarded,
            Disposed::Detached => AttemptOutcome::Detached,
        };
        self.log.ended(launch.id, outcome, now);
        if self.further.as_ref().is_some_and(|it| it.hedges.is_some()) {
            self.telemetry.discarded(self.threshold, launch.id);
        }
    }
}
