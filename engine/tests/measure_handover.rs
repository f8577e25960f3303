//! What a process that stops hands on to the one that starts: windows and allowances.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use tonic_hedge_engine::{
    measure::{Latencies, LatencyEstimator, Ring, WinRateMeter},
    policy::WinRate,
};

const WINDOW: Duration = Duration::from_secs(30);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ring() -> Ring {
    Ring::new(0.95, WINDOW, 20)
}

/// Latencies over three orders of magnitude, some of them cut off, in all sub-windows.
fn learned(now: Duration) -> Ring {
    let ring = ring();
    let mut random = fastrand::Rng::with_seed(11);
    for n in 0..20_000_u32 {
        let at = now.saturating_sub(WINDOW / 2) + WINDOW / 2 * n / 20_000;
        let latency = Duration::from_secs_f64(0.002 * (random.f64() * 6.0).exp());
        match random.u8(0..20) {
            0 => ring.record_cut(at, latency),
            _ => ring.record(at, latency),
        }
    }
    ring
}

/// The new ring's quantiles are the old one's: its first call has a threshold.
#[test]
fn an_imported_window_has_the_same_quantiles() {
    let now = Duration::from_secs(5_000);
    let old = learned(now);
    let taken = old.export(now).unwrap();
    assert_eq!(taken.samples(), old.samples(now));
    let new = ring();
    let started = ms(3);
    assert!(new.import(started, &taken));
    assert_eq!(new.samples(started), 20_000);
    for q in [0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999] {
        let (old, new) = (
            old.quantile(now, q).unwrap(),
            new.quantile(started, q).unwrap(),
        );
        assert!(old.abs_diff(new) <= old / 500, "{q}: {old:?}, {new:?}");
    }
    let (old, new) = (old.threshold(now).unwrap(), new.threshold(started).unwrap());
    assert!(old.abs_diff(new) <= old / 500, "{old:?}, {new:?}");
}

/// It is no different to one that has counted all that itself: handed on once more it is the same.
#[test]
fn what_is_handed_on_twice_is_the_same() {
    let now = Duration::from_secs(5_000);
    let first = learned(now).export(now).unwrap();
    let second = ring();
    assert!(second.import(Duration::ZERO, &first));
    assert_eq!(second.export(Duration::ZERO).unwrap(), first);
}

/// A call counts in its sub-window: what is outside the window is not handed on.
#[test]
fn only_the_window_is_handed_on() {
    let ring = ring();
    (0..50).for_each(|_| ring.record(ms(0), ms(900)));
    (0..30).for_each(|_| ring.record(WINDOW, ms(10)));
    let taken = ring.export(WINDOW).unwrap();
    assert_eq!(taken, Latencies::new(vec![(10_000, 30)], Vec::new()));
    assert_eq!(ring.export(WINDOW * 3).unwrap(), Latencies::default());
}

/// Imported calls leave as those that are recorded then, and live ones take over.
#[test]
fn what_was_imported_leaves_after_one_window() {
    let new = ring();
    let now = ms(100);
    assert!(new.import(now, &Latencies::new(vec![(400_000, 1_000)], Vec::new())));
    (0..100).for_each(|_| new.record(now, ms(10)));
    assert!(new.threshold(now).unwrap() > ms(390));
    let later = now + WINDOW * 6 / 7;
    (0..100).for_each(|_| new.record(later, ms(10)));
    assert_eq!(new.samples(later), 1_200);
    assert_eq!(new.samples(now + WINDOW), 100);
    assert!(new.threshold(now + WINDOW).unwrap() < ms(11));
}

#[test]
fn what_was_imported_counts_beside_what_was_recorded() {
    let new = ring();
    (0..10).for_each(|_| new.record(ms(1), ms(10)));
    assert_eq!(new.threshold(ms(1)), None);
    assert!(new.import(ms(1), &Latencies::new(vec![(10_000, 10)], Vec::new())));
    assert!(new.threshold(ms(1)).is_some());
    assert_eq!(new.samples(ms(1)), 20);
    // More calls than a window is believed to have.
    let heavy = Latencies::new(vec![(10_000, 10_000_000); 2], Vec::new());
    assert!(!new.import(ms(1), &heavy));
    // Nothing to take.
    assert!(!new.import(ms(1), &Latencies::default()));
    // Its sub-window has been reused.
    let late = WINDOW * 2;
    new.record(late, ms(10));
    let one = Latencies::new(vec![(1, 1)], Vec::new());
    assert!(!new.import(late - WINDOW, &one));
    assert_eq!(new.samples(late), 1);
}

fn entries() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let count = prop_oneof![0_u32..100, 0_u32..20_000, any::<u32>()];
    let micros = prop_oneof![0_u32..2_000_000, any::<u32>(), Just(u32::MAX)];
    prop::collection::vec((micros, count), 0..200)
}

proptest! {
    /// Whatever a file says: it is taken whole or not at all, costs no more memory than calls do,
    /// gives no threshold that calls could not give, and is gone after a window.
    #[test]
    fn garbage_harms_nothing(ended in entries(), cut in entries()) {
        let latencies = Latencies::new(ended, cut);
        let new = ring();
        let taken = new.import(ms(5), &latencies);
        prop_assert_eq!(taken, latencies.is_sound() && latencies.samples() > 0);
        let expected = if taken { latencies.samples() } else { 0 };
        prop_assert_eq!(new.samples(ms(5)), expected);
        if let Some(threshold) = new.threshold(ms(5)) {
            prop_assert!(threshold > Duration::ZERO);
            prop_assert!(threshold < Duration::from_secs(4_295));
        }
        for q in [0.0, 0.5, 1.0] {
            let _any = new.quantile(ms(5), q);
        }
        prop_assert!(new.memory() < 96 << 10, "{}", new.memory());
        prop_assert_eq!(new.samples(ms(5) + WINDOW), 0);
        prop_assert_eq!(new.threshold(ms(5) + WINDOW), None);
        (0..20).for_each(|_| new.record(ms(5) + WINDOW, ms(10)));
        let after = new.threshold(ms(5) + WINDOW).unwrap();
        prop_assert!(after.abs_diff(ms(10)) <= ms(1), "{:?}", after);
    }
}

/// The allowance goes on within the policy's bounds, and returns by the clock.
#[test]
fn an_allowance_goes_on_where_it_was() {
    let policy = WinRate::at_least(0.1).minimum_allowance(0.1);
    for (said, expected) in [(0.25, 0.25), (0.0, 0.1), (0.05, 0.1), (1.0, 1.0)] {
        let meter = WinRateMeter::new(&policy).unwrap();
        assert!(meter.resume(ms(10), said));
        assert_eq!(meter.allowance(ms(10)), expected);
        let quarter = Duration::from_secs(15);
        assert_eq!(meter.allowance(quarter), (expected + 0.25_f64).min(1.0));
    }
    let late = WinRateMeter::new(&policy).unwrap();
    assert!(late.resume(Duration::from_secs(1_000), 0.25));
    assert_eq!(late.allowance(Duration::from_secs(1_000)), 0.25);
    for said in [f64::NAN, f64::INFINITY, -0.1, 1.1, f64::MIN] {
        let meter = WinRateMeter::new(&policy).unwrap();
        assert!(!meter.resume(ms(10), said), "{said}");
        assert_eq!(meter.allowance(ms(10)), 1.0);
    }
}
