//! Every interleaving of a small race: all that can happen, in any order, ends it exactly once.
//!
//! The search goes beyond what the driver does today: attempts finish and time passes also
//! while a question or a launch is out. A ledger beside the machine keeps the books that the
//! rules are checked against.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use tonic_hedge_engine::race::{
    Ask, AttemptId, End, Event, Kind, Launch, Pushback, Race, Rules, Step, Unsent, Verdict,
};

const TICK: Duration = Duration::from_millis(1);

/// Beyond the deadline. Without one it is only a longer wait, and is left out.
const LONG: Duration = Duration::from_millis(5);

const VERDICTS: [Verdict; 7] = [
    Verdict::Answer,
    Verdict::Failure(Pushback::None),
    Verdict::Failure(Pushback::After(TICK)),
    Verdict::Failure(Pushback::Stop),
    Verdict::Unsent(Unsent::NeverSent),
    Verdict::Unsent(Unsent::Refused),
    Verdict::Failure(Pushback::After(LONG)),
];

/// A race, what runs, and what has happened, as far as it matters for what may come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    race: Race,
    /// In ticks.
    now: u32,
    running: Vec<Launch>,
    /// The question or the launch that is out.
    owed: Option<Step>,
    /// What the machine last said it waits for.
    until: Option<Duration>,
    launches: u32,
    charged: u32,
    hedges: u32,
    never_sent: u32,
    refused: u32,
    /// Unsent attempts whose replacement is not requested yet.
    to_replace: Vec<AttemptId>,
    last_failure: Option<AttemptId>,
    stopped: bool,
    not_before: Duration,
    /// Whoever says when a hedge is due after the newest launch has not said it.
    undelayed: bool,
}

struct Search<'a> {
    rules: &'a Rules,
    /// By fingerprint (of a million states two share one with a chance of 3 in 100 million),
    /// with whether it lies on the path that is being searched.
    visited: HashMap<u64, bool>,
    ends: HashSet<&'static str>,
}

impl World {
    fn new(rules: &Rules) -> Self {
        Self {
            race: Race::new(rules.clone()),
            now: 0,
            running: Vec::new(),
            owed: None,
            until: None,
            launches: 0,
            charged: 0,
            hedges: 0,
            never_sent: 0,
            refused: 0,
            to_replace: Vec::new(),
            last_failure: None,
            stopped: false,
            not_before: Duration::ZERO,
            undelayed: false,
        }
    }

    fn now(&self) -> Duration {
        TICK * self.now
    }

    fn is_due(&self) -> bool {
        self.until.is_some_and(|until| until <= self.now())
    }

    /// All that can happen next, apart from time that passes and a caller that goes.
    fn events(&self, rules: &Rules) -> Vec<Event> {
        let long = usize::from(rules.deadline.is_some());
        let mut events = Vec::new();
        match self.owed {
            Some(Step::Ask(Ask::Hedge(_))) => {
                let wait = Duration::ZERO;
                events.extend([Event::Granted { wait }, Event::Held]);
            }
            Some(Step::Ask(Ask::Retry { .. })) => {
                let waits = &[TICK, LONG][..1 + long];
                events.extend(waits.iter().map(|&wait| Event::Granted { wait }));
                events.push(Event::Held);
            }
            Some(Step::Launch(_)) => {
                let after = [None, Some(Duration::ZERO), Some(TICK)];
                events.extend(after.map(|hedge_after| Event::Launched { hedge_after }));
                events.push(Event::Unplaced);
            }
            _ => {}
        }
        for &launch in &self.running {
            let verdicts = VERDICTS[..6 + long].iter();
            events.extend(verdicts.map(|&verdict| Event::Finished { launch, verdict }));
        }
        if self.undelayed {
            let due = [0, 1].map(|ticks| self.now() + TICK * ticks);
            events.extend(due.map(|at| Event::HedgeDue { at }));
            events.push(Event::Broken);
        }
        if self.is_due() {
            events.push(Event::Tick);
        }
        events
    }

    /// Writes an event into the ledger, before the machine hears of it.
    fn note(&mut self, rules: &Rules, event: Event) {
        let expired = rules.deadline.is_some_and(|it| it <= self.now());
        match event {
            Event::Launched { hedge_after } => {
                self.undelayed = hedge_after.is_none();
                let Some(Step::Launch(launch)) = self.owed.take() else {
                    unreachable!()
                };
                self.running.push(launch);
            }
            Event::Unplaced => {
                if let Some(Step::Launch(launch)) = self.owed.take() {
                    self.hedges -= u32::from(launch.kind == Kind::Hedge);
                }
                self.charged -= 1;
            }
            Event::HedgeDue { .. } => self.undelayed = false,
            Event::Granted { .. } | Event::Held => self.owed = None,
            Event::Finished { launch, verdict } => {
                self.running.retain(|it| it.id != launch.id);
                if verdict != Verdict::Answer {
                    self.last_failure = Some(launch.id);
                }
                let (used, may) = match verdict {
                    Verdict::Failure(Pushback::Stop) => {
                        self.stopped = true;
                        return;
                    }
                    Verdict::Failure(Pushback::After(delay)) => {
                        self.not_before = self.now() + delay;
                        return;
                    }
                    Verdict::Unsent(Unsent::NeverSent) => (&mut self.never_sent, rules.max_unsent),
                    Verdict::Unsent(Unsent::Refused) => (&mut self.refused, 1),
                    _ => return,
                };
                if *used < may && !expired {
                    *used += 1;
                    self.to_replace.push(launch.id);
                }
            }
            _ => {}
        }
    }
}

impl Search<'_> {
    fn explore(&mut self, world: &World) {
        let fingerprint = BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
        match self.visited.get(&fingerprint) {
            Some(true) => panic!("the race goes in a circle: {world:#?}"),
            Some(false) => return,
            None => self.visited.insert(fingerprint, true),
        };

        let mut gone = world.race.clone();
        assert_eq!(
            gone.on(world.now(), Event::CallerGone),
            Step::End(End::CallerGone)
        );
        self.stays_ended(world, gone);

        let events = world.events(self.rules);
        let waits = world.until.is_some();
        if !waits && events.is_empty() {
            panic!("it waits for ever: {world:#?}");
        }
        for event in events {
            let mut next = world.clone();
            next.note(self.rules, event);
            let step = next.race.on(next.now(), event);
            self.take(next, event, step);
        }
        if waits {
            if !world.is_due() && world.owed.is_none() {
                let mut early = world.race.clone();
                let until = world.until;
                assert_eq!(early.on(world.now(), Event::Tick), Step::Wait { until });
                assert_eq!(early, world.race, "a tick too early changes nothing");
            }
            // The host may be a tick late.
            if world.until.is_some_and(|until| world.now() <= until) {
                let mut next = world.clone();
                next.now += 1;
                self.explore(&next);
            }
        }
        self.visited.insert(fingerprint, false);
    }

    /// Holds a step against the ledger, and goes on.
    fn take(&mut self, mut world: World, event: Event, step: Step) {
        let rules = self.rules;
        let expired = rules.deadline.is_some_and(|it| it <= world.now());
        let place = world.running.len() as u32 + world.to_replace.len() as u32;
        let told = world.race.clone();
        let context = || format!("{event:?} -> {step:?}, and then {told:#?}");
        if world.owed.is_some() {
            assert!(
                matches!(step, Step::Wait { .. } | Step::End(_)),
                "an answer is owed: {}",
                context()
            );
        }
        match step {
            Step::Launch(launch) => {
                assert!(!expired, "{}", context());
                assert_eq!(launch.id, world.launches, "{}", context());
                assert!((world.running.len() as u32) < rules.max_concurrent);
                match launch.replaces {
                    Some(unsent) => {
                        assert!(world.to_replace.contains(&unsent), "{}", context());
                        world.to_replace.retain(|it| *it != unsent);
                    }
                    None => {
                        assert_eq!(launch.previous, world.charged, "{}", context());
                        let allowed = match launch.kind {
                            Kind::Original => world.launches == 0,
                            Kind::Hedge => rules.hedging && place > 0,
                            Kind::Retry => rules.retries && place == 0,
                        };
                        assert!(allowed && !world.stopped, "{}", context());
                        assert!(world.not_before <= world.now(), "{}", context());
                        world.charged += 1;
                        world.hedges += u32::from(launch.kind == Kind::Hedge);
                    }
                }
                world.launches += 1;
                world.owed = Some(step);
                world.undelayed = false;
            }
            Step::Ask(ask) => {
                let allowed = match ask {
                    Ask::Hedge(_) => {
                        rules.hedging
                            && world.hedges < rules.max_hedges
                            && (1..rules.max_concurrent).contains(&place)
                    }
                    Ask::Retry { .. } => rules.retries && place == 0,
                };
                assert!(
                    allowed && !expired && !world.stopped && world.charged < rules.max_attempts,
                    "the question leads nowhere: {}",
                    context()
                );
                world.owed = Some(step);
                world.undelayed = false;
            }
            Step::Wait { until } => {
                assert!(!expired, "{}", context());
                assert!(until.is_none_or(|it| it > world.now()), "{}", context());
                assert!(
                    world.owed.is_some() || !world.running.is_empty() || until.is_some(),
                    "nothing to wait for: {}",
                    context()
                );
                assert!(world.owed.is_some() || world.to_replace.is_empty());
                world.until = until;
            }
            Step::End(end) => {
                let (right, name) = match end {
                    End::Answer(id) => (
                        matches!(event, Event::Finished { launch, verdict: Verdict::Answer }
                            if launch.id == id),
                        "answer",
                    ),
                    End::Failed(id) => (place == 0 && world.last_failure == Some(id), "failed"),
                    End::Unplaced => (
                        event == Event::Unplaced && world.last_failure.is_none(),
                        "unplaced",
                    ),
                    End::Deadline => (expired, "deadline"),
                    End::Broken => (event == Event::Broken, "broken"),
                    End::CallerGone => (false, "caller gone"),
                };
                assert!(right, "{}", context());
                self.ends.insert(name);
                self.stays_ended(&world, world.race.clone());
                return;
            }
        }
        assert!(world.charged <= rules.max_attempts, "{}", context());
        assert!(world.hedges <= rules.max_hedges, "{}", context());
        assert_eq!(world.race.charged(), world.charged, "{}", context());
        assert_eq!(world.race.in_flight(), world.running.len() as u32);
        if !matches!(step, Step::Wait { .. }) {
            // Only the deadline is waited for while an answer is owed.
            world.until = rules.deadline;
        }
        self.explore(&world);
    }

    /// Whatever still comes after the end, nothing follows.
    fn stays_ended(&self, world: &World, ended: Race) {
        let late = [Event::Start, Event::Tick, Event::Held, Event::Unplaced];
        let wait = Duration::ZERO;
        let hedge_after = Some(wait);
        let late = late.into_iter().chain(world.events(self.rules)).chain([
            Event::Granted { wait },
            Event::Launched { hedge_after },
            Event::HedgeDue { at: world.now() },
            Event::Broken,
            Event::CallerGone,
        ]);
        let mut race = ended.clone();
        for event in late {
            let step = race.on(world.now(), event);
            assert_eq!(step, Step::Wait { until: None }, "{event:?} after the end");
        }
        assert_eq!(race, ended);
    }
}

fn search(rules: &Rules) -> (usize, HashSet<&'static str>) {
    let mut search = Search {
        rules,
        visited: HashMap::new(),
        ends: HashSet::new(),
    };
    let mut start = World::new(rules);
    let step = start.race.on(start.now(), Event::Start);
    search.take(start, Event::Start, step);
    (search.visited.len(), search.ends)
}

#[test]
fn every_interleaving_without_a_deadline_ends_once_and_breaks_no_rule() {
    search_all(None);
}

#[test]
fn every_interleaving_with_a_deadline_ends_once_and_breaks_no_rule() {
    search_all(Some(TICK * 3));
}

fn search_all(deadline: Option<Duration>) {
    let mut states = 0;
    for rules in all_rules(deadline) {
        let (visited, ends) = search(&rules);
        states += visited;
        let mut expected = HashSet::from(["answer", "broken", "failed", "unplaced"]);
        expected.extend(deadline.map(|_| "deadline"));
        assert_eq!(ends, expected, "{rules:?}");
    }
    println!("{states} states");
}

fn all_rules(deadline: Option<Duration>) -> Vec<Rules> {
    let mut all = Vec::new();
    for max_attempts in 1..=3 {
        for max_concurrent in 1..=3 {
            for (hedging, retries) in [(false, false), (false, true), (true, false), (true, true)] {
                for max_hedges in 1..=2 {
                    all.push(Rules {
                        max_attempts,
                        max_concurrent,
                        max_hedges,
                        hedging,
                        retries,
                        eager: false,
                        max_unsent: 1,
                        deadline,
                    });
                }
            }
        }
    }
    // One is less than all only where there is room for two.
    all.retain(|rules| rules.max_hedges == 2 || (rules.hedging && rules.max_attempts == 3));
    all.retain(|rules| match rules.max_concurrent {
        1 => true,
        // Without hedging it means nothing; one attempt leaves nothing to allow.
        2 => rules.hedging && rules.max_attempts > 1,
        // The deadline keeps the largest searches small.
        _ => rules.hedging && rules.max_attempts > 2 && rules.deadline.is_some(),
    });
    all
}
