//! Many calls at once under virtual time: the real race, window and budget, on a simulated
//! network.
//!
//! Calls arrive by a Poisson process. The world does what the driver and the channel do in a
//! process: it launches, asks the budget, judges, and records originals only, at the time they
//! had run where another attempt won.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use fastrand::Rng;
use tonic_hedge_engine::{
    measure::{Budget, LatencyEstimator, Ring},
    policy::{Hedge, Retry, Timing},
    race::{Ask, End, Event, Kind, Launch, Race, Rules, Step, Verdict},
};

/// What a launched attempt will do: it takes so long, and ends like that.
pub(crate) type Replica = Box<dyn Fn(&mut Rng, Duration) -> (Duration, Verdict)>;

/// A world before its first call.
pub(crate) struct World {
    /// What times the hedges.
    pub(crate) hedge: Hedge,
    /// What each call may do.
    pub(crate) rules: Rules,
    /// What pays for further attempts; `None` is no limit.
    pub(crate) budget: Option<Budget>,
    /// What each attempt meets.
    pub(crate) replica: Replica,
    /// Arrivals in a second, on average.
    pub(crate) rate: f64,
    /// Calls in all.
    pub(crate) calls: usize,
    /// Of all that is drawn.
    pub(crate) seed: u64,
}

/// What became of one call.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// When it came.
    pub(crate) arrived: Duration,
    /// How long it took.
    pub(crate) took: Duration,
    /// The kinds of its launches, in their order.
    pub(crate) launches: Vec<Kind>,
    /// How it ended.
    pub(crate) end: End,
}

/// What became of a world.
pub(crate) struct History {
    /// All calls, in the order of their arrival.
    pub(crate) fates: Vec<Fate>,
    /// All that was recorded, in the order of its end.
    pub(crate) samples: Vec<Sample>,
    /// Tokens that the budget granted.
    pub(crate) granted: usize,
}

/// What the window was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The call.
    pub(crate) call: usize,
    /// How long its original had run.
    pub(crate) ran: Duration,
    /// Whether it was cut off then.
    pub(crate) cut: bool,
}

struct Call {
    race: Race,
    arrived: Duration,
    running: Vec<(Launch, Duration)>,
    launches: Vec<Kind>,
    wait: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival,
    Attempt { call: usize, id: u32 },
    Timer { call: usize },
}

impl World {
    /// Lets everything happen.
    pub(crate) fn run(self) -> History {
        let quantile = match self.hedge.timing {
            Timing::Quantile(quantile) => quantile,
            _ => 0.95,
        };
        Running {
            ring: Ring::new(quantile, self.hedge.window, self.hedge.minimum_samples),
            rng: Rng::with_seed(self.seed),
            due: BinaryHeap::new(),
            sequence: 0,
            calls: HashMap::new(),
            verdicts: HashMap::new(),
            fates: vec![None; self.calls],
            samples: Vec::new(),
            granted: 0,
            retry: Retry::default(),
            world: self,
        }
        .run()
    }
}

struct Running {
    world: World,
    ring: Ring,
    rng: Rng,
    retry: Retry,
    /// With a number, so that what is due at once happens in the order of its scheduling.
    due: BinaryHeap<Reverse<(Duration, usize, Due)>>,
    sequence: usize,
    calls: HashMap<usize, Call>,
    verdicts: HashMap<(usize, u32), Verdict>,
    fates: Vec<Option<Fate>>,
    samples: Vec<Sample>,
    granted: usize,
}

impl Running {
    fn run(mut self) -> History {
        let mut arrivals = 0;
        self.schedule(Duration::ZERO, Due::Arrival);
        while let Some(Reverse((clock, _, due))) = self.due.pop() {
            match due {
                Due::Arrival => {
                    let call = arrivals;
                    arrivals += 1;
                    if let Some(budget) = &self.world.budget {
                        budget.deposit(clock);
                    }
                    let new = Call {
                        race: Race::new(self.world.rules.clone()),
                        arrived: clock,
                        running: Vec::new(),
                        launches: Vec::new(),
                        wait: None,
                    };
                    self.calls.insert(call, new);
                    self.tell(clock, call, Event::Start);
                    if arrivals < self.world.calls {
                        let gap = -(1.0 - self.rng.f64()).ln() / self.world.rate;
                        let next = clock + Duration::from_secs_f64(gap);
                        self.schedule(next, Due::Arrival);
                    }
                }
                Due::Timer { call } => {
                    if self.calls.contains_key(&call) {
                        self.tell(clock, call, Event::Tick);
                    }
                }
                Due::Attempt { call, id } => self.finish(clock, call, id),
            }
        }
        History {
            fates: self.fates.into_iter().map(Option::unwrap).collect(),
            samples: self.samples,
            granted: self.granted,
        }
    }

    fn schedule(&mut self, at: Duration, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    fn finish(&mut self, clock: Duration, call: usize, id: u32) {
        let verdict = self.verdicts.remove(&(call, id));
        let Some(state) = self.calls.get_mut(&call) else {
            return; // It was discarded.
        };
        let at = state.running.iter().position(|it| it.0.id == id).unwrap();
        let (launch, began) = state.running.remove(at);
        let verdict = verdict.unwrap();
        if verdict == Verdict::Answer {
            let sample = Sample {
                call,
                ran: clock - began,
                cut: false,
            };
            self.learn(clock, &launch, sample);
        }
        self.tell(clock, call, Event::Finished { launch, verdict });
    }

    fn learn(&mut self, clock: Duration, launch: &Launch, sample: Sample) {
        if launch.kind != Kind::Original {
            return;
        }
        match sample.cut {
            false => self.ring.record(clock, sample.ran),
            true => self.ring.record_cut(clock, sample.ran),
        }
        self.samples.push(sample);
    }

    /// Tells a call's race what happened, and does what it says until it waits or ends.
    fn tell(&mut self, clock: Duration, id: usize, event: Event) {
        let mut call = self.calls.remove(&id).unwrap();
        let now = clock - call.arrived;
        let mut step = call.race.on(now, event);
        loop {
            let event = match step {
                Step::Launch(launch) => {
                    let (latency, verdict) = (self.world.replica)(&mut self.rng, clock);
                    self.verdicts.insert((id, launch.id), verdict);
                    let due = Due::Attempt {
                        call: id,
                        id: launch.id,
                    };
                    self.schedule(clock + latency, due);
                    call.running.push((launch, clock));
                    call.launches.push(launch.kind);
                    let measured = self.ring.threshold(clock);
                    let hedge_after = self.world.hedge.threshold(measured);
                    Event::Launched { hedge_after }
                }
                Step::Ask(ask) => match self.ask(clock, ask) {
                    Some(wait) => Event::Granted { wait },
                    None => Event::Held,
                },
                Step::Wait { until } => {
                    if let Some(until) = until.filter(|_| until != call.wait) {
                        let due = Due::Timer { call: id };
                        self.schedule(call.arrived + until, due);
                    }
                    call.wait = until;
                    self.calls.insert(id, call);
                    return;
                }
                Step::End(end) => {
                    for (launch, began) in call.running {
                        let sample = Sample {
                            call: id,
                            ran: clock - began,
                            cut: true,
                        };
                        self.learn(clock, &launch, sample);
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

    fn ask(&mut self, clock: Duration, ask: Ask) -> Option<Duration> {
        if let Some(budget) = &self.world.budget
            && !budget.try_withdraw(clock)
        {
            return None;
        }
        self.granted += 1;
        match ask {
            Ask::Retry {
                backoff: Some(step),
            } => Some(self.retry.backoff(step, self.rng.f64())),
            _ => Some(Duration::ZERO),
        }
    }
}
