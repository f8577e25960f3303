//! The breaker: what opens it, who is the probe, and what its windows forget.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tonic_hedge_engine::{
    gate::BreakerState,
    measure::{Admission, Breaker, Probe},
    policy::BreakerPolicy,
};

const OPEN: Option<BreakerState> = Some(BreakerState::Open);
const HALF_OPEN: Option<BreakerState> = Some(BreakerState::HalfOpen);
const CLOSED: Option<BreakerState> = Some(BreakerState::Closed);

/// Late enough that ten minutes have passed.
const START: Duration = Duration::from_secs(10_000);

fn after(seconds: u64) -> Duration {
    START + Duration::from_secs(seconds)
}

/// Opens by its rate only.
fn by_rate() -> Breaker {
    breaker(&BreakerPolicy::default().consecutive(u32::MAX))
}

fn breaker(policy: &BreakerPolicy) -> Breaker {
    Breaker::new(policy).unwrap()
}

/// Records outcomes, `F` a failure and `.` a success, and expects no change.
fn quiet(breaker: &Breaker, now: Duration, outcomes: &str) {
    for outcome in outcomes.chars() {
        assert_eq!(breaker.record(now, outcome == 'F'), None, "{outcomes}");
    }
}

fn opened() -> Breaker {
    let breaker = breaker(&BreakerPolicy::default());
    quiet(&breaker, START, "FFFF");
    assert_eq!(breaker.record(START, true), OPEN);
    breaker
}

fn probe(breaker: &Breaker, now: Duration) -> (Probe, Option<BreakerState>) {
    match breaker.admit(now) {
        Admission::Probe { probe, change } => (probe, change),
        other => panic!("{other:?} is no probe"),
    }
}

fn retry_after(breaker: &Breaker, now: Duration) -> Duration {
    match breaker.admit(now) {
        Admission::Open { retry_after } => retry_after,
        other => panic!("{other:?} is not open"),
    }
}

fn is_closed(breaker: &Breaker, now: Duration) -> bool {
    matches!(breaker.admit(now), Admission::Closed)
}

#[test]
fn br1_trips_by_failures_in_a_row() {
    let breaker = breaker(&BreakerPolicy::default());
    quiet(&breaker, START, "FFFF.FFFF.");
    assert!(is_closed(&breaker, START));
    quiet(&breaker, START, "FFFF");
    assert_eq!(breaker.record(START, true), OPEN);
    assert_eq!(breaker.record(START, true), None, "one event");
    assert_eq!(breaker.reading(START).state, BreakerState::Open);
}

#[test]
fn br1_opens_once_among_threads() {
    let at_once = BreakerPolicy::default().consecutive(1);
    let breakers: Vec<_> = (0..20_000).map(|_| breaker(&at_once)).collect();
    let changes: Vec<_> = breakers.iter().map(|_| AtomicUsize::new(0)).collect();
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                // Whoever comes second has less to do and catches up, so they meet often.
                for (breaker, changes) in breakers.iter().zip(&changes) {
                    let change = breaker.record(START, true);
                    changes.fetch_add(usize::from(change == OPEN), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(changes.iter().all(|it| it.load(Ordering::Relaxed) == 1));
}

#[test]
fn br1_the_rate_needs_its_minimum_of_calls() {
    let breaker = by_rate();
    quiet(&breaker, START, "FFFFFFFFFFFFFFFFFFF");
    assert_eq!(breaker.reading(START).error_rate, None, "19 calls");
    assert_eq!(breaker.record(START, true), OPEN);
}

#[test]
fn a_success_may_complete_the_minimum_of_calls() {
    let breaker = by_rate();
    quiet(&breaker, START, "FFFFFFFFFF.........");
    assert_eq!(breaker.record(START, false), OPEN, "10 of 20");
}

#[test]
fn one_failure_is_not_a_rate() {
    let breaker = breaker(&BreakerPolicy::default().minimum_calls(2).floor(0.1));
    quiet(&breaker, START, "F.");
    assert_eq!(breaker.reading(START).error_rate, None);
    assert_eq!(breaker.record(START, true), OPEN, "2 of 3");
}

#[test]
fn exact_edges_of_the_trip_point() {
    // Without other history the baseline is the window itself, and the ceiling decides.
    let breaker = by_rate();
    quiet(&breaker, START, "FFFFFFFFF...........");
    assert_eq!(breaker.reading(START).error_rate, Some(0.45));
    assert_eq!(breaker.reading(START).trip_point, 0.5);
    assert_eq!(breaker.record(START, true), None, "10 of 21");
    assert_eq!(breaker.record(START, true), OPEN, "11 of 22");

    // A long healthy history: the floor decides.
    let breaker = by_rate();
    for _ in 0..1_000 {
        quiet(&breaker, START, ".");
    }
    quiet(&breaker, after(60), "F..................");
    assert_eq!(breaker.reading(after(60)).trip_point, 0.1);
    assert_eq!(
        breaker.record(after(60), true),
        OPEN,
        "2 of 20 is the floor"
    );

    let breaker = by_rate();
    for _ in 0..1_000 {
        quiet(&breaker, START, ".");
    }
    quiet(&breaker, after(60), "F...................F");
    assert_eq!(breaker.reading(after(60)).error_rate, Some(2.0 / 21.0));
}

#[test]
fn the_trip_point_is_three_times_the_baseline() {
    let breaker = by_rate();
    for call in 0..980 {
        let failed = call % 13 == 12 && call < 962;
        quiet(&breaker, START, if failed { "F" } else { "." });
    }
    assert_eq!(breaker.reading(START).failures, 74);
    quiet(&breaker, after(60), "F...F...F...F.......");
    let reading = breaker.reading(after(60));
    assert_eq!(reading.error_rate, Some(0.2));
    assert_eq!(reading.baseline, Some(0.078));
    assert_eq!(reading.trip_point, 0.234);
    assert_eq!(
        breaker.record(after(60), true),
        OPEN,
        "5 of 21 over 237 of 1,001"
    );

    let usual = by_rate();
    for _ in 0..9 {
        quiet(&usual, START, "F.........");
    }
    quiet(&usual, START, ".........F");
    let reading = usual.reading(START);
    assert_eq!(reading.baseline, Some(0.1));
    assert_eq!(reading.trip_point, 0.3, "exactly");
}

/// Gate 4 looks at what was usual before the window: what fails now is no excuse for itself.
#[test]
fn hedging_keeps_its_distance_from_the_usual_trip_point() {
    let at = |breaker: &Breaker, second| {
        let reading = breaker.reading(after(second));
        (reading.trip_point, reading.hedging_trip_point)
    };
    // Whatever fails in the first window, nothing is usual yet.
    let young = by_rate();
    assert_eq!(at(&young, 0), (0.1, 0.1));
    quiet(&young, START, "FF........");
    assert_eq!(at(&young, 0), (0.5, 0.1));
    // Nineteen outcomes before the window are too few, twenty are enough.
    quiet(&young, START, ".........");
    assert_eq!(at(&young, 40), (6.0 / 19.0, 0.1), "19 before");
    quiet(&young, START, ".");
    assert_eq!(at(&young, 40), (0.3, 0.3), "20 before");
    // The window itself moves the breaker's, and not hedging's.
    quiet(&young, after(40), "FF..................");
    assert_eq!(at(&young, 40), (0.3, 0.3));
    quiet(&young, after(40), "FF..");
    assert_eq!(at(&young, 40), (18.0 / 44.0, 0.3));
    // Until it has moved on.
    assert_eq!(at(&young, 80), (18.0 / 44.0, 18.0 / 44.0));
}

#[test]
fn forty_percent_never_five_in_a_row() {
    // Cold: its own normal is all that it knows, so it stays closed; the gate on the error
    // rate, at half the trip point, is what stops hedging.
    let cold = breaker(&BreakerPolicy::default());
    for second in 0..100 {
        quiet(&cold, after(second), "FF...FF...");
    }
    let reading = cold.reading(after(100));
    assert_eq!(reading.error_rate, Some(0.4));
    assert_eq!(reading.trip_point, 0.5);

    // After ten healthy minutes the rate opens it, though five never fail in a row.
    let warm = breaker(&BreakerPolicy::default());
    for second in 0..600 {
        quiet(&warm, after(second), "..........");
    }
    let tripped = (600..630).find(|&second| {
        let mut outcomes = "FF...FF...".chars();
        outcomes.any(|outcome| warm.record(after(second), outcome == 'F') == OPEN)
    });
    // 4 of 10 calls each second, 300 in the window: 10 % after some seven seconds.
    assert!(tripped.is_some_and(|second| second <= 609), "{tripped:?}");
}

#[test]
fn br2_open_fails_fast_and_is_no_outcome() {
    let breaker = opened();
    let before = breaker.reading(START);
    assert_eq!(retry_after(&breaker, START), Duration::from_secs(5));
    assert_eq!(retry_after(&breaker, after(2)), Duration::from_secs(3));
    assert_eq!(breaker.record(after(2), true), None, "a straggler");
    assert_eq!(breaker.record(after(2), false), None, "closes nothing");
    assert_eq!(breaker.reading(START), before);
    let edge = after(5) - Duration::from_nanos(1);
    assert_eq!(retry_after(&breaker, edge), Duration::from_nanos(1));
    assert_eq!(breaker.reading(edge).state, BreakerState::Open);
    assert_eq!(breaker.reading(after(5)).state, BreakerState::HalfOpen);
    assert_eq!(probe(&breaker, after(5)).1, HALF_OPEN);
}

#[test]
fn br3_one_probe_passes_the_edge() {
    for _ in 0..200 {
        let breaker = opened();
        let start = Barrier::new(100);
        let (probes, changes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done = Barrier::new(100);
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    start.wait();
                    let admission = breaker.admit(after(5));
                    if let Admission::Probe { change, .. } = &admission {
                        probes.fetch_add(1, Ordering::Relaxed);
                        changes.fetch_add(usize::from(change.is_some()), Ordering::Relaxed);
                    }
                    // Nobody gives a place back before all have asked.
                    done.wait();
                });
            }
        });
        assert_eq!(probes.into_inner(), 1);
        assert_eq!(changes.into_inner(), 1);
    }
}

#[test]
fn a_probe_decides() {
    let breaker = opened();
    let (first, _) = probe(&breaker, after(5));
    assert_eq!(retry_after(&breaker, after(6)), Duration::from_secs(5));
    assert_eq!(first.failure(after(7)), OPEN);
    assert_eq!(retry_after(&breaker, after(7)), Duration::from_secs(5));
    let (second, change) = probe(&breaker, after(12));
    assert_eq!(change, HALF_OPEN);
    assert_eq!(second.success(after(13)), CLOSED);
    assert!(is_closed(&breaker, after(13)));
}

#[test]
fn br5_an_abandoned_probe_gives_its_place_back() {
    let breaker = opened();
    let (abandoned, change) = probe(&breaker, after(5));
    assert_eq!(change, HALF_OPEN);
    drop(abandoned);
    assert_eq!(breaker.reading(after(5)).state, BreakerState::HalfOpen);
    let (next, change) = probe(&breaker, after(5));
    assert_eq!(change, None, "it was half-open already");
    retry_after(&breaker, after(5));
    assert_eq!(next.success(after(6)), CLOSED);
}

#[test]
fn a_hanging_probe_does_not_lock_everybody_out() {
    let breaker = opened();
    let (hanging, _) = probe(&breaker, after(5));
    retry_after(&breaker, after(9));
    let (second, change) = probe(&breaker, after(10));
    assert_eq!(change, None);
    retry_after(&breaker, after(11));
    drop(hanging);
    retry_after(&breaker, after(11));
    assert_eq!(second.failure(after(12)), OPEN);

    let (slow, _) = probe(&breaker, after(17));
    let (other, _) = probe(&breaker, after(22));
    assert_eq!(slow.success(after(23)), CLOSED, "late, but it knows");
    assert_eq!(other.failure(after(24)), None, "decided already");
    assert!(is_closed(&breaker, after(24)));
}

#[test]
fn a_probe_of_an_earlier_time_decides_nothing() {
    let breaker = opened();
    let (old, _) = probe(&breaker, after(5));
    let (new, _) = probe(&breaker, after(10));
    assert_eq!(new.failure(after(10)), OPEN);
    let (current, _) = probe(&breaker, after(15));
    assert_eq!(old.success(after(15)), None);
    assert_eq!(breaker.reading(after(15)).state, BreakerState::HalfOpen);
    assert_eq!(current.success(after(16)), CLOSED);
}

#[test]
fn closing_forgets_the_window_but_not_the_baseline() {
    let breaker = by_rate();
    quiet(&breaker, START, "FFFFFFFFFFFFFFFFFFF");
    assert_eq!(breaker.record(START, true), OPEN);
    let (probe, _) = probe(&breaker, after(5));
    assert_eq!(probe.success(after(5)), CLOSED);
    let reading = breaker.reading(after(5));
    assert_eq!((reading.calls, reading.failures), (0, 0));
    assert_eq!(reading.baseline, Some(20.0 / 21.0), "with the probe's");
    quiet(&breaker, after(6), "F..................");
}

#[test]
fn closing_forgets_the_failures_in_a_row() {
    let breaker = opened();
    let (probe, _) = probe(&breaker, after(5));
    assert_eq!(probe.success(after(5)), CLOSED);
    quiet(&breaker, after(5), "FFFF");
    assert_eq!(breaker.record(after(5), true), OPEN);
}

/// Calls that hung through an outage, and fail after it: they say nothing of what is.
#[test]
fn outcomes_from_before_it_opened_do_not_open_it_again() {
    let breaker = opened();
    let (probe, _) = probe(&breaker, after(5));
    assert_eq!(probe.success(after(5)), Some(BreakerState::Closed));
    for _ in 0..100 {
        assert_eq!(breaker.record_of(START, after(6), true), None);
    }
    assert_eq!(breaker.reading(after(6)).calls, 0);
    // Those of calls since then count as ever.
    for _ in 0..4 {
        assert_eq!(breaker.record_of(after(5), after(6), true), None);
    }
    assert_eq!(breaker.record_of(after(5), after(6), true), OPEN);
}

/// What had opened it is not what is usual, for as long as nothing else is known.
#[test]
fn after_it_has_closed_again_hedging_starts_carefully() {
    let breaker = by_rate();
    quiet(&breaker, START, &".".repeat(40));
    while breaker.record(after(31), true) != OPEN {}
    let (probe, _) = probe(&breaker, after(36));
    assert_eq!(probe.success(after(36)), Some(BreakerState::Closed));
    let limit = |second| breaker.reading(after(second)).hedging_trip_point;
    assert_eq!((limit(36), limit(65)), (0.1, 0.1));
    assert_eq!(limit(66), 0.5);
}

#[test]
fn br8_failures_age_out() {
    let breaker = by_rate();
    quiet(&breaker, START, "FFFFFFFFF..........");
    assert_eq!(breaker.reading(after(26)).failures, 9);
    for gap in [30, 31, 300, 100_000] {
        assert_eq!(breaker.reading(after(gap)).calls, 0, "after {gap} s");
    }
    quiet(&breaker, after(30), "F..................");
    assert_eq!(breaker.reading(after(30)).calls, 19);
    assert_eq!(
        breaker.reading(after(599)).baseline.map(|it| it > 0.0),
        Some(true)
    );
    assert_eq!(breaker.reading(after(700)).baseline, None);
}

#[test]
fn br13_nothing_measured() {
    let breaker = breaker(&BreakerPolicy::default());
    for now in [Duration::ZERO, START] {
        let reading = breaker.reading(now);
        assert_eq!((reading.calls, reading.failures), (0, 0));
        assert_eq!(reading.error_rate, None);
        assert_eq!(reading.baseline, None);
        assert_eq!(reading.trip_point, 0.1);
        assert_eq!(reading.hedging_trip_point, 0.1);
    }
}

#[test]
fn a_late_now_is_harmless() {
    let breaker = opened();
    assert_eq!(
        retry_after(&breaker, START - Duration::from_secs(1)),
        Duration::from_secs(6)
    );
    assert_eq!(breaker.reading(Duration::ZERO).state, BreakerState::Open);
}

#[test]
fn a_policy_out_of_bounds_is_refused() {
    let error = Breaker::new(&BreakerPolicy::default().floor(0.6)).unwrap_err();
    assert_eq!(error.field(), "Breaker.floor");
}
