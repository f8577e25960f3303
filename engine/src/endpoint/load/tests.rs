use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sampled(latency: Duration) -> Load {
    let load = Load::new();
    load.started(Duration::ZERO);
    load.finished(Duration::ZERO, latency);
    load
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b.abs().max(1e-6)
}

#[test]
fn cost_counts_the_next_attempt_too() {
    let load = sampled(ms(10));
    assert!(close(load.cost(ms(0)), 0.010));
    load.started(ms(0));
    load.started(ms(0));
    assert!(close(load.cost(ms(0)), 0.030));
    assert_eq!(load.in_flight(), 2);
}

#[test]
fn a_peak_counts_at_once_and_good_news_slowly() {
    let load = sampled(ms(1));
    load.started(ms(1));
    load.finished(ms(1), ms(100));
    assert!(close(load.cost(ms(1)), 0.100));

    // 100 ms later the weight of the past is still e^(-0.02).
    load.started(ms(101));
    load.finished(ms(101), ms(1));
    let weight = (-0.02_f64).exp();
    assert!(close(
        load.cost(ms(101)),
        0.100 * weight + 0.001 * (1.0 - weight)
    ));
}

#[test]
fn an_idle_endpoint_is_forgiven_and_then_asked_by_one() {
    let load = sampled(ms(200));
    let later = ms(30_000);
    assert!(load.cost(later) < 0.001);
    // With that one attempt out, it is as slow as it was.
    load.started(later);
    assert!(close(load.cost(later), 0.400));
}

#[test]
fn what_is_forgotten_is_as_good_as_unknown() {
    let load = sampled(ms(200));
    load.started(ms(1));
    load.failed(ms(1), ms(5));
    load.forget();
    assert_eq!(load.latency(ms(1)), None);
    assert_eq!(load.cost(ms(1)), 0.0);
    load.started(ms(2));
    load.finished(ms(2), ms(3));
    assert!(close(load.cost(ms(2)), 0.003));
}

#[test]
fn an_unknown_endpoint_gets_one_attempt_first() {
    let fresh = Load::new();
    assert_eq!(fresh.cost(ms(0)), 0.0);
    assert_eq!(fresh.latency(ms(0)), None);
    fresh.started(ms(0));
    assert!(fresh.cost(ms(0)) > sampled(Duration::from_secs(15)).cost(ms(0)));
}

#[test]
fn a_discarded_attempt_only_raises() {
    let load = sampled(ms(50));
    load.started(ms(0));
    load.discarded(ms(0), ms(20));
    assert!(close(load.cost(ms(0)), 0.050));
    load.started(ms(0));
    load.discarded(ms(0), ms(60));
    assert!(close(load.cost(ms(0)), 0.060));
}

#[test]
fn ec10_a_fast_failure_makes_an_endpoint_expensive() {
    let load = sampled(ms(5));
    load.started(ms(1));
    load.failed(ms(1), Duration::from_micros(100));
    assert!(load.cost(ms(1)) >= 0.0399);
    load.started(ms(2));
    load.failed(ms(2), Duration::from_micros(100));
    assert!(load.cost(ms(2)) >= 0.1599);
    for _ in 0..10 {
        load.started(ms(3));
        load.failed(ms(3), Duration::from_micros(100));
    }
    assert!(close(load.cost(ms(3)), 60.0));
}

#[test]
fn a_released_attempt_leaves_the_latency() {
    let load = sampled(ms(5));
    load.started(ms(0));
    load.released();
    assert_eq!(load.in_flight(), 0);
    assert!(close(load.cost(ms(0)), 0.005));
}

#[test]
fn a_clock_past_49_days_decays_as_before() {
    let wrap = Duration::from_millis(u64::from(u32::MAX) - 10);
    let load = Load::new();
    load.started(wrap);
    load.finished(wrap, ms(100));
    assert!(close(load.cost(wrap + ms(5_000)), 0.100 * (-1.0_f64).exp()));
}

#[test]
fn no_sample_and_no_end_is_lost_among_threads() {
    let load = Load::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let load = &load;
            scope.spawn(move || {
                for i in 0..10_000 {
                    load.started(ms(0));
                    load.discarded(ms(0), ms(thread * 10_000 + i));
                }
            });
        }
    });
    assert_eq!(load.in_flight(), 0);
    assert!(close(load.cost(ms(0)), 39.999));
}

#[derive(Clone, Debug)]
enum Step {
    Finish(u64),
    Discard(u64),
    Fail(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let latency = 0..5_000_000_u64;
    prop_oneof![
        latency.clone().prop_map(Step::Finish),
        latency.clone().prop_map(Step::Discard),
        latency.prop_map(Step::Fail),
    ]
}

proptest! {
    #[test]
    fn bad_news_never_lowers(steps in prop::collection::vec((0..20_000_u64, step()), 1..200)) {
        let load = Load::new();
        let mut now = Duration::ZERO;
        for (pause, step) in steps {
            now += ms(pause);
            let before = load.cost(now);
            load.started(now);
            match step {
                Step::Finish(us) => {
                    let sample = Duration::from_micros(us);
                    load.finished(now, sample);
                    let bound = before.max(sample.as_secs_f64()).max(load.latency(now).unwrap_or_default().as_secs_f64());
                    prop_assert!(load.cost(now) <= bound * 1.0001 + 1e-9);
                }
                Step::Discard(us) => {
                    let sample = Duration::from_micros(us);
                    load.discarded(now, sample);
                    prop_assert!(load.cost(now) >= before * 0.9999);
                    prop_assert!(load.cost(now) >= sample.as_secs_f64() * 0.9999);
                }
                Step::Fail(us) => {
                    load.failed(now, Duration::from_micros(us));
                    prop_assert!(load.cost(now) >= before * 0.9999);
                    prop_assert!(load.cost(now) >= 0.0399);
                }
            }
            prop_assert_eq!(load.in_flight(), 0);
            prop_assert!(load.cost(now).is_finite());
        }
    }
}

/// Losers teach, also those of an endpoint that is always cut off: each time it is asked again in vain
/// doubles what it is taken for, up to four times of what was seen, and a burst counts once.
#[test]
fn silence_is_worse_than_the_time_it_was_listened_to() {
    let load = Load::new();
    let mut now = ms(1_000);
    let mut costs = Vec::new();
    for _ in 0..4 {
        for _ in 0..3 {
            load.started(now);
        }
        now += ms(100);
        for _ in 0..3 {
            load.discarded(now, ms(100));
        }
        costs.push(load.cost(now));
        // By then what is known has faded, and it is asked again.
        now += ms(10_000);
    }
    for (cost, expected) in costs.into_iter().zip([0.1, 0.2, 0.4, 0.4]) {
        assert!(close(cost, expected), "{cost} instead of {expected}");
    }
    // An answer meanwhile: it was not silent.
    load.started(now);
    load.started(now);
    load.finished(now + ms(50), ms(50));
    load.discarded(now + ms(100), ms(100));
    assert!(close(load.cost(now + ms(100)), 0.1));
}
