//! The rules of a race, each as a table: at this millisecond this happens, and this follows.

use std::time::Duration;

use tonic_hedge_engine::race::{
    Ask, AttemptId, End, Event, Kind, Launch, MAX_UNSENT, Pushback, Race, Rules, Step, Trigger,
    Unsent, Verdict,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three attempts, two at once, hedged and retried.
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

fn until(deadline: u64) -> Rules {
    Rules {
        deadline: Some(ms(deadline)),
        ..rules()
    }
}

// === Launches ===

const ORIGINAL: Launch = Launch {
    id: 0,
    previous: 0,
    kind: Kind::Original,
    replaces: None,
};

const fn hedge(id: AttemptId) -> Launch {
    Launch {
        id,
        previous: id,
        kind: Kind::Hedge,
        replaces: None,
    }
}

const fn retry(id: AttemptId) -> Launch {
    Launch {
        kind: Kind::Retry,
        ..hedge(id)
    }
}

/// The attempt that goes in the place of `unsent`, with its number and its kind.
const fn in_place_of(unsent: Launch, id: AttemptId) -> Launch {
    Launch {
        id,
        replaces: Some(unsent.id),
        ..unsent
    }
}

// === Events ===

const NEVER: Event = Event::Launched { hedge_after: None };
const YES: Event = granted(0);

fn launched(hedge_after: u64) -> Event {
    Event::Launched {
        hedge_after: Some(ms(hedge_after)),
    }
}

const fn granted(wait: u64) -> Event {
    Event::Granted {
        wait: Duration::from_millis(wait),
    }
}

fn ended(launch: Launch, verdict: Verdict) -> Event {
    Event::Finished { launch, verdict }
}

fn answers(launch: Launch) -> Event {
    ended(launch, Verdict::Answer)
}

fn fails(launch: Launch) -> Event {
    ended(launch, Verdict::Failure(Pushback::None))
}

fn pushes_back(launch: Launch, delay: u64) -> Event {
    ended(launch, Verdict::Failure(Pushback::After(ms(delay))))
}

fn stops(launch: Launch) -> Event {
    ended(launch, Verdict::Failure(Pushback::Stop))
}

fn is_never_sent(launch: Launch) -> Event {
    ended(launch, Verdict::Unsent(Unsent::NeverSent))
}

fn is_refused(launch: Launch) -> Event {
    ended(launch, Verdict::Unsent(Unsent::Refused))
}

// === Steps ===

const GO: Step = Step::Launch(ORIGINAL);
const WAIT: Step = Step::Wait { until: None };
const ON_THRESHOLD: Step = Step::Ask(Ask::Hedge(Trigger::Threshold));
const ON_FAILURE: Step = Step::Ask(Ask::Hedge(Trigger::Failure));
const AFTER_PUSHBACK: Step = Step::Ask(Ask::Retry { backoff: None });

fn backoff(count: u32) -> Step {
    Step::Ask(Ask::Retry {
        backoff: Some(count),
    })
}

fn wait(until: u64) -> Step {
    Step::Wait {
        until: Some(ms(until)),
    }
}

fn answer(id: AttemptId) -> Step {
    Step::End(End::Answer(id))
}

fn failed(id: AttemptId) -> Step {
    Step::End(End::Failed(id))
}

const OUT_OF_TIME: Step = Step::End(End::Deadline);

/// Plays a script from the start of a call.
#[track_caller]
fn play(rules: Rules, script: &[(u64, Event, Step)]) -> Race {
    let mut race = Race::new(rules);
    for (line, &(now, event, expected)) in script.iter().enumerate() {
        let step = race.on(ms(now), event);
        assert_eq!(step, expected, "line {line}: at {now} ms, {event:?}");
    }
    race
}

use Event::{CallerGone, Held, Start, Tick, Unplaced};

// === Who wins ===

#[test]
fn rc1_a_fast_original_is_alone() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, answers(ORIGINAL), answer(0)),
    ];
    let race = play(rules(), &script);
    assert_eq!(race.charged(), 1);
}

#[test]
fn rc2_a_hedge_wins() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, answers(hedge(1)), answer(1)),
    ];
    play(rules(), &script);
}

#[test]
fn rc3_the_original_wins_late() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (70, answers(ORIGINAL), answer(0)),
    ];
    play(rules(), &script);
}

#[test]
fn bu2_a_held_hedge_leaves_the_original_alone() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, Held, WAIT),
        (80, answers(ORIGINAL), answer(0)),
    ];
    play(rules(), &script);
}

#[test]
fn ec2_a_hedge_without_an_endpoint_is_not_charged() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, Unplaced, WAIT),
    ];
    let mut race = play(rules(), &script);
    assert_eq!((race.charged(), race.in_flight()), (1, 1));
    assert_eq!(race.on(ms(60), answers(ORIGINAL)), answer(0));
}

#[test]
fn an_original_without_an_endpoint_ends_it() {
    let script = [(0, Start, GO), (0, Unplaced, Step::End(End::Unplaced))];
    play(rules(), &script);
}

// === Failures ===

#[test]
fn rc6_a_failure_beside_another_attempt_starts_the_next_at_once() {
    let three = Rules {
        max_attempts: 4,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, fails(ORIGINAL), ON_FAILURE),
        (60, YES, Step::Launch(hedge(2))),
        (60, launched(50), WAIT),
        (120, answers(hedge(1)), answer(1)),
    ];
    play(three, &script);
}

#[test]
fn the_threshold_counts_again_from_the_attempt_that_a_failure_started() {
    let rules = Rules {
        max_attempts: 4,
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), wait(100)),
        (60, fails(hedge(1)), ON_FAILURE),
        (60, YES, Step::Launch(hedge(2))),
        (60, launched(50), wait(110)),
        (110, Tick, ON_THRESHOLD),
    ];
    play(rules, &script);
}

/// The one hedge that a call may have has failed: the original is waited for, and when that fails
/// too a retry follows, as after any failure.
#[test]
fn one_hedge_is_one_however_it_ends() {
    let one = Rules {
        max_hedges: 1,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, fails(hedge(1)), WAIT),
        (900, fails(ORIGINAL), backoff(0)),
        (900, granted(25), wait(925)),
        (925, Tick, Step::Launch(retry(2))),
    ];
    play(one.clone(), &script);
    // The other way round likewise: nothing joins the hedge that runs.
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, fails(ORIGINAL), WAIT),
        (90, answers(hedge(1)), answer(1)),
    ];
    play(one.clone(), &script);
    // One that found no endpoint was none.
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (50, Event::HedgeDue { at: ms(50) }, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, Event::Unplaced, WAIT),
        (80, Event::HedgeDue { at: ms(80) }, ON_THRESHOLD),
    ];
    play(one, &script);
}

#[test]
fn rc5_a_failure_alone_is_retried_after_a_backoff() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), backoff(0)),
        (5, granted(20), wait(25)),
        (24, Tick, wait(25)),
        (25, Tick, Step::Launch(retry(1))),
        (25, launched(50), wait(75)),
        (30, fails(retry(1)), backoff(1)),
        (30, granted(40), wait(70)),
        (70, Tick, Step::Launch(retry(2))),
        (70, launched(50), WAIT),
        (80, fails(retry(2)), failed(2)),
    ];
    play(rules(), &script);
}

#[test]
fn a_retry_may_be_hedged() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), backoff(0)),
        (5, granted(0), Step::Launch(retry(1))),
        (5, launched(50), wait(55)),
        (55, Tick, ON_THRESHOLD),
        (55, YES, Step::Launch(hedge(2))),
    ];
    play(rules(), &script);
}

/// grpc-java#7222: the call hung until its deadline.
#[test]
fn b01_a_refused_retry_ends_at_once() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), backoff(0)),
        (5, Held, failed(0)),
    ];
    play(until(15_000), &script);
}

#[test]
fn rc7_a_fatal_answer_ends_it_beside_another_attempt() {
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, WAIT),
        (60, answers(ORIGINAL), answer(0)),
        (61, fails(hedge(1)), WAIT),
    ];
    play(rules(), &script);
}

#[test]
fn rc8_when_all_fail_the_last_failure_counts() {
    for (first, last) in [(ORIGINAL, hedge(1)), (hedge(1), ORIGINAL)] {
        let two = Rules {
            max_attempts: 2,
            ..rules()
        };
        let script = [
            (0, Start, GO),
            (0, launched(50), wait(50)),
            (50, Tick, ON_THRESHOLD),
            (50, YES, Step::Launch(hedge(1))),
            (50, launched(50), WAIT),
            (60, fails(first), WAIT),
            (80, fails(last), failed(last.id)),
        ];
        play(two, &script);
    }
}

#[test]
fn rc18_an_older_attempt_answers_after_the_newer_failed() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, fails(hedge(1)), ON_FAILURE),
        (60, Held, WAIT),
        (90, answers(ORIGINAL), answer(0)),
    ];
    play(rules(), &script);
}

#[test]
fn without_retries_a_failure_alone_ends_it() {
    let rules = Rules {
        retries: false,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), failed(0)),
    ];
    play(rules, &script);
}

#[test]
fn without_hedging_a_threshold_starts_nothing() {
    let rules = Rules {
        hedging: false,
        ..rules()
    };
    play(rules, &[(0, Start, GO), (0, launched(50), WAIT)]);
}

// === How many ===

#[test]
fn rc16_max_attempts_counts_retries_and_hedges_together() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), backoff(0)),
        (5, granted(0), Step::Launch(retry(1))),
        (5, launched(10), wait(15)),
        (15, Tick, ON_THRESHOLD),
        (15, YES, Step::Launch(hedge(2))),
        (15, launched(10), WAIT),
        (20, fails(retry(1)), WAIT),
        (30, fails(hedge(2)), failed(2)),
    ];
    let race = play(rules(), &script);
    assert_eq!(race.charged(), 3);
}

#[test]
fn b87_a_threshold_of_zero_starts_all_that_are_allowed() {
    let rules = Rules {
        max_attempts: 5,
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(2))),
        (0, launched(0), WAIT),
    ];
    let race = play(rules, &script);
    assert_eq!(race.in_flight(), 3);
}

fn due(at: u64) -> Event {
    Event::HedgeDue { at: ms(at) }
}

/// The delay turns out while the original runs: it counts from the launch, also where it is over
/// by then.
#[test]
fn a_delay_that_turns_out_later_counts_from_the_launch() {
    for (told, at) in [(30, 50), (50, 50), (60, 50)] {
        let mut script = vec![(0, Start, GO), (0, NEVER, WAIT)];
        match told < at {
            true => script.extend([(told, due(at), wait(at)), (at, Tick, ON_THRESHOLD)]),
            false => script.push((told, due(at), ON_THRESHOLD)),
        }
        let asked = told.max(at);
        script.extend([
            (asked, YES, Step::Launch(hedge(1))),
            (asked, NEVER, WAIT),
            (99, answers(hedge(1)), answer(1)),
        ]);
        play(rules(), &script);
    }
}

/// Launches at 0, 100 and 400: each delay is its own.
#[test]
fn each_delay_counts_from_the_newest_launch() {
    let three = Rules {
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(100), wait(100)),
        (100, Tick, ON_THRESHOLD),
        (100, YES, Step::Launch(hedge(1))),
        (100, launched(300), wait(400)),
        (400, Tick, ON_THRESHOLD),
        (400, YES, Step::Launch(hedge(2))),
        (400, NEVER, WAIT),
    ];
    play(three, &script);
}

/// A failure starts the next attempt at once, whatever the delay will say; then it says nothing.
#[test]
fn a_failure_does_not_wait_for_a_delay() {
    let three = Rules {
        max_attempts: 4,
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, WAIT),
        (5, fails(ORIGINAL), ON_FAILURE),
        (5, due(7), WAIT),
        (5, YES, Step::Launch(hedge(2))),
        (5, due(7), WAIT),
        (5, NEVER, WAIT),
        (9, answers(hedge(2)), answer(2)),
    ];
    play(three, &script);
}

/// Whoever cannot say when a hedge is due ends the race, in each state.
#[test]
fn a_broken_delay_ends_the_race() {
    const BROKEN: Step = Step::End(End::Broken);
    let flying = [(0, Start, GO), (0, NEVER, WAIT)];
    play(
        rules(),
        &[&flying[..], &[(3, Event::Broken, BROKEN)]].concat(),
    );
    play(rules(), &[(0, Start, GO), (0, Event::Broken, BROKEN)]);
    let asking = [(0, Start, GO), (0, launched(0), ON_THRESHOLD)];
    play(
        rules(),
        &[&asking[..], &[(0, Event::Broken, BROKEN)]].concat(),
    );
}

/// A delay is wanted only where an attempt could follow.
#[test]
fn a_delay_is_wanted_where_an_attempt_could_follow() {
    let wants = |rules: Rules, script: &[(u64, Event, Step)]| play(rules, script).wants_delay();
    let start = (0, Start, GO);
    assert!(wants(rules(), &[start]));
    assert!(wants(rules(), &[start, (0, NEVER, WAIT)]));
    assert!(
        !wants(rules(), &[start, (0, launched(50), wait(50))]),
        "it is known"
    );
    let two = [
        start,
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
    ];
    assert!(!wants(rules(), &two), "two at once is all");
    let single = Rules::single(None);
    assert!(!wants(single, &[start]));
    let stopped = [
        start,
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, WAIT),
        (1, stops(ORIGINAL), WAIT),
    ];
    assert!(!wants(rules(), &stopped));
}

#[test]
fn max_concurrent_frees_a_place_when_an_attempt_fails() {
    let rules = Rules {
        max_attempts: 4,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, launched(0), WAIT),
        (100, Tick, WAIT),
        (200, fails(ORIGINAL), ON_FAILURE),
    ];
    play(rules, &script);
}

// === Pushback (gRFC A6) ===

#[test]
fn pb1_stop_is_sticky_and_leaves_what_runs() {
    let rules = Rules {
        max_attempts: 5,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, stops(hedge(1)), WAIT),
        (90, fails(ORIGINAL), failed(0)),
    ];
    play(rules.clone(), &script);
    let alone = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, stops(ORIGINAL), failed(0)),
    ];
    play(rules, &alone);
}

#[test]
fn pb1_stop_disarms_a_hedge_that_is_due_later() {
    let rules = Rules {
        max_attempts: 5,
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), wait(100)),
        (60, stops(hedge(1)), WAIT),
    ];
    play(rules, &script);
}

#[test]
fn pb2_a_delay_is_exact_and_restarts_the_backoff() {
    let rules = Rules {
        max_attempts: 5,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, fails(ORIGINAL), backoff(0)),
        (5, granted(25), wait(30)),
        (30, Tick, Step::Launch(retry(1))),
        (30, NEVER, WAIT),
        (40, pushes_back(retry(1), 200), AFTER_PUSHBACK),
        // Whatever the host draws.
        (40, granted(999), wait(240)),
        (239, Tick, wait(240)),
        (240, Tick, Step::Launch(retry(2))),
        (240, NEVER, WAIT),
        (240, fails(retry(2)), backoff(0)),
    ];
    play(rules, &script);
}

#[test]
fn pb2_a_delay_of_zero_overrides_the_backoff_too() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, pushes_back(ORIGINAL, 0), AFTER_PUSHBACK),
        (5, granted(25), Step::Launch(retry(1))),
        (5, NEVER, WAIT),
        (5, fails(retry(1)), backoff(0)),
    ];
    play(rules(), &script);
}

#[test]
fn pb4_a_delay_beyond_the_deadline_ends_it_now() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, pushes_back(ORIGINAL, 995), failed(0)),
    ];
    play(until(1_000), &script);
    let within = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (5, pushes_back(ORIGINAL, 994), AFTER_PUSHBACK),
    ];
    play(until(1_000), &within);
}

#[test]
fn pb6_a_delay_holds_hedges_back() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, pushes_back(hedge(1), 500), wait(560)),
        (560, Tick, ON_FAILURE),
        (560, YES, Step::Launch(hedge(2))),
    ];
    play(rules(), &script);
}

#[test]
fn pb6_a_plain_failure_does_not_shorten_a_delay() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), WAIT),
        (60, pushes_back(hedge(1), 500), wait(560)),
        (70, fails(ORIGINAL), AFTER_PUSHBACK),
        (70, YES, wait(560)),
        (560, Tick, Step::Launch(retry(2))),
    ];
    play(rules(), &script);
}

#[test]
fn pb5_pushback_after_the_end_is_ignored() {
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, WAIT),
        (10, answers(ORIGINAL), answer(0)),
        (11, pushes_back(hedge(1), 0), WAIT),
        (11, Tick, WAIT),
    ];
    play(rules(), &script);
}

// === Deadline ===

#[test]
fn dl3_a_deadline_that_has_passed_sends_nothing() {
    let race = play(until(0), &[(0, Start, OUT_OF_TIME)]);
    assert_eq!(race.charged(), 0);
    play(until(50), &[(50, Start, OUT_OF_TIME)]);
}

#[test]
fn dl1_the_deadline_ends_a_race_in_flight() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, launched(50), wait(200)),
        (199, Tick, wait(200)),
        (200, Tick, OUT_OF_TIME),
    ];
    play(until(200), &script);
}

#[test]
fn dl4_a_backoff_that_reaches_the_deadline_is_not_waited_for() {
    let script = [
        (0, Start, GO),
        (0, NEVER, wait(200)),
        (150, fails(ORIGINAL), backoff(0)),
        (150, granted(50), failed(0)),
    ];
    play(until(200), &script);
    let within = [
        (0, Start, GO),
        (0, NEVER, wait(200)),
        (150, fails(ORIGINAL), backoff(0)),
        (150, granted(49), wait(199)),
        // The host is late.
        (200, Tick, OUT_OF_TIME),
    ];
    play(until(200), &within);
}

#[test]
fn dl4_the_deadline_during_a_pushback() {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
        (50, YES, Step::Launch(hedge(1))),
        (50, NEVER, wait(200)),
        (60, pushes_back(hedge(1), 500), wait(200)),
        (200, Tick, OUT_OF_TIME),
    ];
    play(until(200), &script);
}

#[test]
fn dl4_the_deadline_while_an_answer_is_owed() {
    let asked = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
    ];
    let mut race = play(until(200), &asked);
    assert_eq!(race.clone().on(ms(200), Tick), OUT_OF_TIME);
    assert_eq!(race.clone().on(ms(200), YES), OUT_OF_TIME);
    assert_eq!(race.clone().on(ms(200), Held), OUT_OF_TIME);
    assert_eq!(race.on(ms(50), YES), Step::Launch(hedge(1)));
    assert_eq!(race.clone().on(ms(200), Unplaced), OUT_OF_TIME);
    assert_eq!(race.on(ms(200), launched(50)), OUT_OF_TIME);
    assert_eq!(race.in_flight(), 2, "both are discarded");
}

#[test]
fn th13_a_threshold_at_or_beyond_the_deadline_starts_nothing() {
    for threshold in [30, 31, 50_000] {
        let script = [
            (0, Start, GO),
            (0, launched(threshold), wait(30)),
            (30, Tick, OUT_OF_TIME),
        ];
        play(until(30), &script);
    }
}

#[test]
fn dl8_nothing_starts_for_a_failure_at_the_deadline() {
    let script = [
        (0, Start, GO),
        (0, NEVER, wait(200)),
        (200, fails(ORIGINAL), failed(0)),
    ];
    play(until(200), &script);
    let beside = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, wait(200)),
        (200, fails(ORIGINAL), OUT_OF_TIME),
    ];
    play(until(200), &beside);
}

#[test]
fn an_answer_that_is_seen_after_the_deadline_counts() {
    let script = [
        (0, Start, GO),
        (0, NEVER, wait(200)),
        (201, answers(ORIGINAL), answer(0)),
    ];
    play(until(200), &script);
}

#[test]
fn dl6_the_longest_times_do_not_overflow() {
    let never = Event::Launched {
        hedge_after: Some(Duration::MAX),
    };
    let longest = Step::Wait {
        until: Some(Duration::MAX),
    };
    let rules = Rules {
        deadline: Some(Duration::MAX),
        ..rules()
    };
    let script = [(0, Start, GO), (7, never, longest)];
    let mut race = play(rules.clone(), &script);
    let endless = Verdict::Failure(Pushback::After(Duration::MAX));
    let step = race.on(ms(10), ended(ORIGINAL, endless));
    assert_eq!(step, failed(0), "that is the deadline");

    let script = [
        (0, Start, GO),
        (7, NEVER, longest),
        (9, fails(ORIGINAL), backoff(0)),
    ];
    let mut race = play(rules, &script);
    let wait = Duration::MAX;
    assert_eq!(race.on(ms(9), Event::Granted { wait }), failed(0));
}

// === The caller goes ===

#[test]
fn ca1_to_ca4_a_caller_that_goes_ends_it_in_each_state() {
    let states: [&[(u64, Event, Step)]; 6] = [
        &[],
        &[(0, Start, GO)],
        &[(0, Start, GO), (0, launched(50), wait(50))],
        &[
            (0, Start, GO),
            (0, launched(50), wait(50)),
            (50, Tick, ON_THRESHOLD),
        ],
        &[
            (0, Start, GO),
            (0, launched(0), ON_THRESHOLD),
            (0, YES, Step::Launch(hedge(1))),
            (0, NEVER, WAIT),
        ],
        &[
            (0, Start, GO),
            (0, NEVER, WAIT),
            (5, fails(ORIGINAL), backoff(0)),
            (5, granted(20), wait(25)),
        ],
    ];
    for state in states {
        let mut race = play(rules(), state);
        let now = ms(1_000);
        assert_eq!(race.on(now, CallerGone), Step::End(End::CallerGone));
        for late in [Start, Tick, YES, Held, Unplaced, NEVER, answers(ORIGINAL)] {
            assert_eq!(race.on(now, late), WAIT, "{late:?}");
        }
    }
}

// === Never processed ===

#[test]
fn a_never_sent_attempt_is_replaced_free_of_charge_and_keeps_its_number() {
    let second = in_place_of(ORIGINAL, 1);
    let third = in_place_of(second, 2);
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (1, is_never_sent(ORIGINAL), Step::Launch(second)),
        (1, NEVER, WAIT),
        (2, is_never_sent(second), Step::Launch(third)),
        (2, NEVER, WAIT),
        (9, answers(third), answer(2)),
    ];
    let race = play(Rules::single(None), &script);
    assert_eq!(race.charged(), 1);
}

#[test]
fn a_never_sent_hedge_is_replaced_at_once() {
    let again = in_place_of(hedge(1), 2);
    let script = [
        (0, Start, GO),
        (0, launched(20), wait(20)),
        (20, Tick, ON_THRESHOLD),
        (20, YES, Step::Launch(hedge(1))),
        (20, launched(20), WAIT),
        (21, is_never_sent(hedge(1)), Step::Launch(again)),
        (21, launched(20), WAIT),
        (80, answers(ORIGINAL), answer(0)),
    ];
    let race = play(rules(), &script);
    assert_eq!(race.charged(), 2);
}

#[test]
fn replacements_are_capped() {
    let rules = Rules {
        eager: false,
        max_unsent: 1,
        ..Rules::single(None)
    };
    let second = in_place_of(ORIGINAL, 1);
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (1, is_never_sent(ORIGINAL), Step::Launch(second)),
        (1, NEVER, WAIT),
        (2, is_never_sent(second), failed(1)),
    ];
    play(rules, &script);
}

#[test]
fn b10_a_refused_stream_is_replaced_once() {
    let second = in_place_of(ORIGINAL, 1);
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (1, is_refused(ORIGINAL), Step::Launch(second)),
        (1, NEVER, WAIT),
        (2, is_refused(second), failed(1)),
    ];
    play(Rules::single(None), &script);
}

/// grpc-java#10011: the safe replacement was not made.
#[test]
fn b06_a_replacement_needs_no_attempt_that_is_left() {
    let one = Rules {
        max_attempts: 1,
        ..rules()
    };
    let second = in_place_of(ORIGINAL, 1);
    let third = in_place_of(second, 2);
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (1, is_refused(ORIGINAL), Step::Launch(second)),
        (1, NEVER, WAIT),
        (2, is_never_sent(second), Step::Launch(third)),
        (2, NEVER, WAIT),
        (3, answers(third), answer(2)),
    ];
    play(one, &script);
}

#[test]
fn a_replacement_ignores_pushback() {
    let again = in_place_of(hedge(1), 2);
    let three = Rules {
        max_concurrent: 3,
        ..rules()
    };
    let script = [
        (0, Start, GO),
        (0, launched(0), ON_THRESHOLD),
        (0, YES, Step::Launch(hedge(1))),
        (0, NEVER, WAIT),
        (5, stops(ORIGINAL), WAIT),
        (6, is_never_sent(hedge(1)), Step::Launch(again)),
    ];
    play(three, &script);
}

#[test]
fn a_replacement_that_finds_no_endpoint_is_a_failure() {
    let second = in_place_of(ORIGINAL, 1);
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (1, is_never_sent(ORIGINAL), Step::Launch(second)),
        (1, Unplaced, backoff(0)),
        (1, Held, failed(0)),
    ];
    play(rules(), &script);
    let single = [script[0], script[1], script[2], (1, Unplaced, failed(0))];
    play(Rules::single(None), &single);
}

#[test]
fn a_replacement_that_finds_no_endpoint_leaves_the_others() {
    let again = in_place_of(hedge(1), 2);
    let script = [
        (0, Start, GO),
        (0, launched(20), wait(20)),
        (20, Tick, ON_THRESHOLD),
        (20, YES, Step::Launch(hedge(1))),
        (20, launched(20), WAIT),
        (21, is_never_sent(hedge(1)), Step::Launch(again)),
        (21, Unplaced, WAIT),
    ];
    let race = play(rules(), &script);
    assert_eq!((race.charged(), race.in_flight()), (1, 1));
}

#[test]
fn a_never_sent_attempt_is_not_replaced_after_the_deadline() {
    let script = [
        (0, Start, GO),
        (0, NEVER, wait(50)),
        (50, is_never_sent(ORIGINAL), failed(0)),
    ];
    play(until(50), &script);
}

#[test]
fn a_retry_without_an_endpoint_ends_with_the_failure() {
    let script = [
        (0, Start, GO),
        (0, NEVER, WAIT),
        (5, fails(ORIGINAL), backoff(0)),
        (5, YES, Step::Launch(retry(1))),
        (5, Unplaced, failed(0)),
    ];
    play(rules(), &script);
}

// === What happens while the host owes an answer ===

/// The question is out, one attempt runs.
fn asked(rules: Rules) -> Race {
    let script = [
        (0, Start, GO),
        (0, launched(50), wait(50)),
        (50, Tick, ON_THRESHOLD),
    ];
    play(rules, &script)
}

#[test]
fn b02_an_answer_ends_it_while_a_hedge_is_asked_for_or_launched() {
    let mut race = asked(rules());
    assert_eq!(race.clone().on(ms(51), answers(ORIGINAL)), answer(0));
    assert_eq!(race.on(ms(51), YES), Step::Launch(hedge(1)));
    assert_eq!(race.on(ms(52), answers(ORIGINAL)), answer(0));
    assert_eq!(race.on(ms(53), launched(50)), WAIT);
    assert_eq!(race.in_flight(), 0);
}

#[test]
fn a_hedge_that_is_granted_too_late_is_a_retry() {
    let mut race = asked(rules());
    assert_eq!(race.on(ms(51), fails(ORIGINAL)), WAIT);
    assert_eq!(race.on(ms(52), YES), Step::Launch(retry(1)));
}

#[test]
fn a_hedge_that_is_held_too_late_leaves_a_retry() {
    let mut race = asked(rules());
    assert_eq!(race.on(ms(51), fails(ORIGINAL)), WAIT);
    assert_eq!(race.on(ms(52), Held), backoff(0));
}

#[test]
fn a_stop_beats_a_grant_that_comes_later() {
    let mut race = asked(rules());
    assert_eq!(race.on(ms(51), stops(ORIGINAL)), WAIT);
    assert_eq!(race.on(ms(52), YES), failed(0));
}

#[test]
fn a_pushback_beats_a_grant_that_comes_later() {
    let mut race = asked(rules());
    assert_eq!(race.on(ms(51), pushes_back(ORIGINAL, 100)), WAIT);
    assert_eq!(race.on(ms(52), YES), wait(151));
    assert_eq!(race.on(ms(151), Tick), Step::Launch(retry(1)));
}

#[test]
fn an_attempt_is_replaced_when_the_question_is_answered() {
    for (verdict, next) in [(Held, None), (YES, Some(hedge(1)))] {
        let mut race = asked(rules());
        assert_eq!(race.on(ms(51), is_never_sent(ORIGINAL)), WAIT);
        let mut step = race.on(ms(52), verdict);
        if let Some(hedge) = next {
            assert_eq!(step, Step::Launch(hedge));
            step = race.on(ms(52), NEVER);
        }
        let id = 1 + next.map_or(0, |_| 1);
        assert_eq!(step, Step::Launch(in_place_of(ORIGINAL, id)));
        race.on(ms(52), NEVER);
        assert_eq!(race.in_flight(), id);
        assert_eq!(race.charged(), id);
    }
}
