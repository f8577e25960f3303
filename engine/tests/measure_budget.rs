//! The budget: never more granted than there is, whatever the order and the contention.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tonic_hedge_engine::{measure::Budget, policy::BudgetPolicy};

const NOW: Duration = Duration::ZERO;

fn budget(ratio: f64, capacity: f64, initial: f64, reserve: f64) -> Budget {
    let policy = BudgetPolicy::default()
        .ratio(ratio)
        .capacity(capacity)
        .initial(initial)
        .reserve(reserve);
    Budget::new(&policy).unwrap()
}

fn drain(budget: &Budget, now: Duration) -> u64 {
    (0..).take_while(|_| budget.try_withdraw(now)).count() as u64
}

#[test]
fn bu1_empty() {
    let budget = budget(0.2, 100.0, 0.0, 0.0);
    assert!(!budget.try_withdraw(NOW));
    assert_eq!(budget.balance(NOW), 0.0);
    assert!(!budget.try_withdraw(Duration::from_secs(86_400)));
}

#[test]
fn bu4_contention() {
    for round in 0..300u32 {
        let tokens = round % 40;
        let budget = budget(0.0, 100.0, f64::from(tokens) + 0.999_999, 0.0);
        let granted = AtomicU64::new(0);
        let start = Barrier::new(64);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    start.wait();
                    granted.fetch_add(u64::from(budget.try_withdraw(NOW)), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(granted.into_inner(), u64::from(tokens));
        assert_eq!(budget.balance(NOW), 0.999_999);
    }
}

#[test]
fn bu4_contention_over_the_reserve() {
    for _ in 0..100 {
        let budget = budget(0.0, 100.0, 0.0, 10.0);
        let granted = AtomicU64::new(0);
        let start = Barrier::new(64);
        let (budget, granted, start) = (&budget, &granted, &start);
        thread::scope(|scope| {
            for i in 0..64 {
                scope.spawn(move || {
                    start.wait();
                    // All see three seconds pass, in any order.
                    for step in 0..=3 {
                        let now = Duration::from_secs((i + step) % 4);
                        granted.fetch_add(u64::from(budget.try_withdraw(now)), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.load(Ordering::Relaxed), 30);
    }
}

/// BU6: tokens have no date: an idle hour neither adds to them nor takes any away.
#[test]
fn bu6_nothing_expires() {
    let budget = budget(0.2, 100.0, 7.0, 0.0);
    assert_eq!(budget.balance(Duration::from_secs(3_600)), 7.0);
    assert_eq!(drain(&budget, Duration::from_secs(7_200)), 7);
}

/// BU8: at one call a second a hundredth of the calls is one attempt in 100 s, and a reserve of a
/// tenth one in ten: there is no other floor.
#[test]
fn bu8_low_traffic() {
    for (reserve, granted) in [(0.0, 10), (0.1, 110)] {
        let budget = budget(0.01, 100.0, 0.0, reserve);
        let mut further = 0;
        for second in 1..=1_000 {
            let now = Duration::from_secs(second);
            budget.deposit(now);
            further += drain(&budget, now);
        }
        assert_eq!(further, granted);
    }
}

/// BU15: whoever holds the budget has the new ratio, and what it holds is carried over.
#[test]
fn bu15_live_change() {
    let budget = budget(0.5, 100.0, 3.0, 0.0);
    let old = budget.clone();
    old.deposit(Duration::ZERO);
    budget.set_ratio(0.25).unwrap();
    assert_eq!(old.balance(Duration::ZERO), 3.5);
    old.deposit(Duration::ZERO);
    assert_eq!(budget.balance(Duration::ZERO), 3.75);
    for wrong in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(budget.set_ratio(wrong).unwrap_err().field(), "Budget.ratio");
    }
    old.deposit(Duration::ZERO);
    assert_eq!(budget.balance(Duration::ZERO), 4.0);
}

#[test]
fn bu11_total_outage() {
    let budget = budget(0.2, 100.0, 10.0, 0.0);
    let retries = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                for _ in 0..157 {
                    budget.deposit(NOW);
                    while budget.try_withdraw(NOW) {
                        retries.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let calls = 64 * 157;
    assert_eq!(retries.into_inner(), 10 + calls / 5);
}

#[test]
fn bu12_attempts_do_not_fund_themselves() {
    let budget = budget(0.2, 1_000.0, 0.0, 0.0);
    let mut retried = 0;
    for call in 0..1_000 {
        budget.deposit(NOW);
        // Every other call would like two more attempts.
        for _ in 0..if call % 2 == 0 { 2 } else { 0 } {
            retried += u64::from(budget.try_withdraw(NOW));
        }
    }
    assert_eq!(retried + drain(&budget, NOW), 200);
}

#[test]
fn bu13_recovery() {
    let budget = budget(0.2, 100.0, 10.0, 0.0);
    assert_eq!(drain(&budget, NOW), 10);
    for _ in 0..4 {
        budget.deposit(NOW);
        assert!(!budget.try_withdraw(NOW));
    }
    budget.deposit(NOW);
    assert!(budget.try_withdraw(NOW), "five calls pay for one attempt");
    for _ in 0..10_000 {
        budget.deposit(NOW);
    }
    assert_eq!(drain(&budget, NOW), 100);
}

#[test]
fn bu14_clamp() {
    let budget = budget(0.7, 100.0, 100.0, 100.0);
    for second in 0..86_400 {
        let now = Duration::from_secs(second);
        budget.deposit(now);
        budget.refund();
        assert!(budget.balance(now) <= 100.0);
    }
    let day = Duration::from_secs(86_400);
    assert_eq!(budget.balance(day), 100.0);
    assert_eq!(drain(&budget, day), 100, "not a day's reserve");
}

#[test]
fn the_ratio_is_exact() {
    for (ratio, calls, tokens) in [
        (0.4, 5, 2),
        (0.7, 10, 7),
        (0.5466, 5_000, 2_733),
        (0.001, 1_000, 1),
        (0.1, 10, 1),
        (1.0, 3, 3),
        (0.0, 1_000, 0),
    ] {
        let budget = budget(ratio, 1e6, 0.0, 0.0);
        let mut granted = 0;
        for _ in 1..calls {
            budget.deposit(NOW);
            granted += drain(&budget, NOW);
        }
        assert!(granted <= tokens, "ratio {ratio}");
        budget.deposit(NOW);
        assert_eq!(granted + drain(&budget, NOW), tokens, "ratio {ratio}");
        assert_eq!(budget.balance(NOW), 0.0, "ratio {ratio}");
    }
}

#[test]
fn the_reserve_accrues_without_losing_a_fraction() {
    let budget = budget(0.0, 10.0, 0.0, 0.3);
    let mut granted = 0;
    // Asked 3,000 times a second, for 100 s.
    for step in 0..=300_000u64 {
        granted += u64::from(budget.try_withdraw(Duration::from_nanos(step * 333_334)));
    }
    assert_eq!(granted, 30);
}

#[test]
fn reading_the_balance_changes_nothing() {
    let budget = budget(0.0, 10.0, 1.0, 1.0);
    let at = Duration::from_millis;
    assert_eq!(budget.balance(at(2_500)), 3.5);
    assert_eq!(budget.balance(at(500)), 1.5, "nothing was added");
    assert_eq!(budget.balance(at(1_000_000)), 10.0);
    assert!(budget.try_withdraw(at(2_500)));
    assert_eq!(budget.balance(at(2_500)), 2.5);
    assert_eq!(budget.balance(at(0)), 2.5, "a late now takes nothing away");
}

#[test]
fn a_clone_is_the_same_budget() {
    let (one, two) = {
        let budget = budget(0.5, 10.0, 1.0, 0.0);
        (budget.clone(), budget)
    };
    assert!(one.try_withdraw(NOW));
    assert!(!two.try_withdraw(NOW));
    one.refund();
    assert!(two.try_withdraw(NOW));
}

#[test]
fn a_policy_out_of_bounds_is_refused() {
    let error = Budget::new(&BudgetPolicy::default().ratio(f64::NAN)).unwrap_err();
    assert_eq!(error.to_string(), "Budget.ratio: NaN is not in [0, 1]");
}

proptest! {
    #[test]
    fn agrees_with_exact_arithmetic(
        ratio in 0u64..=1_000,
        capacity in 1u64..=20,
        steps in prop::collection::vec(0u8..3, 0..300),
    ) {
        let budget = budget(ratio as f64 / 1_000.0, capacity as f64, 0.0, 0.0);
        let mut thousandths = 0;
        for step in steps {
            match step {
                0 => {
                    budget.deposit(NOW);
                    thousandths = (thousandths + ratio).min(capacity * 1_000);
                }
                1 => {
                    budget.refund();
                    thousandths = (thousandths + 1_000).min(capacity * 1_000);
                }
                _ => {
                    prop_assert_eq!(budget.try_withdraw(NOW), thousandths >= 1_000);
                    thousandths = thousandths.checked_sub(1_000).unwrap_or(thousandths);
                }
            }
            prop_assert_eq!(budget.balance(NOW), thousandths as f64 / 1_000.0);
        }
    }
}
