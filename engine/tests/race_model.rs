//! The machine against a slow, obvious model of one call: the same script, the same launches,
//! the same end.
//!
//! The invariants of one call are checked on the way: it ends once and by its deadline; the
//! result is one attempt's; an answer before the deadline wins; attempts stay within their
//! bounds; a call that is not repeatable is processed once; nothing follows an end.

use std::time::Duration;

use proptest::prelude::*;
use tonic_hedge_engine::race::{
    Ask, AttemptId, End, Event, Kind, Launch, Pushback, Race, Rules, Step, Unsent, Verdict,
};

/// Times are in milliseconds.
#[derive(Clone, Debug)]
struct Script {
    rules: Rules,
    deadline: u64,
    /// What each launch meets; what lies beyond finds no endpoint.
    plans: Vec<Plan>,
    /// How each question is answered; what lies beyond is held.
    answers: Vec<Option<u64>>,
    /// When the caller goes.
    gone: u64,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    placed: bool,
    runs: u64,
    verdict: Verdict,
    hedge_after: Option<u64>,
}

/// Launches with their time, and the end with its.
#[derive(Debug, Default, PartialEq)]
struct Story {
    launches: Vec<(u64, Launch)>,
    asked: usize,
    end: Option<(u64, End)>,
}

const NEVER: u64 = u64::MAX / 2;

// === The model ===

/// What starts next, and when.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Nothing,
    Hedge(u64),
    Launch(u64, Kind, Option<Launch>),
}

struct Model<'a> {
    script: &'a Script,
    story: Story,
    running: Vec<(u64, Launch)>,
    next: Next,
    charged: u32,
    hedges: u32,
    backoff_free_at: Option<u64>,
    stopped: bool,
    replaced: [u32; 2],
    last: Option<AttemptId>,
}

fn model(script: &Script) -> Story {
    let mut model = Model {
        script,
        story: Story::default(),
        running: Vec::new(),
        next: Next::Launch(0, Kind::Original, None),
        charged: 0,
        hedges: 0,
        backoff_free_at: None,
        stopped: false,
        replaced: [0, 0],
        last: None,
    };
    let mut now = 0;
    while model.story.end.is_none() {
        match model.next {
            _ if script.deadline <= now => model.end(now, End::Deadline),
            Next::Launch(at, kind, unsent) if at <= now => model.launch(now, kind, unsent),
            Next::Hedge(at) if at <= now => model.ask_for_hedge(now),
            next => {
                let due = match next {
                    Next::Launch(at, ..) | Next::Hedge(at) => at,
                    Next::Nothing => NEVER,
                };
                let first = model
                    .running
                    .iter()
                    .min_by_key(|it| (it.0, it.1.id))
                    .copied();
                let ends = first.map_or(NEVER, |it| it.0);
                now = ends.min(due).min(script.deadline).min(script.gone);
                match first {
                    Some((ends, launch)) if ends == now => model.finish(now, launch),
                    _ if script.deadline == now => model.end(now, End::Deadline),
                    _ if script.gone == now && due > now => model.end(now, End::CallerGone),
                    _ => {}
                }
            }
        }
    }
    model.story
}

impl Model<'_> {
    fn end(&mut self, now: u64, end: End) {
        self.story.end = Some((now, end));
    }

    fn launch(&mut self, now: u64, kind: Kind, unsent: Option<Launch>) {
        let id = self.story.launches.len();
        let plan = self.script.plans.get(id).copied();
        let launch = Launch {
            id: id as u32,
            previous: unsent.map_or(self.charged, |it| it.previous),
            kind,
            replaces: unsent.map(|it| it.id),
        };
        self.story.launches.push((now, launch));
        self.next = Next::Nothing;
        if unsent.is_none() {
            self.backoff_free_at = None;
        }
        let Some(plan) = plan.filter(|plan| plan.placed) else {
            match (self.running.is_empty(), unsent, self.last) {
                (false, ..) => {}
                (true, Some(unsent), _) => self.fail(now, unsent.id),
                (true, None, Some(last)) => self.end(now, End::Failed(last)),
                (true, None, None) => self.end(now, End::Unplaced),
            }
            return;
        };
        self.charged += 1;
        self.hedges += u32::from(kind == Kind::Hedge);
        self.running.push((now + plan.runs, launch));
        if let Some(after) = plan.hedge_after.filter(|_| self.has_room()) {
            self.next = Next::Hedge(self.allowed_from(now + after));
        }
    }

    fn ask_for_hedge(&mut self, now: u64) {
        self.next = match self.ask() {
            Some(_) => Next::Launch(now, Kind::Hedge, None),
            None => Next::Nothing,
        };
    }

    fn finish(&mut self, now: u64, launch: Launch) {
        self.running.retain(|it| it.1.id != launch.id);
        let rules = &self.script.rules;
        match self.script.plans[launch.id as usize].verdict {
            Verdict::Answer => return self.end(now, End::Answer(launch.id)),
            Verdict::Unsent(how) => {
                let (which, most) = match how {
                    Unsent::NeverSent => (0, rules.max_unsent),
                    Unsent::Refused => (1, 1),
                };
                if self.replaced[which] < most && now < self.script.deadline {
                    self.replaced[which] += 1;
                    self.charged -= 1;
                    self.hedges -= u32::from(launch.kind == Kind::Hedge);
                    self.last = Some(launch.id);
                    self.next = Next::Launch(now, launch.kind, Some(launch));
                    return;
                }
            }
            Verdict::Failure(Pushback::Stop) => self.stopped = true,
            Verdict::Failure(Pushback::After(delay)) => {
                self.backoff_free_at = Some(now + delay.as_millis() as u64);
            }
            Verdict::Failure(Pushback::None) => {}
        }
        self.fail(now, launch.id);
    }

    fn fail(&mut self, now: u64, id: AttemptId) {
        self.last = Some(id);
        self.next = Next::Nothing;
        if !self.running.is_empty() {
            if self.has_room() {
                self.next = Next::Hedge(self.allowed_from(now));
            }
            return;
        }
        let rules = &self.script.rules;
        let pushback = self.backoff_free_at.filter(|at| *at >= now);
        let retries = rules.retries && !self.stopped && self.charged < rules.max_attempts;
        let at = match retries && pushback.unwrap_or(now) < self.script.deadline {
            true => self.ask().map(|wait| pushback.unwrap_or(now + wait)),
            false => None,
        };
        match at.filter(|at| *at < self.script.deadline) {
            Some(at) => self.next = Next::Launch(at, Kind::Retry, None),
            None => self.end(now, End::Failed(id)),
        }
    }

    fn ask(&mut self) -> Option<u64> {
        self.story.asked += 1;
        self.script.answers.get(self.story.asked - 1).copied()?
    }

    fn has_room(&self) -> bool {
        let rules = &self.script.rules;
        let running = self.running.len() as u32;
        rules.hedging
            && !self.stopped
            && running < rules.max_concurrent
            && self.hedges < rules.max_hedges
            && self.charged < rules.max_attempts
    }

    fn allowed_from(&self, at: u64) -> u64 {
        self.backoff_free_at.map_or(at, |free| free.max(at))
    }
}

// === The machine ===

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn machine(script: &Script) -> Result<Story, TestCaseError> {
    let rules = &script.rules;
    let mut race = Race::new(rules.clone());
    let mut story = Story::default();
    let mut running: Vec<(u64, Launch)> = Vec::new();
    let mut now = 0;
    let mut event = Event::Start;
    loop {
        let step = race.on(ms(now), event);
        prop_assert!(race.in_flight() <= rules.max_concurrent);
        prop_assert!(race.charged() <= rules.max_attempts);
        event = match step {
            Step::Launch(launch) => {
                story.launches.push((now, launch));
                match script.plans.get(launch.id as usize) {
                    Some(plan) if plan.placed => {
                        running.push((now + plan.runs, launch));
                        Event::Launched {
                            hedge_after: plan.hedge_after.map(ms),
                        }
                    }
                    _ => Event::Unplaced,
                }
            }
            Step::Ask(ask) => {
                let answer = script.answers.get(story.asked).copied().flatten();
                story.asked += 1;
                match (answer, ask) {
                    (None, _) => Event::Held,
                    (Some(_), Ask::Hedge(_)) => Event::Granted { wait: ms(0) },
                    (Some(wait), Ask::Retry { .. }) => Event::Granted { wait: ms(wait) },
                }
            }
            Step::Wait { until } => {
                let until = until.map_or(NEVER, |it| it.as_millis() as u64);
                running.sort_by_key(|it| (it.0, it.1.id));
                let ends = running.first().map_or(NEVER, |it| it.0);
                now = ends.min(until).min(script.gone);
                if ends == now {
                    let (_, launch) = running.remove(0);
                    let verdict = script.plans[launch.id as usize].verdict;
                    Event::Finished { launch, verdict }
                } else if until == now {
                    Event::Tick
                } else {
                    Event::CallerGone
                }
            }
            Step::End(end) => {
                story.end = Some((now, end));
                for (_, launch) in running {
                    let verdict = Verdict::Answer;
                    let late = race.on(ms(now), Event::Finished { launch, verdict });
                    prop_assert_eq!(late, Step::Wait { until: None });
                }
                return Ok(story);
            }
        };
    }
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => Just(Verdict::Answer),
        4 => Just(Verdict::Failure(Pushback::None)),
        2 => (0u64..12).prop_map(|delay| Verdict::Failure(Pushback::After(ms(delay)))),
        1 => Just(Verdict::Failure(Pushback::Stop)),
        2 => Just(Verdict::Unsent(Unsent::NeverSent)),
        2 => Just(Verdict::Unsent(Unsent::Refused)),
    ]
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let placed = prop::bool::weighted(0.9);
    let runs = prop_oneof![9 => 0u64..12, 1 => Just(NEVER)];
    let hedge_after = prop::option::of(0u64..8);
    (placed, runs, any_verdict(), hedge_after).prop_map(|(placed, runs, verdict, hedge_after)| {
        Plan {
            placed,
            runs,
            verdict,
            hedge_after,
        }
    })
}

fn any_script() -> impl Strategy<Value = Script> {
    let bounds = (1u32..6, 1u32..4, 0u32..3, 0u32..5);
    let kinds = (any::<bool>(), any::<bool>());
    let times = (
        prop_oneof![1 => Just(NEVER), 2 => 0u64..30],
        prop_oneof![3 => Just(NEVER - 1), 1 => 1u64..30],
    );
    let plans = prop::collection::vec(any_plan(), 0..9);
    let answers = prop::collection::vec(prop::option::weighted(0.8, 0u64..8), 0..8);
    (bounds, kinds, times, plans, answers).prop_map(|(bounds, kinds, times, plans, answers)| {
        Script {
            rules: Rules {
                max_attempts: bounds.0,
                max_concurrent: bounds.1,
                max_hedges: bounds.3,
                hedging: kinds.0,
                retries: kinds.1,
                eager: false,
                max_unsent: bounds.2,
                deadline: (times.0 < NEVER).then(|| ms(times.0)),
            },
            deadline: times.0,
            plans,
            answers,
            gone: times.1,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn agrees_with_the_obvious_model(script in any_script()) {
        let story = machine(&script)?;
        prop_assert_eq!(&story, &model(&script));

        let (at, end) = story.end.unwrap();
        prop_assert!(at <= script.deadline, "it ends by its deadline");
        let verdict = |id: AttemptId| script.plans[id as usize].verdict;
        match end {
            End::Answer(id) => prop_assert_eq!(verdict(id), Verdict::Answer),
            End::Failed(id) => prop_assert_ne!(verdict(id), Verdict::Answer),
            _ => {}
        }
        // Whatever would have answered before the end has ended it.
        for (began, launch) in &story.launches {
            let Some(plan) = script.plans.get(launch.id as usize).filter(|it| it.placed) else {
                continue;
            };
            if plan.verdict == Verdict::Answer && end != End::Answer(launch.id) {
                prop_assert!(began + plan.runs >= at);
            }
        }
    }

    #[test]
    fn a_call_that_is_not_repeatable_is_processed_once(script in any_script()) {
        let script = Script {
            rules: Rules { max_unsent: 5, ..Rules::single(script.rules.deadline) },
            ..script
        };
        let story = machine(&script)?;
        prop_assert_eq!(&story, &model(&script));
        let processed = story.launches.iter().filter(|(_, launch)| {
            let plan = script.plans.get(launch.id as usize);
            plan.is_some_and(|plan| plan.placed && !matches!(plan.verdict, Verdict::Unsent(_)))
        });
        prop_assert!(processed.count() <= 1);
        prop_assert_eq!(story.asked, 0, "nothing is asked for it");
    }
}
