//! The latency ring against exact answers: warm-up, accuracy, expiry, range and contention.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use proptest::prelude::*;
use tonic_hedge_engine::measure::{LatencyEstimator, Ring};

const WINDOW: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(1_000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn p95() -> Ring {
    Ring::new(0.95, WINDOW, 20)
}

#[test]
fn th1_warm_up() {
    let ring = p95();
    for n in 1..=19 {
        ring.record(START, ms(10));
        assert_eq!(ring.threshold(START), None, "{n} samples");
    }
    ring.record(START, ms(10));
    assert!(ring.threshold(START).is_some(), "with the 20th itself");
    assert_eq!(ring.samples(START), 20);
}

#[test]
fn th1_warm_up_while_old_samples_leave() {
    let ring = p95();
    for _ in 0..19 {
        ring.record(START, ms(10));
    }
    let later = START + WINDOW;
    ring.record(later, ms(10));
    assert_eq!(ring.threshold(later), None, "1 in the window, 20 in all");
    for _ in 0..19 {
        assert_eq!(ring.threshold(later), None);
        ring.record(later, ms(10));
    }
    assert!(ring.threshold(later).is_some());
}

/// Samples in microseconds of the distributions that a latency may have.
fn distributions() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut normal = move || {
        let (u, v): (f64, f64) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let mut random = fastrand::Rng::with_seed(8);
    let n = 1_000_000;
    let mut draw = |latency: &mut dyn FnMut(&mut fastrand::Rng) -> f64| {
        (0..n).map(|_| latency(&mut random) as u64).collect()
    };
    vec![
        ("uniform", draw(&mut |r| 100_000.0 * r.f64())),
        (
            "uniform far from 0",
            draw(&mut |r| 200_000.0 + 100_000.0 * r.f64()),
        ),
        (
            "uniform and narrow",
            draw(&mut |r| 99_000.0 + 2_000.0 * r.f64()),
        ),
        ("log-normal", draw(&mut |_| 5_000.0 * normal().exp())),
        ("narrow", draw(&mut |_| 100_000.0 + 1_000.0 * normal())),
        (
            "bimodal 1/100 ms",
            draw(&mut |r| {
                let mode = if r.f64() < 0.93 { 1_000.0 } else { 100_000.0 };
                mode * (1.0 + 0.1 * r.f64())
            }),
        ),
        (
            "Pareto",
            draw(&mut |r| 1_000.0 * (1.0 - r.f64()).powf(-1.0 / 1.5)),
        ),
    ]
}

#[test]
fn th2_accuracy() {
    for (name, samples) in distributions() {
        let ring = p95();
        let mut oracle = Histogram::<u64>::new(4).unwrap();
        for &us in &samples {
            ring.record(START, Duration::from_micros(us));
            oracle.record(us).unwrap();
        }
        for q in [0.5, 0.9, 0.95, 0.99, 0.999] {
            let exact = oracle.value_at_quantile(q) as f64;
            let found = ring.quantile(START, q).unwrap().as_micros() as f64;
            let error = (found / exact - 1.0).abs();
            assert!(error < 0.016, "{name} p{q}: {found} for {exact}");
        }
        for q in [0.5, 0.9, 0.95, 0.99] {
            let threshold = ring.quantile(START, q).unwrap().as_micros() as u64;
            let hedged = samples.iter().filter(|&&us| us > threshold).count();
            let rate = hedged as f64 / samples.len() as f64;
            let off = (rate / (1.0 - q) - 1.0).abs();
            assert!(off < 0.2, "{name} p{q}: {rate} of the calls outrun it");
        }
    }
}

#[test]
fn th3_zero_latency_is_a_sample_and_no_zero_threshold() {
    let ring = p95();
    for _ in 0..100 {
        ring.record(START, Duration::ZERO);
    }
    assert_eq!(ring.threshold(START), Some(Duration::from_micros(1)));
}

#[test]
fn th4_out_of_range() {
    let ring = Ring::new(0.95, WINDOW, 20);
    for _ in 0..96 {
        ring.record(START, ms(10));
    }
    for hours in [10, 100, 1_000_000] {
        ring.record(START, Duration::from_secs(hours * 3600));
    }
    ring.record(START, Duration::MAX);
    assert!(ring.threshold(START).unwrap() < ms(11));
    assert_eq!(ring.quantile(START, 0.97), None, "in the top bucket");
    for _ in 0..10 {
        ring.record(START, Duration::from_secs(36_000));
    }
    let refreshed = START + ms(100);
    assert_eq!(ring.threshold(refreshed), None);
    assert_eq!(ring.samples(refreshed), 110);
    for _ in 0..1_000 {
        ring.record(refreshed, ms(10));
    }
    assert!(ring.threshold(refreshed + ms(100)).is_some(), "again");
}

#[test]
fn th4_memory_is_bounded() {
    let ring = p95();
    for i in 0..100_000 {
        let now = START + ms(i);
        ring.record(now, Duration::from_micros(1 << (i % 40)));
    }
    assert!(ring.memory() <= 30 * 1024, "{}", ring.memory());
    let usual = p95();
    for i in 1..=1_000 {
        usual.record(START, ms(i));
    }
    assert!(usual.memory() <= 13 * 1024, "{}", usual.memory());
    for i in 1..=1_000 {
        usual.record_cut(START, ms(i));
    }
    assert!(usual.memory() <= 15 * 1024, "{}", usual.memory());
}

/// More calls of one latency than a narrow counter holds, beside few of others.
#[test]
fn busy_buckets_keep_their_shares() {
    let ring = p95();
    for n in 0..1_000_000u64 {
        let latency = match n % 1_000 {
            0..949 => ms(10),
            949..989 => ms(100),
            _ => ms(1_000),
        };
        ring.record(START, latency);
    }
    assert_eq!(ring.samples(START), 1_000_000);
    for (q, expected) in [(0.9, ms(10)), (0.97, ms(100)), (0.99, ms(1_000))] {
        let found = ring.quantile(START, q).unwrap();
        let error = found.as_secs_f64() / expected.as_secs_f64() - 1.0;
        assert!(error.abs() < 0.016, "p{q}: {found:?}");
    }
    let beyond = START + WINDOW;
    assert_eq!(ring.quantile(beyond, 0.9), None, "wide counts leave too");
    ring.record(beyond, ms(5));
    assert!(ring.quantile(beyond, 1.0).unwrap() < ms(6));
}

#[test]
fn th7_a_step_is_followed_within_the_window() {
    let ring = p95();
    let mut random = fastrand::Rng::with_seed(1);
    let (mut now, mut scale) = (START, 10.0);
    let mut hedged_after = |ring: &Ring, seconds: u64, scale: f64, now: &mut Duration| {
        let mut hedged = 0;
        for _ in 0..seconds * 100 {
            let latency = ms(1).mul_f64(scale * (0.5 + random.f64()));
            hedged += u64::from(ring.threshold(*now).is_some_and(|it| latency > it));
            *now += ms(10);
            ring.record(*now, latency);
        }
        hedged as f64 / (seconds * 100) as f64
    };
    hedged_after(&ring, 60, scale, &mut now);
    let steady = hedged_after(&ring, 60, scale, &mut now);
    assert!((0.04..=0.06).contains(&steady), "{steady}");
    scale = 100.0;
    hedged_after(&ring, 30, scale, &mut now);
    let after = hedged_after(&ring, 60, scale, &mut now);
    assert!((0.04..=0.06).contains(&after), "{after}");
}

/// Nine calls in ten take 30 ms, the tenth 400 ms, and each of those is cut off at 75 ms.
#[test]
fn what_was_cut_off_is_not_taken_for_its_latency() {
    let ring = p95();
    for _ in 0..90 {
        ring.record(START, ms(30));
    }
    for _ in 0..10 {
        ring.record_cut(START, ms(75));
    }
    assert_eq!(ring.samples(START), 100);
    let p95 = ring.quantile(START, 0.95).unwrap();
    assert!((ms(75)..ms(77)).contains(&p95), "at least that: {p95:?}");
    assert!(ring.quantile(START, 0.9).unwrap() < ms(31));

    // Two that ran to their end stand for the ten that did not.
    ring.record(START, ms(400));
    ring.record(START, ms(500));
    let p95 = ring.quantile(START, 0.92).unwrap();
    assert!((ms(394)..ms(407)).contains(&p95), "{p95:?}");
    let p99 = ring.quantile(START, 0.99).unwrap();
    assert!((ms(492)..ms(508)).contains(&p99), "{p99:?}");
}

/// Kaplan and Meier's estimate by its textbook formula agrees.
#[test]
fn cuts_are_weighed_as_by_kaplan_and_meier() {
    let mut random = fastrand::Rng::with_seed(3);
    let ring = p95();
    let mut samples = Vec::new();
    for _ in 0..2_000 {
        let latency = 20.0 * (1.0 - random.f64()).powf(-0.5);
        let cut = 30.0 + 100.0 * random.f64();
        let us = (latency.min(cut) * 1e3) as u64;
        if latency <= cut {
            ring.record(START, Duration::from_micros(us));
        } else {
            ring.record_cut(START, Duration::from_micros(us));
        }
        samples.push((us, latency > cut));
    }
    samples.sort_unstable();
    for q in [0.5, 0.9, 0.95] {
        let mut survive = 1.0;
        let at = samples.iter().enumerate().find_map(|(i, &(us, cut))| {
            if !cut {
                survive *= 1.0 - 1.0 / (samples.len() - i) as f64;
            }
            (survive <= 1.0 - q).then_some(us)
        });
        let (exact, found) = (at.unwrap() as f64, ring.quantile(START, q).unwrap());
        let error = (found.as_micros() as f64 / exact - 1.0).abs();
        assert!(error < 0.025, "p{q}: {found:?} for {exact} us");
    }
}

#[test]
fn cuts_leave_with_the_window() {
    let ring = p95();
    for _ in 0..20 {
        ring.record_cut(START, ms(75));
    }
    assert!(ring.threshold(START).unwrap() >= ms(75));
    let later = START + WINDOW;
    for _ in 0..20 {
        ring.record(later, ms(10));
    }
    assert_eq!(ring.samples(later), 20);
    assert!(ring.quantile(later, 1.0).unwrap() < ms(11));
}

#[test]
fn th10_contention() {
    let ring = Ring::new(0.5, WINDOW, 1);
    let done = AtomicBool::new(false);
    let each = 20_000;
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..32)
            .map(|i| {
                let ring = &ring;
                scope.spawn(move || {
                    for n in 0..each {
                        // 0 to 20 s: sub-windows turn under way, none leaves the window.
                        let now = START + ms(n);
                        ring.record(now, if (i + n) % 2 == 0 { ms(10) } else { ms(20) });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 7;
                if let Some(it) = ring.threshold(START + ms(n % each)) {
                    assert!(it >= ms(9) && it <= ms(21), "{it:?} was never recorded");
                }
            }
        });
        for recorder in recorders {
            recorder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(ring.samples(START + ms(each)), 32 * each);
}

#[test]
fn th10_nobody_gets_a_threshold_from_before_the_gap() {
    for _ in 0..300 {
        let ring = p95();
        for _ in 0..100 {
            ring.record(START, ms(10));
        }
        assert!(ring.threshold(START).is_some());
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    // While one of them finds out that the window is empty.
                    assert_eq!(ring.threshold(START + WINDOW), None);
                });
            }
        });
    }
}

#[test]
fn the_threshold_is_recomputed_each_100_ms() {
    let ring = Ring::new(0.5, WINDOW, 1);
    ring.record(START, ms(10));
    let first = ring.threshold(START).unwrap();
    for _ in 0..100 {
        ring.record(START, ms(50));
    }
    assert_eq!(ring.threshold(START + ms(99)), Some(first));
    assert!(ring.threshold(START + ms(100)).unwrap() > ms(49));
}

#[test]
fn an_idle_gap_empties_the_window() {
    let ring = p95();
    for _ in 0..100 {
        ring.record(START, ms(10));
    }
    assert!(ring.threshold(START).is_some());
    // Six of seven sub-windows are in it at least.
    assert!(ring.threshold(START + ms(25_714)).is_some());
    for gap in [30_000, 30_001, 60_000, 3_600_000, 86_400_000] {
        assert_eq!(ring.threshold(START + ms(gap)), None, "after {gap} ms");
        assert_eq!(ring.samples(START + ms(gap)), 0);
        assert_eq!(ring.quantile(START + ms(gap), 0.5), None);
    }
    let resumed = START + Duration::from_secs(3_600);
    ring.record(resumed, ms(10));
    assert_eq!(ring.threshold(resumed), None, "one sample, all others old");
}

#[test]
fn a_late_now_is_harmless() {
    let ring = p95();
    for _ in 0..20 {
        ring.record(START, ms(10));
    }
    ring.record(START - ms(5_000), ms(10));
    assert_eq!(ring.samples(START), 21, "late, but in the window");
    ring.record(START - WINDOW, ms(10));
    assert_eq!(ring.samples(START), 21, "older than the window");
    let threshold = ring.threshold(START);
    assert!(threshold.is_some());
    assert_eq!(ring.threshold(START - ms(500)), threshold);
    assert_eq!(ring.threshold(Duration::ZERO), threshold);
}

/// The obvious tracker: all samples in a list, with the sub-window that each belongs to.
#[derive(Default)]
struct Model(Vec<(u64, u64)>);

impl Model {
    const SLOTS: u64 = 7;

    /// The sub-window of a millisecond.
    fn tick(now: u64) -> u64 {
        now * 1_000_000 / (WINDOW.as_nanos() as u64 / Self::SLOTS)
    }

    fn record(&mut self, now: u64, us: u64) {
        let tick = Self::tick(now);
        if !self.overtaken(tick) {
            self.0.push((tick, us));
        }
    }

    /// A later sub-window has the slot.
    fn overtaken(&self, tick: u64) -> bool {
        self.0
            .iter()
            .any(|it| it.0 > tick && it.0 % Self::SLOTS == tick % Self::SLOTS)
    }

    fn samples(&self, now: u64) -> Vec<u64> {
        let live = |it: &&(u64, u64)| it.0 + Self::SLOTS > Self::tick(now) && !self.overtaken(it.0);
        let mut samples: Vec<_> = self.0.iter().filter(live).map(|it| it.1).collect();
        samples.sort_unstable();
        samples
    }
}

proptest! {
    #[test]
    fn agrees_with_the_obvious_model(
        steps in prop::collection::vec((0u64..4_000, 0u64..5_000, 0u32..36, any::<u64>()), 1..200),
        q in 0.5f64..0.999,
    ) {
        let ring = Ring::new(q, WINDOW, 20);
        let mut model = Model::default();
        let mut clock = 0;
        for (forward, late, bits, value) in steps {
            // Now and then a gap, often a `now` that others have overtaken.
            clock += if forward > 3_900 { forward * 10 } else { forward };
            let us = value % (1 << bits);
            let recorded = clock.saturating_sub(late);
            ring.record(ms(recorded), Duration::from_micros(us));
            model.record(recorded, us);

            let samples = model.samples(clock);
            prop_assert_eq!(ring.samples(ms(clock)), samples.len() as u64);
            if samples.len() < 20 && ring.threshold(ms(clock)).is_some() {
                // Only within the 100 ms in which it was computed.
                prop_assert_eq!(ring.threshold(ms(clock + 100)), None);
            }
            let rank = ((q * samples.len() as f64).ceil() as usize).max(1);
            let exact = samples.get(rank - 1).copied();
            let found = ring.quantile(ms(clock), q).map(|it| it.as_micros() as u64);
            match (exact, found) {
                (Some(exact), Some(found)) => {
                    let bucket = 1 + exact / 64;
                    prop_assert!(exact.abs_diff(found) <= bucket, "{found} for {exact}");
                }
                (exact, found) => {
                    prop_assert_eq!(found, None);
                    prop_assert!(exact.is_none_or(|it| it >= u64::from(u32::MAX) / 128 * 127));
                }
            }
        }
    }
}
