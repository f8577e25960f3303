//! A planner by itself: what it needs for a plan, when it has none, and that reading changes nothing.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tonic_hedge_engine::{
    measure::{LatencyEstimator, Ring},
    plan::{PlanState, Planner},
    policy::Hedge,
};

const WINDOW: Duration = Duration::from_secs(30);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ring(hedge: &Hedge) -> Ring {
    Ring::new(
        hedge.quantile().unwrap(),
        hedge.window,
        hedge.minimum_samples,
    )
}

/// Nine in ten from 20 to 44 ms, one in ten from 250 ms on.
fn took(call: u64) -> Duration {
    match call % 10 {
        0 => ms(250 + call / 10 * 7 % 330),
        _ => ms(20 + call * 7 % 25),
    }
}

fn calls(planner: &Planner, ring: &Ring, now: Duration, calls: std::ops::Range<u64>) {
    for call in calls {
        planner.started();
        ring.record(now, took(call));
        planner.call_ended(now, took(call));
    }
}

#[test]
fn only_within_is_planned() {
    for hedge in [Hedge::at(0.9), Hedge::after(ms(10)), Hedge::on_failure()] {
        assert!(Planner::new(&hedge).is_none());
    }
}

/// Too few samples: no plan, and the threshold is the live quantile `1 - load`.
#[test]
fn plan_waits_for_the_tail() {
    let hedge = Hedge::within(0.15);
    let (planner, ring) = (Planner::new(&hedge).unwrap(), ring(&hedge));
    planner.replan(s(0), &ring);
    calls(&planner, &ring, s(1), 0..299);
    planner.replan(s(1), &ring);
    assert_eq!(planner.reading(s(1)).state, PlanState::Learning);
    assert_eq!(planner.delay(), None);
    assert!(ring.threshold(s(1)).unwrap() < ms(60), "p85 is fast");
    calls(&planner, &ring, s(1), 299..300);
    planner.replan(s(1) + ms(900), &ring);
    assert_eq!(planner.delay(), None, "once a second");
    planner.replan(s(2), &ring);
    assert_eq!(planner.reading(s(2)).state, PlanState::Planned);
    assert!((ms(20)..ms(60)).contains(&planner.delay().unwrap()));
}

/// All hedges held, by whatever else: planning goes on.
#[test]
fn plan_goes_on_where_no_hedge_starts() {
    let hedge = Hedge::within(0.15);
    let (planner, ring) = (Planner::new(&hedge).unwrap(), ring(&hedge));
    for second in 0..60 {
        calls(&planner, &ring, s(second), second * 100..second * 100 + 100);
        planner.replan(s(second), &ring);
    }
    let reading = planner.reading(s(60));
    assert_eq!(reading.state, PlanState::Planned, "{reading:?}");
    assert_eq!(reading.got_load, Some(0.0));
    assert!(reading.got.unwrap() > ms(400), "nobody hedged");
    assert!(planner.would_allow() && planner.allow());
}

/// What is old is forgotten: no plan is left, and none of what hedges took.
#[test]
fn plan_ages_out() {
    let hedge = Hedge::within(0.15);
    let (planner, ring) = (Planner::new(&hedge).unwrap(), ring(&hedge));
    calls(&planner, &ring, s(0), 0..1_000);
    (0..100).for_each(|_| planner.hedge_ended(ms(2_000)));
    planner.replan(s(0), &ring);
    assert_ne!(planner.reading(s(0)).state, PlanState::Learning);
    // A rest remembers for ten windows what it rests by.
    let later = WINDOW * 60;
    planner.replan(later, &ring);
    let reading = planner.reading(later);
    assert_eq!(reading.state, PlanState::Learning);
    assert_eq!(
        (reading.delay, reading.expected, reading.got),
        (None, None, None)
    );
    calls(&planner, &ring, later, 0..1_000);
    planner.replan(later + s(1), &ring);
    let reading = planner.reading(later);
    assert_eq!(reading.state, PlanState::Planned, "{reading:?}");
}

#[test]
fn reading_changes_nothing() {
    let hedge = Hedge::within(0.5);
    let planner = Planner::new(&hedge).unwrap();
    (0..2).for_each(|_| planner.started());
    for _ in 0..3 {
        assert!(planner.would_allow());
        assert_eq!(planner.reading(s(0)).balance, 1.0);
    }
    assert!(planner.allow());
    assert!(!planner.would_allow() && !planner.allow());
    assert!(planner.memory() < 5 * 1024, "{}", planner.memory());
}

/// Whatever the load and the target: a plan is within the bounds of the delay and the load, and
/// expects no harm.
#[test]
fn plan_is_within_its_bounds() {
    for target in [0.5, 0.95, 0.99, 0.999] {
        for load in [0.001, 0.01, 0.05, 0.12, 0.5] {
            let hedge = Hedge::within(load)
                .target_quantile(target)
                .minimum_delay(ms(30))
                .maximum_delay(ms(200));
            let (planner, ring) = (Planner::new(&hedge).unwrap(), ring(&hedge));
            for second in 0..40 {
                calls(&planner, &ring, s(second), second * 200..second * 200 + 200);
                planner.replan(s(second), &ring);
            }
            let reading = planner.reading(s(40));
            let delay = reading.delay.unwrap();
            assert!(
                (ms(30)..=ms(200)).contains(&delay),
                "{target} {load}: {reading:?}"
            );
            assert!(reading.probability > 0.0 && reading.probability <= 1.0);
            assert!(reading.expected_load.unwrap() <= load * 1.05, "{reading:?}");
            assert!(reading.expected.unwrap() <= reading.unhedged.unwrap() + ms(1));
        }
    }
}

/// An estimator that cannot tell the survival has no plan.
#[test]
fn an_estimator_without_survival_has_no_plan() {
    #[derive(Debug)]
    struct Blind(Ring);
    impl LatencyEstimator for Blind {
        fn record(&self, now: Duration, latency: Duration) {
            self.0.record(now, latency);
        }
        fn threshold(&self, now: Duration) -> Option<Duration> {
            self.0.threshold(now)
        }
        fn quantile(&self, now: Duration, q: f64) -> Option<Duration> {
            self.0.quantile(now, q)
        }
        fn samples(&self, now: Duration) -> u64 {
            self.0.samples(now)
        }
        fn memory(&self) -> usize {
            0
        }
    }
    let hedge = Hedge::within(0.15);
    let planner = Planner::new(&hedge).unwrap();
    let blind = Blind(ring(&hedge));
    calls(&planner, &blind.0, s(0), 0..1_000);
    planner.replan(s(0), &blind);
    assert_eq!(planner.reading(s(0)).state, PlanState::Learning);
}

/// A survival agrees with the threshold that the ring tells, and counts what was cut off.
#[test]
fn a_survival_is_that_of_the_ring() {
    let ring = Ring::new(0.9, WINDOW, 20);
    for call in 0..10_000 {
        match call % 3 {
            0 => ring.record_cut(s(0), took(call) / 2),
            _ => ring.record(s(0), took(call)),
        }
    }
    let survival = ring.survival(s(0)).unwrap();
    assert_eq!(survival.samples(), 10_000);
    for q in [0.1, 0.5, 0.9, 0.95, 0.99] {
        let (told, time) = (
            ring.quantile(s(0), q).unwrap(),
            survival.time(1.0 - q).unwrap(),
        );
        let off = told.as_secs_f64() / time.as_secs_f64() - 1.0;
        assert!(off.abs() < 0.02, "{q}: {told:?} {time:?}");
        assert!((survival.share(time) - (1.0 - q)).abs() < 0.001, "{q}");
    }
}
