//! The CKMS estimator: what a fold makes of the samples, and what it forgets.
#![cfg(feature = "quantiles")]

use std::time::Duration;

use tonic_hedge_engine::measure::{Ckms, LatencyEstimator};

const WINDOW: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(990);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn p95() -> Ckms {
    Ckms::new(0.95, WINDOW, 20)
}

/// Records `rate` calls a second of `latency`, and folds each 250 ms.
fn run(
    ckms: &Ckms,
    from: Duration,
    to: Duration,
    rate: u32,
    mut latency: impl FnMut() -> Duration,
) {
    let (mut now, mut calls) = (from, 0.0);
    while now < to {
        now += ms(250);
        calls += f64::from(rate) / 4.0;
        while calls >= 1.0 {
            calls -= 1.0;
            ckms.record(now, latency());
        }
        ckms.fold(now);
    }
}

#[test]
fn th1_warm_up() {
    let ckms = p95();
    for n in 1..=19 {
        ckms.record(START, ms(n));
    }
    ckms.fold(START);
    assert_eq!(ckms.samples(START), 19);
    assert_eq!(ckms.threshold(START), None);
    ckms.record(START, ms(20));
    assert_eq!(ckms.threshold(START), None, "not folded");
    ckms.fold(START);
    let threshold = ckms.threshold(START).unwrap();
    assert!(threshold.abs_diff(ms(19)) <= ms(1), "{threshold:?}");
}

#[test]
fn th2_accuracy_under_load() {
    // All samples, and one in eight.
    for rate in [50, 5_000] {
        let ckms = p95();
        let mut random = fastrand::Rng::with_seed(5);
        let uniform = || Duration::from_micros(random.u64(0..100_000));
        run(&ckms, START, START + ms(45_000), rate, uniform);
        let now = START + ms(45_000);
        let p95 = ckms.threshold(now).unwrap().as_micros() as f64 / 95_000.0;
        assert!((0.95..1.05).contains(&p95), "{rate} a second: {p95}");
        assert!(ckms.memory() <= 540 * 1024, "{}", ckms.memory());
        let half = u64::from(rate) * 15;
        let samples = ckms.samples(now);
        assert!(half <= samples && samples <= 2 * half + 1, "{samples}");
    }
}

#[test]
fn th3_th4_range() {
    let ckms = p95();
    for _ in 0..100 {
        ckms.record(START, Duration::ZERO);
    }
    ckms.fold(START);
    assert_eq!(ckms.threshold(START), Some(Duration::from_micros(1)));
    for _ in 0..100 {
        ckms.record(START, Duration::from_secs(36_000));
    }
    ckms.fold(START);
    assert_eq!(ckms.threshold(START), None, "no call is that long");
    assert_eq!(ckms.quantile(START, 0.25), Some(Duration::from_micros(1)));
}

#[test]
fn th7_a_step_is_followed_within_the_window() {
    let ckms = p95();
    run(&ckms, START, START + ms(60_000), 100, || ms(10));
    assert_eq!(ckms.threshold(START + ms(60_000)), Some(ms(10)));
    run(&ckms, START + ms(60_000), START + ms(90_000), 100, || {
        ms(100)
    });
    assert_eq!(ckms.quantile(START + ms(90_000), 0.5), Some(ms(100)));
}

#[test]
fn an_idle_gap_empties_the_window() {
    let ckms = p95();
    run(&ckms, START, START + ms(10_000), 100, || ms(10));
    let end = START + ms(10_000);
    assert!(ckms.threshold(end + ms(29_000)).is_some());
    // With and without folds meanwhile.
    assert_eq!(ckms.threshold(end + WINDOW), None);
    assert_eq!(ckms.samples(end + WINDOW), 0);
    assert_eq!(ckms.quantile(end + WINDOW, 0.5), None);
    ckms.fold(end + WINDOW);
    assert_eq!(ckms.threshold(end + WINDOW), None);
    ckms.record(end + WINDOW, ms(10));
    ckms.fold(end + WINDOW + ms(250));
    assert_eq!(ckms.samples(end + WINDOW + ms(250)), 1);
}

#[test]
fn what_waits_for_a_fold_is_bounded_and_ages() {
    let ckms = p95();
    for n in 0..1_000_000 {
        ckms.record(START, Duration::from_micros(n));
    }
    assert!(ckms.memory() <= 128 * 1024, "{}", ckms.memory());
    ckms.fold(START + WINDOW);
    assert_eq!(ckms.threshold(START + WINDOW), None, "all of it is old");
    for n in 0..100_000 {
        ckms.record(START + WINDOW, Duration::from_micros(n));
    }
    ckms.fold(START + WINDOW);
    let newest = ckms.quantile(START + WINDOW, 0.0).unwrap();
    assert!(newest >= Duration::from_micros(100_000 - 16_384));
}

#[test]
fn a_generation_is_bounded_however_often_it_is_folded() {
    let ckms = p95();
    for _ in 0..150 {
        for n in 0..16_384 {
            ckms.record(START, Duration::from_micros(n));
        }
        ckms.fold(START);
    }
    assert!(ckms.memory() <= 540 * 1024, "{}", ckms.memory());
    assert_eq!(ckms.samples(START), 150 * 16_384);
}
