//! The win-rate meter: each decision in a table, the remainder exact, the return on the clock.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use tonic_hedge_engine::{measure::WinRateMeter, policy::WinRate};

/// A window of a minute, so a quarter is 15 s.
const QUARTER: u64 = 15;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn meter(policy: &WinRate) -> WinRateMeter {
    WinRateMeter::new(policy).unwrap()
}

fn hedges(meter: &WinRateMeter, now: Duration, started: u32, won: u32) {
    (0..started).for_each(|_| meter.started(now));
    (0..won).for_each(|_| meter.won(now));
}

/// Hedges started in a quarter, of them won, and the allowance after it.
type Quarter = (u32, u32, f64);

#[test]
fn wr1_each_decision() {
    let tables: [(&str, WinRate, &[Quarter]); 7] = [
        (
            "never wins: halved down to the least",
            WinRate::at_least(0.1),
            &[
                (100, 0, 0.5),
                (100, 0, 0.25),
                (100, 0, 0.125),
                (100, 0, 0.0625),
                (100, 0, 0.05),
                (100, 0, 0.05),
            ],
        ),
        (
            "no least: no floor",
            WinRate::at_least(0.1).minimum_allowance(0.0),
            &[
                (99, 0, 0.5),
                (99, 0, 0.25),
                (99, 0, 0.125),
                (99, 0, 0.0625),
                (99, 0, 0.03125),
            ],
        ),
        (
            "too few for an opinion",
            WinRate::at_least(0.5),
            &[(9, 0, 1.0), (0, 0, 1.0), (0, 0, 1.0), (0, 0, 1.0)],
        ),
        (
            "the window's hedges count, not the quarter's",
            WinRate::at_least(0.5),
            &[(9, 0, 1.0), (1, 0, 0.5), (0, 0, 0.25), (0, 0, 0.125)],
        ),
        (
            "exactly the floor is enough",
            WinRate::at_least(0.3),
            &[(10, 3, 1.0), (10, 3, 1.0), (1, 0, 0.5)],
        ),
        (
            "wr4: old hedges leave, the clock gives back",
            WinRate::at_least(0.1),
            &[
                (10, 0, 0.5),
                (0, 0, 0.25),
                (0, 0, 0.125),
                (0, 0, 0.0625),
                (0, 0, 0.3125),
                (0, 0, 0.5625),
                (0, 0, 0.8125),
                (0, 0, 1.0),
                (0, 0, 1.0),
            ],
        ),
        (
            "wins bring it back at once",
            WinRate::at_least(0.1),
            &[(10, 0, 0.5), (10, 2, 0.75), (10, 2, 1.0)],
        ),
    ];
    for (name, policy, rows) in tables {
        let (read, asked) = (meter(&policy), meter(&policy));
        assert_eq!(read.allowance(at(0)), 1.0);
        for (quarter, &(started, won, allowance)) in (0..).zip(rows) {
            let (begin, end) = (quarter * QUARTER, (quarter + 1) * QUARTER);
            hedges(&read, at(begin), started, won);
            hedges(&asked, at(begin), started, won);
            let before = read.allowance(at(begin));
            let edge = at(end) - Duration::from_nanos(1);
            assert_eq!(
                read.allowance(edge),
                before,
                "{name}: early in quarter {quarter}"
            );
            assert_eq!(
                read.allowance(at(end)),
                allowance,
                "{name}: quarter {quarter}"
            );
        }
        // Asked only at the end, it makes the same decisions.
        let (end, last) = (rows.len() as u64 * QUARTER, rows.last().unwrap().2);
        assert_eq!(asked.allowance(at(end)), last, "{name}");
    }
}

#[test]
fn the_remainder_is_carried_exactly() {
    for (quarters, allowance) in [(1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625), (5, 0.05)] {
        let meter = meter(&WinRate::at_least(0.5));
        for quarter in 0..quarters {
            hedges(&meter, at(quarter * QUARTER), 100, 0);
        }
        let now = at(quarters * QUARTER);
        assert_eq!(meter.allowance(now), allowance);
        let every = (1.0 / allowance) as usize;
        let starts: Vec<_> = (0..10 * every).map(|_| meter.allow(now)).collect();
        for lot in starts.chunks(every) {
            assert_eq!(lot.iter().filter(|it| **it).count(), 1, "one in {every}");
        }
    }
}

#[test]
fn no_allowance_starts_nothing() {
    let meter = meter(&WinRate::at_least(0.5).minimum_allowance(0.0));
    let mut quarter = 0;
    while meter.allowance(at(quarter * QUARTER)) > 0.0 {
        hedges(&meter, at(quarter * QUARTER), 100, 0);
        quarter += 1;
    }
    let now = at(quarter * QUARTER);
    assert!(!(0..10_000).any(|_| meter.allow(now)));
    assert_eq!(
        meter.allowance(at(quarter * QUARTER + 120)),
        1.0,
        "the clock returns"
    );
}

#[test]
fn reading_changes_nothing() {
    let meter = meter(&WinRate::at_least(0.5));
    hedges(&meter, at(0), 10, 0);
    let far = at(10_000);
    assert_eq!(meter.allowance(far), 1.0);
    assert_eq!(meter.win_rate(far), None);
    assert_eq!(
        meter.win_rate(at(0)),
        Some(0.0),
        "reading ahead forgot nothing"
    );
    let now = at(QUARTER);
    assert!(!meter.would_allow(now));
    assert!(!meter.would_allow(now));
    assert!(!meter.allow(now), "half of one");
    assert!(meter.would_allow(now));
    assert!(meter.allow(now));
}

#[test]
fn an_idle_meter_is_as_if_asked_each_quarter() {
    for idle in 0..20 {
        let (idling, asked) = (
            meter(&WinRate::at_least(0.5)),
            meter(&WinRate::at_least(0.5)),
        );
        for quarter in 0..5 {
            hedges(&idling, at(quarter * QUARTER), 50, 0);
            hedges(&asked, at(quarter * QUARTER), 50, 0);
        }
        for quarter in 5..=5 + idle {
            asked.allow(at(quarter * QUARTER));
        }
        let now = at((5 + idle) * QUARTER);
        assert_eq!(
            idling.allowance(now),
            asked.allowance(now),
            "{idle} quarters"
        );
    }
}

#[test]
fn a_late_now_belongs_to_the_current_quarter() {
    let meter = meter(&WinRate::at_least(0.5));
    meter.started(at(100));
    hedges(&meter, at(80), 9, 0);
    assert_eq!(meter.allowance(at(104)), 1.0);
    assert_eq!(meter.allowance(at(105)), 0.5, "all ten count");
}

#[test]
fn a_policy_out_of_bounds_is_refused() {
    let error = WinRateMeter::new(&WinRate::at_least(0.0)).unwrap_err();
    assert_eq!(error.field(), "WinRate.floor");
}

proptest! {
    /// Whatever happens: as many start as the allowances add up to, give or take one.
    #[test]
    fn starts_follow_the_allowance(
        steps in prop::collection::vec((0u64..20, 0u32..30, any::<bool>()), 1..60),
        least in 0.0f64..=1.0,
    ) {
        let meter = meter(&WinRate::at_least(0.5).minimum_allowance(least));
        let (mut now, mut owed, mut started) = (0, 0.0, 0);
        for (seconds, asked, wins) in steps {
            now += seconds;
            for _ in 0..asked {
                let allowance = meter.allowance(at(now));
                prop_assert!(allowance >= least - 1e-6 && allowance <= 1.0);
                owed += allowance;
                let expected = meter.would_allow(at(now));
                prop_assert_eq!(meter.allow(at(now)), expected);
                if expected {
                    started += 1;
                    hedges(&meter, at(now), 1, wins.into());
                }
                prop_assert!(f64::abs(owed - f64::from(started)) < 1.0 + 1e-6);
            }
        }
    }
}
