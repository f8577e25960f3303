//! The driver on a scripted host, under tokio's paused clock.
//!
//! Each test ends in `World::quiet`: every attempt that was launched has been judged or
//! discarded, exactly once, none is alive, and no loan is out.

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fastrand::Rng;
use tokio::time::{Instant, advance, sleep, sleep_until};
use tonic_hedge_engine::race::{
    Answer, Ask, Asked, AttemptId, Drive, End, Gone, Host, Kind, Launch, Launched, MAX_UNSENT,
    Over, Pushback, Race, Rules, Unsent, Verdict,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rules() -> Rules {
    Rules {
        max_attempts: 3,
        max_concurrent: 2,
        max_hedges: 15,
        hedging: true,
        retries: true,
        eager: false,
        max_unsent: MAX_UNSENT,
        deadline: None,
    }
}

const FAILS: Verdict = Verdict::Failure(Pushback::None);

/// What a launch meets.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// `None` finds no endpoint.
    runs: Option<Duration>,
    verdict: Verdict,
    hedge_after: Option<Duration>,
}

fn plan(runs: u64, verdict: Verdict) -> Plan {
    Plan {
        runs: Some(ms(runs)),
        verdict,
        hedge_after: Some(ms(50)),
    }
}

const UNPLACED: Plan = Plan {
    runs: None,
    verdict: FAILS,
    hedge_after: None,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Judged,
    Discarded(Gone),
}

/// What is said of a delay, and how much later.
#[derive(Clone, Copy)]
struct Saying {
    after: Duration,
    says: Result<Duration, &'static str>,
}

/// What has happened, for the test to look at.
#[derive(Debug, Default)]
struct Notes {
    launched: Vec<(Duration, Kind)>,
    asked: Vec<(Duration, Ask)>,
    /// When what a yes had reserved was given back.
    withdrawn: Vec<Duration>,
    fates: BTreeMap<AttemptId, Vec<(Duration, Fate)>>,
    discarded: Vec<AttemptId>,
    /// Launches whose delay was asked for.
    wanted: Vec<(Duration, AttemptId)>,
    delayed: Vec<Duration>,
}

#[derive(Clone, Default)]
struct World {
    notes: Rc<RefCell<Notes>>,
    /// One more reference for each attempt that is alive.
    alive: Rc<()>,
    /// One more for each token that is out.
    loans: Rc<()>,
}

struct Script {
    world: World,
    plans: Vec<Plan>,
    /// The last one counts for all that follow.
    answers: Vec<Answer>,
    /// A yes comes so much later.
    thinks: Option<Duration>,
    /// When hedges are due, where the plan has no number.
    delays: Option<Saying>,
    loan: Option<Rc<()>>,
    spent: Vec<Rc<()>>,
}

struct Attempt {
    ends: Pin<Box<dyn Future<Output = ()>>>,
    reply: (AttemptId, Verdict),
    _alive: Rc<()>,
}

impl Future for Attempt {
    type Output = (AttemptId, Verdict);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.ends.as_mut().poll(cx).map(|()| self.reply)
    }
}

impl Host for Script {
    type Attempt = Attempt;
    type Reply = (AttemptId, Verdict);
    type Wait = Pin<Box<dyn Future<Output = ()>>>;
    type Delay = Pin<Box<dyn Future<Output = Result<Duration, Self::Error>>>>;
    type Error = &'static str;

    fn delay(&mut self, now: Duration, launch: &Launch) -> Option<Self::Delay> {
        let Saying { after, says } = self.delays?;
        self.world.notes.borrow_mut().wanted.push((now, launch.id));
        let alive = Rc::clone(&self.world.alive);
        Some(Box::pin(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            drop(alive);
            says
        }))
    }

    fn delayed(&mut self, delay: Duration) {
        self.world.notes.borrow_mut().delayed.push(delay);
    }

    fn launch(&mut self, now: Duration, launch: Launch) -> Option<Launched<Attempt>> {
        let plan = self.plans.get(launch.id as usize).copied();
        let plan = plan.unwrap_or(UNPLACED);
        let loan = self.loan.take();
        let runs = plan.runs?;
        self.spent.extend(loan);
        let mut notes = self.world.notes.borrow_mut();
        notes.launched.push((now, launch.kind));
        notes.fates.insert(launch.id, Vec::new());
        let ends = Instant::now().checked_add(runs);
        Some(Launched {
            attempt: Attempt {
                ends: Box::pin(async move {
                    match ends {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                }),
                reply: (launch.id, plan.verdict),
                _alive: Rc::clone(&self.world.alive),
            },
            hedge_after: plan.hedge_after,
        })
    }

    fn ask(&mut self, now: Duration, ask: Ask) -> Asked<Self::Wait> {
        let mut notes = self.world.notes.borrow_mut();
        let turn = notes.asked.len().min(self.answers.len() - 1);
        notes.asked.push((now, ask));
        let answer = self.answers[turn];
        if answer == Answer::Held {
            return Asked::Now(answer);
        }
        self.loan = Some(Rc::clone(&self.world.loans));
        match self.thinks {
            None => Asked::Now(answer),
            Some(time) => {
                let alive = Rc::clone(&self.world.alive);
                Asked::After(Box::pin(async move {
                    sleep(time).await;
                    drop(alive);
                }))
            }
        }
    }

    fn withdraw(&mut self, now: Duration) {
        assert!(self.loan.take().is_some(), "nothing was lent");
        self.world.notes.borrow_mut().withdrawn.push(now);
    }

    fn judge(
        &mut self,
        now: Duration,
        launch: &Launch,
        reply: &mut Self::Reply,
        _: &Race,
    ) -> Verdict {
        assert_eq!(launch.id, reply.0);
        self.world.note(now, launch.id, Fate::Judged);
        reply.1
    }

    fn discard(&mut self, now: Duration, launch: Launch, attempt: Attempt, why: Gone) {
        assert_eq!(launch.id, attempt.reply.0);
        self.world.note(now, launch.id, Fate::Discarded(why));
        self.world.notes.borrow_mut().discarded.push(launch.id);
    }
}

impl World {
    fn note(&self, now: Duration, id: AttemptId, fate: Fate) {
        let mut notes = self.notes.borrow_mut();
        notes.fates.get_mut(&id).unwrap().push((now, fate));
    }

    fn race(&self, rules: Rules, plans: &[Plan]) -> Drive<Script> {
        self.asked_race(rules, plans, &[Answer::Granted(Duration::ZERO)])
    }

    fn asked_race(&self, rules: Rules, plans: &[Plan], answers: &[Answer]) -> Drive<Script> {
        self.script(rules, plans, answers, None)
    }

    /// Each yes takes its time.
    fn slow_race(&self, rules: Rules, plans: &[Plan], thinks: Duration) -> Drive<Script> {
        let at_once = [Answer::Granted(Duration::ZERO)];
        self.script(rules, plans, &at_once, Some(thinks))
    }

    fn script(
        &self,
        rules: Rules,
        plans: &[Plan],
        answers: &[Answer],
        thinks: Option<Duration>,
    ) -> Drive<Script> {
        let host = Script {
            world: self.clone(),
            plans: plans.to_vec(),
            answers: answers.to_vec(),
            thinks,
            delays: None,
            loan: None,
            spent: Vec::new(),
        };
        Drive::new(host, rules, Instant::now())
    }

    /// The delays are found out by somebody else.
    fn delayed_race(&self, rules: Rules, plans: &[Plan], delays: Saying) -> Drive<Script> {
        let plans = plans.iter().map(|&plan| Plan {
            hedge_after: None,
            ..plan
        });
        let host = Script {
            world: self.clone(),
            plans: plans.collect(),
            answers: vec![Answer::Granted(Duration::ZERO)],
            thinks: None,
            delays: Some(delays),
            loan: None,
            spent: Vec::new(),
        };
        Drive::new(host, rules, Instant::now())
    }

    /// How the attempt ended, and when.
    #[track_caller]
    fn fate(&self, id: AttemptId) -> (Duration, Fate) {
        self.notes.borrow().fates[&id][0]
    }

    fn launches(&self) -> usize {
        self.notes.borrow().launched.len()
    }

    #[track_caller]
    fn quiet(&self) {
        for (id, fates) in &self.notes.borrow().fates {
            assert_eq!(fates.len(), 1, "attempt {id}: {fates:?}");
        }
        assert_eq!(Rc::strong_count(&self.alive), 1, "an attempt is alive");
        assert_eq!(Rc::strong_count(&self.loans), 1, "a loan is out");
    }
}

/// Runs a race to its end: how it ended, when, and with which attempt's reply.
async fn run(race: Drive<Script>) -> (End, Duration, Option<AttemptId>) {
    let Over {
        host,
        end,
        reply,
        at,
        ..
    } = race.await;
    drop(host);
    (end, at, reply.map(|reply| reply.0))
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// === Delays that turn out ===

fn saying(after: u64, says: u64) -> Saying {
    Saying {
        after: ms(after),
        says: Ok(ms(says)),
    }
}

/// A delay is found out while the attempt runs, and counts from its launch. It is not asked for
/// where no attempt could follow.
#[tokio::test(start_paused = true)]
async fn a_delay_is_found_out_while_the_attempt_runs() {
    for (after, says, second) in [(0, 40, 40), (10, 40, 40), (60, 40, 60)] {
        let world = World::default();
        let plans = [plan(900, FAILS), plan(5, Verdict::Answer)];
        let race = world.delayed_race(rules(), &plans, saying(after, says));
        assert_eq!(run(race).await.1, ms(second + 5));
        let launched = world.notes.borrow().launched.clone();
        assert_eq!(launched[1], (ms(second), Kind::Hedge));
        assert_eq!(world.notes.borrow().wanted, [(ms(0), 0)]);
        assert_eq!(world.notes.borrow().delayed, [ms(says)]);
        world.quiet();
    }
}

/// Zero starts all that are allowed, before the original is looked at.
#[tokio::test(start_paused = true)]
async fn b87_a_delay_of_zero_starts_all_that_are_allowed() {
    let world = World::default();
    let three = Rules {
        max_concurrent: 3,
        ..rules()
    };
    let plans = [plan(0, Verdict::Answer); 3];
    let race = world.delayed_race(three, &plans, saying(0, 0));
    assert_eq!(run(race).await, (End::Answer(0), ms(0), Some(0)));
    assert_eq!(world.launches(), 3);
    world.quiet();
}

/// A failure starts the next attempt at once, and the delay that is being found out is dropped.
#[tokio::test(start_paused = true)]
async fn a_failure_drops_the_delay() {
    let world = World::default();
    let plans = [plan(5, FAILS), plan(5, Verdict::Answer)];
    let race = world.delayed_race(rules(), &plans, saying(100, 0));
    assert_eq!(run(race).await, (End::Answer(1), ms(10), Some(1)));
    assert_eq!(world.notes.borrow().launched[1].1, Kind::Retry);
    assert_eq!(world.notes.borrow().delayed, []);
    world.quiet();
}

/// An error ends the race with it, and drops the attempts.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_delay_ends_the_race() {
    for after in [0, 10] {
        let world = World::default();
        let plans = [plan(900, FAILS)];
        let says = Err("no delay");
        let after = ms(after);
        let race = world.delayed_race(rules(), &plans, Saying { after, says });
        let over = race.await;
        assert_eq!((over.end, over.at), (End::Broken, after));
        assert_eq!(over.error, Some("no delay"));
        assert!(over.reply.is_none());
        assert_eq!(world.fate(0), (after, Fate::Discarded(Gone::CallerGone)));
        drop(over.host);
        world.quiet();
    }
}

/// The longest delay is never over.
#[tokio::test(start_paused = true)]
async fn dl6_the_longest_delay_does_not_overflow() {
    let world = World::default();
    let plans = [plan(900, Verdict::Answer)];
    let says = Saying {
        after: ms(1),
        says: Ok(Duration::MAX),
    };
    let over = run(world.delayed_race(rules(), &plans, says)).await;
    assert_eq!(over, (End::Answer(0), ms(900), Some(0)));
    world.quiet();
}

// === Who counts ===

#[tokio::test(start_paused = true)]
async fn rc9_of_two_that_are_ready_in_one_poll_the_older_counts() {
    let world = World::default();
    let plans = [plan(100, Verdict::Answer), plan(50, Verdict::Answer)];
    let over = run(world.race(rules(), &plans)).await;
    assert_eq!(over, (End::Answer(0), ms(100), Some(0)));
    assert_eq!(world.fate(1), (ms(100), Fate::Discarded(Gone::Lost)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn rc9_a_failure_and_an_answer_in_one_poll_need_no_third_attempt() {
    let world = World::default();
    let plans = [plan(100, FAILS), plan(50, Verdict::Answer)];
    let over = run(world.race(rules(), &plans)).await;
    assert_eq!(over, (End::Answer(1), ms(100), Some(1)));
    assert_eq!(world.launches(), 2);
    assert_eq!(world.notes.borrow().asked.len(), 1, "for the hedge");
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn rc9_two_failures_in_one_poll_start_one_retry() {
    let world = World::default();
    let plans = [plan(100, FAILS), plan(50, FAILS), plan(9, Verdict::Answer)];
    let over = run(world.race(rules(), &plans)).await;
    assert_eq!(over, (End::Answer(2), ms(109), Some(2)));
    let launched = world.notes.borrow().launched.clone();
    assert_eq!(launched[2], (ms(100), Kind::Retry));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn the_newest_attempt_does_not_jump_ahead_after_the_original_failed() {
    let world = World::default();
    // The hedge starts at 50, the third attempt at 60; both end at 90.
    let plans = [
        plan(60, FAILS),
        plan(40, Verdict::Answer),
        plan(30, Verdict::Answer),
    ];
    let over = run(world.race(rules(), &plans)).await;
    assert_eq!(over, (End::Answer(1), ms(90), Some(1)));
    assert_eq!(world.fate(2), (ms(90), Fate::Discarded(Gone::Lost)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn the_order_of_launches_outlives_a_failed_hedge() {
    let world = World::default();
    let four = Rules {
        max_attempts: 4,
        max_concurrent: 4,
        ..rules()
    };
    // Hedges at 50, 100 and 150; the first of them fails, the other two end at 200.
    let plans = [
        plan(900, FAILS),
        plan(110, FAILS),
        plan(100, Verdict::Answer),
        plan(50, Verdict::Answer),
    ];
    let over = run(world.race(four, &plans)).await;
    assert_eq!(over, (End::Answer(2), ms(200), Some(2)));
    assert_eq!(world.notes.borrow().discarded, [0, 3]);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn rc8_the_last_failure_is_the_reply() {
    let world = World::default();
    let two = Rules {
        max_attempts: 2,
        ..rules()
    };
    let over = run(world.race(two, &[plan(80, FAILS), plan(10, FAILS)])).await;
    assert_eq!(over, (End::Failed(0), ms(80), Some(0)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn a_replacement_without_an_endpoint_ends_with_what_it_replaced() {
    let world = World::default();
    let plans = [plan(3, Verdict::Unsent(Unsent::NeverSent)), UNPLACED];
    let over = run(world.race(Rules::single(None), &plans)).await;
    assert_eq!(over, (End::Failed(0), ms(3), Some(0)));
    world.quiet();
}

// === A yes that comes later ===

#[tokio::test(start_paused = true)]
async fn a_late_yes_launches_then() {
    let world = World::default();
    let plans = [plan(100, Verdict::Answer), plan(10, Verdict::Answer)];
    let over = run(world.slow_race(rules(), &plans, ms(20))).await;
    assert_eq!(over, (End::Answer(1), ms(80), Some(1)));
    let launched = world.notes.borrow().launched.clone();
    assert_eq!(launched, [(ms(0), Kind::Original), (ms(70), Kind::Hedge)]);
    world.quiet();
}

/// However long it takes: what it waits for is dropped, and what it had reserved goes back.
#[tokio::test(start_paused = true)]
async fn a_yes_that_never_comes_holds_nothing_up() {
    for (deadline, expected) in [
        (None, (End::Answer(0), ms(100), Some(0))),
        (Some(ms(60)), (End::Deadline, ms(60), None)),
    ] {
        let world = World::default();
        let rules = Rules {
            deadline,
            ..rules()
        };
        let race = world.slow_race(rules, &[plan(100, Verdict::Answer)], ms(1_000));
        assert_eq!(run(race).await, expected);
        assert_eq!(world.launches(), 1);
        world.quiet();
    }
}

/// The original fails meanwhile: what was to be the hedge is the retry, and waits no longer.
#[tokio::test(start_paused = true)]
async fn a_late_yes_after_a_failure() {
    let world = World::default();
    let plans = [plan(60, FAILS), plan(10, Verdict::Answer)];
    let over = run(world.slow_race(rules(), &plans, ms(20))).await;
    assert_eq!(over, (End::Answer(1), ms(70), Some(1)));
    let launched = world.notes.borrow().launched.clone();
    assert_eq!(launched, [(ms(0), Kind::Original), (ms(60), Kind::Retry)]);
    world.quiet();
}

/// What ends the call, or is to be replaced, does not wait for a yes either.
#[tokio::test(start_paused = true)]
async fn a_late_yes_holds_no_failure_up() {
    let world = World::default();
    let stop = Verdict::Failure(Pushback::Stop);
    let race = world.slow_race(rules(), &[plan(60, stop)], ms(1_000));
    assert_eq!(run(race).await, (End::Failed(0), ms(60), Some(0)));
    world.quiet();

    let world = World::default();
    let never = Verdict::Unsent(Unsent::NeverSent);
    let plans = [plan(60, never), plan(10, Verdict::Answer), UNPLACED];
    let over = run(world.slow_race(rules(), &plans, ms(1_000))).await;
    assert_eq!((over.0, over.1), (End::Answer(1), ms(70)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_before_a_late_yes() {
    let world = World::default();
    let race = world.slow_race(rules(), &[plan(500, Verdict::Answer); 2], ms(100));
    tokio::select! {
        biased;
        _ = race => unreachable!(),
        () = sleep(ms(60)) => {}
    }
    assert_eq!(world.launches(), 1);
    world.quiet();
}

// === The caller goes ===

#[tokio::test(start_paused = true)]
async fn a_race_that_was_never_polled_leaves_nothing() {
    let world = World::default();
    drop(world.race(rules(), &[plan(10, Verdict::Answer)]));
    assert_eq!(world.launches(), 0);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn ca1_dropped_before_the_threshold() {
    let world = World::default();
    let race = world.race(rules(), &[plan(500, Verdict::Answer)]);
    tokio::select! {
        biased;
        _ = race => unreachable!(),
        () = sleep(ms(20)) => {}
    }
    assert_eq!(world.fate(0), (ms(20), Fate::Discarded(Gone::CallerGone)));
    sleep(ms(1_000)).await;
    assert_eq!(world.launches(), 1);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn ca2_dropped_with_both_running() {
    let world = World::default();
    let plans = [plan(500, Verdict::Answer); 2];
    let race = world.race(rules(), &plans);
    tokio::select! {
        biased;
        _ = race => unreachable!(),
        () = sleep(ms(60)) => {}
    }
    for id in [0, 1] {
        assert_eq!(world.fate(id), (ms(60), Fate::Discarded(Gone::CallerGone)));
    }
    assert_eq!(world.notes.borrow().discarded, [0, 1]);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn ca4_dropped_in_the_tick_of_the_timer_before_it_is_polled() {
    let world = World::default();
    let mut race = Box::pin(world.race(rules(), &[plan(500, Verdict::Answer); 2]));
    assert!(poll_once(race.as_mut()).is_pending());
    advance(ms(50)).await;
    drop(race);
    assert_eq!(world.launches(), 1, "nothing is launched for who has gone");
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn ca4_dropped_in_the_tick_of_the_timer_after_it_is_polled() {
    let world = World::default();
    let mut race = Box::pin(world.race(rules(), &[plan(500, Verdict::Answer); 2]));
    assert!(poll_once(race.as_mut()).is_pending());
    advance(ms(50)).await;
    assert!(poll_once(race.as_mut()).is_pending());
    assert_eq!(world.launches(), 2);
    drop(race);
    assert_eq!(world.notes.borrow().discarded, [0, 1]);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn b96_dropped_in_a_backoff_returns_the_loan() {
    let world = World::default();
    let answers = [Answer::Granted(ms(100))];
    let plans = [plan(5, FAILS), plan(5, Verdict::Answer)];
    let race = world.asked_race(rules(), &plans, &answers);
    tokio::select! {
        biased;
        _ = race => unreachable!(),
        () = sleep(ms(20)) => {}
    }
    sleep(ms(1_000)).await;
    assert_eq!(world.launches(), 1);
    world.quiet();
}

// === Deadline ===

#[tokio::test(start_paused = true)]
async fn dl1_the_deadline_discards_all() {
    let world = World::default();
    let rules = Rules {
        deadline: Some(ms(200)),
        ..rules()
    };
    let over = run(world.race(rules, &[plan(500, Verdict::Answer); 2])).await;
    assert_eq!(over, (End::Deadline, ms(200), None));
    for id in [0, 1] {
        assert_eq!(world.fate(id), (ms(200), Fate::Discarded(Gone::Deadline)));
    }
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_the_tick_of_the_deadline_counts() {
    let world = World::default();
    let rules = Rules {
        deadline: Some(ms(200)),
        ..rules()
    };
    let over = run(world.race(rules, &[plan(200, Verdict::Answer), plan(500, FAILS)])).await;
    assert_eq!(over, (End::Answer(0), ms(200), Some(0)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn dl3_a_deadline_that_has_passed_launches_nothing() {
    let world = World::default();
    let rules = Rules {
        deadline: Some(ms(200)),
        ..rules()
    };
    let race = world.race(rules, &[plan(5, Verdict::Answer)]);
    advance(ms(200)).await;
    assert_eq!(run(race).await, (End::Deadline, ms(200), None));
    assert_eq!(world.launches(), 0);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn dl4_a_granted_retry_beyond_the_deadline_returns_the_loan() {
    let world = World::default();
    let rules = Rules {
        deadline: Some(ms(200)),
        ..rules()
    };
    let answers = [Answer::Granted(ms(200))];
    let race = world.asked_race(rules, &[plan(5, FAILS)], &answers);
    assert_eq!(run(race).await, (End::Failed(0), ms(5), Some(0)));
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn dl6_the_longest_times() {
    let longest = Plan {
        hedge_after: Some(Duration::MAX),
        ..plan(5, Verdict::Answer)
    };
    for deadline in [
        Duration::MAX,
        Duration::MAX / 2,
        Duration::from_secs(1 << 40),
    ] {
        let world = World::default();
        let rules = Rules {
            deadline: Some(deadline),
            ..rules()
        };
        let over = run(world.race(rules.clone(), &[longest])).await;
        assert_eq!(over, (End::Answer(0), ms(5), Some(0)));
        let stuck = Plan {
            runs: Some(Duration::MAX),
            ..longest
        };
        let mut race = Box::pin(world.race(rules, &[stuck]));
        assert!(poll_once(race.as_mut()).is_pending());
        advance(Duration::from_secs(86_400)).await;
        assert!(poll_once(race.as_mut()).is_pending());
        drop(race);
        world.quiet();
    }
    let world = World::default();
    let rules = Rules {
        deadline: Some(Duration::from_secs(60)),
        ..rules()
    };
    let endless = plan(5, Verdict::Failure(Pushback::After(Duration::MAX)));
    let over = run(world.race(rules.clone(), &[endless])).await;
    assert_eq!(over, (End::Failed(0), ms(5), Some(0)));
    let answers = [Answer::Granted(Duration::MAX)];
    let over = run(world.asked_race(rules, &[plan(5, FAILS)], &answers)).await;
    assert_eq!(over, (End::Failed(0), ms(5), Some(0)));
}

// === Loans ===

#[tokio::test(start_paused = true)]
async fn a_hedge_that_finds_no_endpoint_returns_the_loan() {
    let world = World::default();
    let plans = [plan(80, Verdict::Answer), UNPLACED];
    let over = run(world.race(rules(), &plans)).await;
    assert_eq!(over, (End::Answer(0), ms(80), Some(0)));
    assert_eq!(world.notes.borrow().asked.len(), 1);
    world.quiet();
}

/// A server stops the race while a hedge is being granted, and another attempt runs on for long:
/// what the hedge needs is free at once.
#[tokio::test(start_paused = true)]
async fn a_late_yes_that_is_not_used_goes_back_at_once() {
    let world = World::default();
    let stop = Verdict::Failure(Pushback::Stop);
    let plans = [plan(1_000, Verdict::Answer), plan(60, stop)];
    let rules = Rules {
        max_concurrent: 3,
        max_attempts: 4,
        ..rules()
    };
    let over = run(world.slow_race(rules, &plans, ms(30))).await;
    assert_eq!(over, (End::Answer(0), ms(1_000), Some(0)));
    let notes = world.notes.borrow();
    // The hedge of 50 ms starts at 80 and fails at 140, while that of 130 waits for its yes.
    assert_eq!(notes.asked.len(), 2);
    assert_eq!(notes.withdrawn, [ms(140)]);
    drop(notes);
    world.quiet();
}

/// Pushback while a hedge is being granted: it asks again when that is over.
#[tokio::test(start_paused = true)]
async fn a_late_yes_that_comes_too_soon_asks_again() {
    let world = World::default();
    let later = Verdict::Failure(Pushback::After(ms(100)));
    let plans = [
        plan(1_000, Verdict::Answer),
        plan(60, later),
        plan(10, Verdict::Answer),
    ];
    let rules = Rules {
        max_concurrent: 3,
        max_attempts: 4,
        ..rules()
    };
    let over = run(world.slow_race(rules, &plans, ms(30))).await;
    // Asked at 240, and granted 30 ms later.
    assert_eq!(over, (End::Answer(2), ms(280), Some(2)));
    assert_eq!(world.notes.borrow().withdrawn, [ms(140)]);
    world.quiet();
}

#[tokio::test(start_paused = true)]
async fn bu2_a_held_hedge_leaves_the_original() {
    let world = World::default();
    let race = world.asked_race(rules(), &[plan(80, Verdict::Answer)], &[Answer::Held]);
    assert_eq!(run(race).await, (End::Answer(0), ms(80), Some(0)));
    assert_eq!(world.launches(), 1);
    world.quiet();
}

// === Chance ===

fn any_verdict(rng: &mut Rng) -> Verdict {
    match rng.u32(0..12) {
        0..4 => Verdict::Answer,
        4..8 => FAILS,
        8 => Verdict::Failure(Pushback::After(ms(rng.u64(0..40)))),
        9 => Verdict::Failure(Pushback::Stop),
        10 => Verdict::Unsent(Unsent::NeverSent),
        _ => Verdict::Unsent(Unsent::Refused),
    }
}

/// Few different times, so that much happens in one tick.
fn any_time(rng: &mut Rng) -> Duration {
    ms(rng.u64(0..8) * 10)
}

fn any_plan(rng: &mut Rng) -> Plan {
    Plan {
        runs: (rng.u32(0..10) > 0).then(|| any_time(rng)),
        verdict: any_verdict(rng),
        hedge_after: rng.bool().then(|| any_time(rng)),
    }
}

#[tokio::test(start_paused = true)]
async fn rc9_ca2_ten_thousand_schedules_leave_nothing() {
    let mut ends = BTreeMap::new();
    for seed in 0..10_000 {
        let rng = &mut Rng::with_seed(seed);
        let world = World::default();
        let rules = Rules {
            max_attempts: rng.u32(1..5),
            max_concurrent: rng.u32(1..4),
            max_hedges: 15,
            hedging: rng.bool(),
            retries: rng.bool(),
            eager: false,
            max_unsent: rng.u32(0..3),
            deadline: rng.bool().then(|| any_time(rng)),
        };
        let plans: Vec<_> = (0..8).map(|_| any_plan(rng)).collect();
        let answers: Vec<_> = (0..8)
            .map(|_| match rng.u32(0..4) {
                0 => Answer::Held,
                _ => Answer::Granted(any_time(rng)),
            })
            .collect();
        let race = world.asked_race(rules.clone(), &plans, &answers);
        let gone = rng.bool().then(|| any_time(rng));
        let leaves = async {
            match gone {
                Some(after) => sleep(after).await,
                None => std::future::pending().await,
            }
        };
        // Either may be polled first.
        let over = match rng.bool() {
            true => tokio::select! {
                biased;
                over = run(race) => Some(over),
                () = leaves => None,
            },
            false => tokio::select! {
                biased;
                () = leaves => None,
                over = run(race) => Some(over),
            },
        };
        let name = match over {
            None => "caller gone",
            Some((End::Answer(id), _, reply)) => {
                assert_eq!(reply, Some(id), "seed {seed}");
                assert_eq!(plans[id as usize].verdict, Verdict::Answer, "seed {seed}");
                "answer"
            }
            Some((End::Failed(id), _, reply)) => {
                assert_eq!(reply, Some(id), "seed {seed}");
                assert_ne!(plans[id as usize].verdict, Verdict::Answer, "seed {seed}");
                "failed"
            }
            Some((End::Deadline, at, reply)) => {
                assert_eq!((at, reply), (rules.deadline.unwrap(), None), "seed {seed}");
                "deadline"
            }
            Some((End::Unplaced, ..)) => "unplaced",
            Some((End::CallerGone | End::Broken, ..)) => unreachable!("seed {seed}"),
        };
        *ends.entry(name).or_insert(0) += 1;
        world.quiet();
        let notes = world.notes.borrow();
        let last = notes.launched.last().map(|it| it.0);
        assert!(last.is_none_or(|at| gone.is_none_or(|gone| at <= gone)));
        assert!(last.is_none_or(|at| rules.deadline.is_none_or(|it| at < it)));
    }
    assert_eq!(ends.len(), 5, "{ends:?}");
}

/// A race that takes over an original goes the way of one that has launched it.
#[tokio::test(start_paused = true)]
async fn an_original_that_is_taken_over_runs_the_same_race() {
    let mut taken_over = 0;
    for seed in 0..3_000 {
        let rng = &mut Rng::with_seed(seed);
        let rules = Rules {
            max_attempts: rng.u32(1..5),
            max_concurrent: rng.u32(1..4),
            max_hedges: 15,
            hedging: rng.bool(),
            retries: rng.bool(),
            eager: rng.bool(),
            max_unsent: rng.u32(0..3),
            deadline: rng.bool().then(|| any_time(rng)),
        };
        let plans: Vec<_> = (0..8).map(|_| any_plan(rng)).collect();
        let answers = [Answer::Granted(any_time(rng)), Answer::Held];
        let due = [plans[0].runs, plans[0].hedge_after, rules.deadline];
        let soonest = due.into_iter().flatten().min().unwrap_or(ms(50));
        if plans[0].runs.is_none() || rules.deadline == Some(Duration::ZERO) {
            continue;
        }
        taken_over += 1;

        let own = World::default();
        let expected = run(own.asked_race(rules.clone(), &plans, &answers)).await;
        let world = World::default();
        let mut host = Script {
            world: world.clone(),
            plans: plans.clone(),
            answers: answers.to_vec(),
            thinks: None,
            delays: None,
            loan: None,
            spent: Vec::new(),
        };
        let started = Instant::now();
        let original = host.launch(Duration::ZERO, Launch::ORIGINAL).unwrap();
        // Any time until there is something to decide.
        sleep(soonest.mul_f64(f64::from(rng.u32(0..3)) / 2.0)).await;
        let race = Drive::resumed(host, rules, started, Duration::ZERO, original);
        assert_eq!(run(race).await, expected, "seed {seed}");
        world.quiet();
        let (own, taken) = (own.notes.borrow(), world.notes.borrow());
        assert_eq!(taken.launched, own.launched, "seed {seed}");
        assert_eq!(taken.asked, own.asked, "seed {seed}");
        assert_eq!(taken.fates, own.fates, "seed {seed}");
    }
    assert!(taken_over > 1_000, "{taken_over}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "polled again")]
async fn a_finished_race_is_not_polled_again() {
    let world = World::default();
    let mut race = Box::pin(world.race(rules(), &[plan(5, Verdict::Answer)]));
    poll_fn(|cx| race.as_mut().poll(cx).map(drop)).await;
    let _ = poll_once(race.as_mut());
}
