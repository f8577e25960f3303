//! An attempt's launch: where it goes, what it carries, and who is told.

use std::{sync::Arc, time::Duration};

use http::{Extensions, HeaderMap, HeaderValue, Request};
use tonic::body::Body;
use tonic_hedge_engine::{
    gate::{Gate, Hold, Reason},
    plan::Planner,
    policy::Target,
    race::{Kind, Launch},
};

use super::{CallHost, hedges::Unended};
use crate::{
    call::{
        attempt::{Attempt, Held, Until},
        deadline,
        running::{Place, Waiting},
        ticket::{Teaches, Ticket},
        wire,
    },
    endpoint::{Destination, Picked, Purpose, Unavailable, Wanted},
    hooks, inherit,
    log::AttemptKind,
    method::{HedgeEnd, Shape},
    telemetry::AttemptInfo,
};

/// An original that waited this long for a connection gets the time that is left, not the
/// caller's own text: less is the cost of the call's own path.
const LATE: Duration = Duration::from_millis(1);

/// One attempt's own copies, and where its user sends it.
#[derive(Default)]
struct Targeted {
    /// As the user's hook leaves them; none without one.
    own: Option<(HeaderMap, Extensions)>,
    only: Option<Destination>,
}

/// What a launch has become.
pub(crate) enum Placed {
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
    /// Launches an attempt, which is put into its place at once: it is large, and a call with one
    /// attempt has a place for it. The [`threshold`](Self::threshold) is then the hedge's.
    pub(in crate::call) fn launch_into(
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
        let criticality = self.terms.criticality;
        let wanted = Wanted {
            purpose,
            criticality,
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
                    criticality,
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

    #[inline]
    pub(super) fn hedge_purpose(&self) -> Purpose {
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
}
