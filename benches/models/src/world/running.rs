//! A world while it runs: what is due next, and what comes of it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use tonic_hedge_engine::{
    plan::PlanReading,
    race::{End, Event, Kind, Launch, Race, Rules, Step, Verdict},
};

use super::{
    World,
    fleet::{Coming, Fleet, Flight},
    hedging::Hedging,
};
use crate::{
    draws::{Draws, Purpose},
    history::{Fate, History, Sample},
    latency::exponential,
};

pub(super) struct Running {
    world: World,
    rules: Rules,
    draws: Draws,
    fleet: Fleet,
    hedging: Hedging,
    agenda: Agenda,
    calls: HashMap<usize, Call>,
    fates: Vec<Option<Fate>>,
    samples: Vec<Sample>,
    granted: usize,
    plans: Vec<(Duration, PlanReading)>,
}

/// How often a channel's background looks at the plan.
const REPLAN: Duration = Duration::from_millis(250);

struct Call {
    race: Race,
    arrived: Duration,
    flights: Vec<Flight>,
    /// The replicas that its attempts went to.
    tried: Vec<usize>,
    launches: Vec<Kind>,
    wait: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival { call: usize },
    Attempt { call: usize, id: u32 },
    Served { replica: usize },
    Timer { call: usize },
    Replan,
}

/// What is due, with a number, so that what is due at once happens in the order of its scheduling.
#[derive(Default)]
struct Agenda {
    due: BinaryHeap<Reverse<(Duration, usize, Due)>>,
    sequence: usize,
}

impl Agenda {
    fn add(&mut self, at: Duration, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    fn coming(&mut self, at: Duration, coming: Coming) {
        let due = match coming {
            Coming::End { call, id } => Due::Attempt { call, id },
            Coming::Served { replica } => Due::Served { replica },
        };
        self.add(at, due);
    }
}

impl Running {
    pub(super) fn new(world: World) -> Self {
        let draws = Draws::new(world.seed);
        Self {
            rules: world.rules(),
            draws,
            fleet: Fleet::new(world.model.clone(), draws),
            hedging: Hedging::new(&world),
            agenda: Agenda::default(),
            calls: HashMap::new(),
            fates: vec![None; world.calls],
            samples: Vec::new(),
            granted: 0,
            plans: Vec::new(),
            world,
        }
    }

    pub(super) fn run(mut self) -> History {
        self.arrival(Duration::ZERO, 0);
        self.agenda.add(REPLAN, Due::Replan);
        while let Some(Reverse((clock, _, due))) = self.agenda.due.pop() {
            match due {
                Due::Arrival { call } => self.arrive(clock, call),
                Due::Timer { call } => {
                    if self.calls.contains_key(&call) {
                        self.tell(clock, call, Event::Tick);
                    }
                }
                Due::Attempt { call, id } => self.finish(clock, call, id),
                Due::Replan => self.replan(clock),
                Due::Served { replica } => {
                    let agenda = &mut self.agenda;
                    let schedule = |at, coming| agenda.coming(at, coming);
                    self.fleet.served(clock, replica, schedule);
                }
            }
        }
        History {
            // Nothing is due any more: every call has its end.
            fates: self.fates.into_iter().flatten().collect(),
            samples: self.samples,
            granted: self.granted,
            plans: self.plans,
            warm_up: self.world.warm_up,
            limit: self.world.limit,
        }
    }

    /// Schedules the call, if there are so many, after the one before it.
    fn arrival(&mut self, before: Duration, call: usize) {
        if call < self.world.calls {
            let draws = &mut self.draws.of(Purpose::Arrival, call as u64, 0);
            let gap = exponential(draws) / self.world.rate;
            let at = before + Duration::from_secs_f64(gap);
            self.agenda.add(at, Due::Arrival { call });
        }
    }

    fn arrive(&mut self, clock: Duration, call: usize) {
        self.arrival(clock, call + 1);
        self.hedging.arrived(clock);
        let new = Call {
            race: Race::new(self.rules.clone()),
            arrived: clock,
            flights: Vec::new(),
            tried: Vec::new(),
            launches: Vec::new(),
            wait: None,
        };
        self.calls.insert(call, new);
        self.tell(clock, call, Event::Start);
    }

    /// As long as anything is due, and there is something to plan.
    fn replan(&mut self, clock: Duration) {
        let Some(reading) = self.hedging.replan(clock) else {
            return;
        };
        let is_new = |(_, last): &(Duration, PlanReading)| *last != reading;
        if self.plans.last().is_none_or(is_new) {
            self.plans.push((clock, reading));
        }
        if !self.agenda.due.is_empty() {
            self.agenda.add(clock + REPLAN, Due::Replan);
        }
    }

    fn finish(&mut self, clock: Duration, call: usize, id: u32) {
        let Some(state) = self.calls.get_mut(&call) else {
            return; // It was discarded.
        };
        let Some(at) = state.flights.iter().position(|it| it.launch.id == id) else {
            return;
        };
        let flight = state.flights.remove(at);
        self.fleet.ended(clock, &flight);
        let Flight {
            launch, verdict, ..
        } = flight;
        if verdict == Verdict::Answer {
            self.learn(clock, call, &flight, false);
            self.hedging.answered(clock, launch.kind);
        }
        self.tell(clock, call, Event::Finished { launch, verdict });
    }

    fn learn(&mut self, clock: Duration, call: usize, flight: &Flight, cut: bool) {
        let ran = clock - flight.began;
        if flight.launch.kind == Kind::Hedge {
            self.hedging.hedge_ended(ran, cut);
        }
        if flight.launch.kind != Kind::Original {
            return;
        }
        match cut {
            false => self.hedging.learn(clock, ran),
            true => self.hedging.learn_cut(clock, ran),
        }
        self.samples.push(Sample { call, ran, cut });
    }

    /// Tells a call's race what happened, and does what it says until it waits or ends.
    fn tell(&mut self, clock: Duration, id: usize, event: Event) {
        let Some(mut call) = self.calls.remove(&id) else {
            return;
        };
        let now = clock - call.arrived;
        let mut step = call.race.on(now, event);
        loop {
            let event = match step {
                Step::Launch(launch) => self.launch(clock, id, &mut call, launch),
                Step::Ask(ask) => {
                    let other = self.fleet.has_other(&call.tried);
                    let attempt = call.launches.len() as u32;
                    let fraction = self.draws.of(Purpose::Backoff, id as u64, attempt).f64();
                    match self.hedging.ask(clock, ask, other, fraction) {
                        Some(wait) => {
                            self.granted += 1;
                            Event::Granted { wait }
                        }
                        None => Event::Held,
                    }
                }
                Step::Wait { until } => {
                    if let Some(until) = until.filter(|_| until != call.wait) {
                        let due = Due::Timer { call: id };
                        self.agenda.add(call.arrived + until, due);
                    }
                    call.wait = until;
                    self.calls.insert(id, call);
                    return;
                }
                Step::End(end) => {
                    if let End::Answer(_) = end {
                        self.hedging.call_ended(clock, now);
                    }
                    for flight in &call.flights {
                        self.fleet.discard(clock, flight);
                        self.learn(clock, id, flight, true);
                    }
                    self.fates[id] = Some(Fate {
                        arrived: call.arrived,
                        took: now,
                        launches: call.launches,
                        end,
                    });
                    return;
                }
            };
            step = call.race.on(now, event);
        }
    }

    fn launch(&mut self, clock: Duration, id: usize, call: &mut Call, launch: Launch) -> Event {
        let agenda = &mut self.agenda;
        let schedule = |at, coming| agenda.coming(at, coming);
        let launched = self.fleet.launch(clock, id, launch, &call.tried, schedule);
        let Some(flight) = launched else {
            return Event::Unplaced;
        };
        call.tried.push(flight.replica);
        call.flights.push(flight);
        call.launches.push(launch.kind);
        Event::Launched {
            hedge_after: self.hedging.launched(clock, launch.kind),
        }
    }
}
