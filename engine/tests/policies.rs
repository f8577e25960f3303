//! Every field of every policy, on both sides of each bound; and that a valid policy runs.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use tonic_hedge_engine::{
    gate::{Report, Snapshot},
    measure::{Admission, Breaker, Budget, Lag, LatencyEstimator as _, Ring, WinRateMeter},
    policy::{BreakerPolicy, BudgetPolicy, Hedge, PolicyError, Retry, Saturation, Timing, WinRate},
    race::{Ask, Event, MAX_UNSENT, Pushback, Race, Rules, Step, Verdict},
};

const NS: Duration = Duration::from_nanos(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a policy says of itself: nothing, or the error's text.
type Said = Result<(), PolicyError>;

fn hedge(change: impl FnOnce(Hedge) -> Hedge) -> Said {
    change(Hedge::at(0.95)).validate()
}
fn win_rate(change: impl FnOnce(WinRate) -> WinRate) -> Said {
    // Through the hedge that carries it.
    Hedge::at(0.95)
        .win_rate(change(WinRate::at_least(0.2)))
        .validate()
}
fn retry(change: impl FnOnce(Retry) -> Retry) -> Said {
    change(Retry::default()).validate()
}
fn budget(change: impl FnOnce(BudgetPolicy) -> BudgetPolicy) -> Said {
    change(BudgetPolicy::default()).validate()
}
fn breaker(change: impl FnOnce(BreakerPolicy) -> BreakerPolicy) -> Said {
    change(BreakerPolicy::default()).validate()
}
fn saturation(limit: Duration) -> Said {
    Saturation::over(limit).validate()
}

/// The field, its bound, the values that are in it, and those that are not with their text.
type Row = (
    &'static str,
    &'static str,
    Vec<Said>,
    Vec<(&'static str, Said)>,
);

fn rows() -> Vec<Row> {
    let quantile = |q| Hedge::at(q).validate();
    let floor = |floor| {
        Hedge::at(0.95)
            .win_rate(WinRate::at_least(floor))
            .validate()
    };
    let load = |load| Hedge::within(load).validate();
    let target = |quantile| hedge(|it| it.target_quantile(quantile));
    let ratio = |ratio| budget(|it| it.ratio(ratio));
    let capacity = |capacity| budget(|it| it.initial(0.0).capacity(capacity));
    let initial = |initial| budget(|it| it.initial(initial));
    let reserve = |reserve| budget(|it| it.reserve(reserve));
    let factor = |factor| retry(|it| it.factor(factor));
    let allowance = |share| win_rate(|it| it.minimum_allowance(share));
    let suppress = |fraction| hedge(|it| it.suppress_at(fraction));
    let ceiling = |ratio| breaker(|it| it.floor(0.0001).failure_ratio(ratio));
    let trip_floor = |floor| breaker(|it| it.floor(floor));
    vec![
        (
            "Hedge.quantile",
            "in [0.5, 1)",
            vec![quantile(0.5), quantile(1.0_f64.next_down())],
            // TH9
            vec![
                ("0.49", quantile(0.49)),
                ("1.0", quantile(1.0)),
                ("1.5", quantile(1.5)),
                ("0.0", quantile(0.0)),
                ("-1.0", quantile(-1.0)),
                ("NaN", quantile(f64::NAN)),
                ("inf", quantile(f64::INFINITY)),
            ],
        ),
        (
            "Hedge.load",
            "in (0, 0.5]",
            vec![load(f64::MIN_POSITIVE), load(0.5)],
            vec![
                ("0.0", load(0.0)),
                ("0.51", load(0.51)),
                ("-0.1", load(-0.1)),
                ("NaN", load(f64::NAN)),
            ],
        ),
        (
            "Hedge.target_quantile",
            "in [0.5, 1)",
            vec![target(0.5), target(1.0_f64.next_down())],
            vec![
                ("0.49", target(0.49)),
                ("1.0", target(1.0)),
                ("NaN", target(f64::NAN)),
            ],
        ),
        (
            "Hedge.max_concurrent",
            "at least 2",
            vec![
                hedge(|it| it.max_concurrent(2)),
                hedge(|it| it.max_concurrent(u32::MAX)),
            ],
            vec![
                ("1", hedge(|it| it.max_concurrent(1))),
                ("0", hedge(|it| it.max_concurrent(0))),
            ],
        ),
        (
            "Hedge.minimum_samples",
            "at least 1",
            vec![
                hedge(|it| it.minimum_samples(1)),
                hedge(|it| it.minimum_samples(u64::MAX)),
            ],
            vec![("0", hedge(|it| it.minimum_samples(0)))],
        ),
        (
            "Hedge.minimum_delay",
            "at least 1ms",
            vec![
                hedge(|it| it.minimum_delay(ms(1))),
                hedge(|it| it.minimum_delay(Duration::MAX)),
            ],
            vec![
                (
                    "999.999µs",
                    hedge(|it| it.minimum_delay(ms(1) - NS * 1_000 + NS * 999)),
                ),
                ("0ns", hedge(|it| it.minimum_delay(Duration::ZERO))),
            ],
        ),
        (
            "Hedge.cold_start",
            "at least 1ms",
            vec![
                hedge(|it| it.cold_start(ms(1))),
                hedge(|it| it.cold_start(Duration::MAX)),
            ],
            vec![("0ns", hedge(|it| it.cold_start(Duration::ZERO)))],
        ),
        (
            "Hedge.maximum_delay",
            "at least Hedge.minimum_delay",
            vec![
                hedge(|it| it.maximum_delay(ms(10))),
                hedge(|it| it.maximum_delay(Duration::MAX)),
            ],
            vec![
                ("9ms", hedge(|it| it.maximum_delay(ms(9)))),
                (
                    "20ms",
                    hedge(|it| it.minimum_delay(ms(21)).maximum_delay(ms(20))),
                ),
            ],
        ),
        (
            "Hedge.window",
            "in [1s, 3600s]",
            vec![hedge(|it| it.window(s(1))), hedge(|it| it.window(s(3_600)))],
            vec![
                ("999.999999ms", hedge(|it| it.window(s(1) - NS))),
                ("3600.000000001s", hedge(|it| it.window(s(3_600) + NS))),
            ],
        ),
        (
            "Hedge.suppress_at",
            "in (0, 1]",
            vec![suppress(f64::MIN_POSITIVE), suppress(1.0)],
            vec![
                ("0.0", suppress(0.0)),
                ("-0.5", suppress(-0.5)),
                ("1.01", suppress(1.01)),
                ("NaN", suppress(f64::NAN)),
            ],
        ),
        (
            "WinRate.floor",
            "in (0, 1)",
            vec![floor(f64::MIN_POSITIVE), floor(1.0_f64.next_down())],
            vec![
                ("0.0", floor(0.0)),
                ("1.0", floor(1.0)),
                ("NaN", floor(f64::NAN)),
            ],
        ),
        (
            "WinRate.window",
            "in [1s, 3600s]",
            vec![
                win_rate(|it| it.window(s(1))),
                win_rate(|it| it.window(s(3_600))),
            ],
            vec![
                ("999.999999ms", win_rate(|it| it.window(s(1) - NS))),
                ("3600.000000001s", win_rate(|it| it.window(s(3_600) + NS))),
            ],
        ),
        (
            "WinRate.minimum_samples",
            "at least 1",
            vec![
                win_rate(|it| it.minimum_samples(1)),
                win_rate(|it| it.minimum_samples(u64::MAX)),
            ],
            vec![("0", win_rate(|it| it.minimum_samples(0)))],
        ),
        (
            "WinRate.minimum_allowance",
            "in [0, 1]",
            vec![allowance(0.0), allowance(1.0)],
            vec![
                ("-0.1", allowance(-0.1)),
                ("1.1", allowance(1.1)),
                ("NaN", allowance(f64::NAN)),
            ],
        ),
        (
            "Retry.cap",
            "at most 3600s",
            vec![
                retry(|it| it.cap(s(3_600))),
                retry(|it| it.base(ms(0)).cap(ms(0))),
            ],
            vec![("3600.000000001s", retry(|it| it.cap(s(3_600) + NS)))],
        ),
        (
            "Retry.base",
            "at most Retry.cap",
            vec![
                retry(|it| it.base(s(1))),
                retry(|it| it.base(Duration::ZERO)),
            ],
            vec![("1.000000001s", retry(|it| it.base(s(1) + NS)))],
        ),
        (
            "Retry.factor",
            "in [1, 10]",
            vec![factor(1.0), factor(10.0)],
            vec![
                ("0.99", factor(0.99)),
                ("10.1", factor(10.1)),
                ("NaN", factor(f64::NAN)),
            ],
        ),
        (
            "Budget.ratio",
            "in [0, 1]",
            vec![ratio(0.0), ratio(1.0)],
            vec![
                ("-0.1", ratio(-0.1)),
                ("1.01", ratio(1.01)),
                ("NaN", ratio(f64::NAN)),
            ],
        ),
        (
            "Budget.capacity",
            "in [1, 1000000]",
            vec![capacity(1.0), capacity(1e6)],
            vec![
                ("0.99", capacity(0.99)),
                ("1000000.5", capacity(1_000_000.5)),
                ("NaN", capacity(f64::NAN)),
            ],
        ),
        (
            "Budget.initial",
            "in [0, Budget.capacity]",
            vec![initial(0.0), initial(100.0)],
            vec![
                ("-1.0", initial(-1.0)),
                ("100.5", initial(100.5)),
                ("NaN", initial(f64::NAN)),
            ],
        ),
        (
            "Budget.reserve",
            "in [0, Budget.capacity]",
            vec![reserve(0.0), reserve(100.0)],
            vec![
                ("-1.0", reserve(-1.0)),
                ("100.5", reserve(100.5)),
                ("NaN", reserve(f64::NAN)),
            ],
        ),
        (
            "Breaker.consecutive",
            "at least 1",
            vec![
                breaker(|it| it.consecutive(1)),
                breaker(|it| it.consecutive(u32::MAX)),
            ],
            vec![("0", breaker(|it| it.consecutive(0)))],
        ),
        (
            "Breaker.window",
            "in [1s, 300s]",
            vec![
                breaker(|it| it.window(s(1))),
                breaker(|it| it.window(s(300))),
            ],
            vec![
                ("999.999999ms", breaker(|it| it.window(s(1) - NS))),
                ("300.000000001s", breaker(|it| it.window(s(300) + NS))),
            ],
        ),
        (
            "Breaker.minimum_calls",
            "at least 2",
            vec![
                breaker(|it| it.minimum_calls(2)),
                breaker(|it| it.minimum_calls(u64::MAX)),
            ],
            vec![("1", breaker(|it| it.minimum_calls(1)))],
        ),
        (
            "Breaker.failure_ratio",
            "in (0, 1]",
            vec![ceiling(0.0001), ceiling(1.0)],
            vec![
                ("0.0", ceiling(0.0)),
                ("1.01", ceiling(1.01)),
                ("NaN", ceiling(f64::NAN)),
            ],
        ),
        (
            "Breaker.floor",
            "in (0, Breaker.failure_ratio]",
            vec![trip_floor(f64::MIN_POSITIVE), trip_floor(0.5)],
            vec![
                ("0.0", trip_floor(0.0)),
                ("0.51", trip_floor(0.51)),
                ("NaN", trip_floor(f64::NAN)),
            ],
        ),
        (
            "Breaker.cool_down",
            "in [1ms, 3600s]",
            vec![
                breaker(|it| it.cool_down(ms(1))),
                breaker(|it| it.cool_down(s(3_600))),
            ],
            vec![
                ("999.999µs", breaker(|it| it.cool_down(ms(1) - NS))),
                ("3600.000000001s", breaker(|it| it.cool_down(s(3_600) + NS))),
            ],
        ),
        (
            "Saturation.limit",
            "in [2ms, 10s]",
            vec![saturation(ms(2)), saturation(s(10))],
            vec![
                ("1.999999ms", saturation(ms(2) - NS)),
                ("10.000000001s", saturation(s(10) + NS)),
            ],
        ),
    ]
}

#[test]
fn each_field_on_both_sides_of_its_bound() {
    for (field, bound, valid, invalid) in rows() {
        for (place, said) in valid.into_iter().enumerate() {
            assert_eq!(said, Ok(()), "{field}, valid value {place}");
        }
        for (value, said) in invalid {
            let error = said.expect_err(&format!("{field}: {value}"));
            assert_eq!(error.field(), field);
            assert_eq!(
                error.to_string(),
                format!("{field}: {value} is not {bound}")
            );
        }
    }
}

/// The fixed delays and flags have no bound of their own: every value is one.
#[test]
fn what_has_no_bound() {
    for delay in [Duration::ZERO, ms(1), Duration::MAX] {
        Hedge::after(delay).validate().unwrap();
    }
    Hedge::immediately().validate().unwrap();
    Hedge::on_failure().validate().unwrap();
    Retry::off().validate().unwrap();
}

/// What is measured is made from a policy, and refuses the same.
#[test]
fn what_measures_refuses_the_same() {
    let saturation = Lag::new(&Saturation::over(ms(1))).map(drop);
    let budget = Budget::new(&BudgetPolicy::default().capacity(0.0)).map(drop);
    let breaker = Breaker::new(&BreakerPolicy::default().consecutive(0)).map(drop);
    let win_rate = WinRateMeter::new(&WinRate::at_least(1.0)).map(drop);
    for (said, field) in [
        (saturation, "Saturation.limit"),
        (budget, "Budget.capacity"),
        (breaker, "Breaker.consecutive"),
        (win_rate, "WinRate.floor"),
    ] {
        assert_eq!(said.unwrap_err().field(), field);
    }
}

/// The extremes of a bound and what lies between.
fn within(least: f64, most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![Just(least), Just(most), least..=most]
}

fn span(least: Duration, most: Duration) -> impl Strategy<Value = Duration> {
    let nanos = |time: Duration| time.as_nanos() as u64;
    prop_oneof![
        Just(least),
        Just(most),
        (nanos(least)..=nanos(most)).prop_map(Duration::from_nanos)
    ]
}

fn count<T: Copy + std::fmt::Debug + 'static>(edges: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(edges)
}

prop_compose! {
    fn any_win_rate()(
        floor in within(f64::MIN_POSITIVE, 1.0_f64.next_down()),
        window in span(s(1), s(3_600)),
        samples in count(&[1, 2, 10, u64::MAX]),
        least in within(0.0, 1.0),
    ) -> WinRate {
        WinRate::at_least(floor).window(window).minimum_samples(samples).minimum_allowance(least)
    }
}

prop_compose! {
    fn any_hedge()(
        timing in prop_oneof![
            within(0.5, 1.0_f64.next_down()).prop_map(Hedge::at),
            within(f64::MIN_POSITIVE, 0.5).prop_map(Hedge::within),
            span(Duration::ZERO, s(100)).prop_map(Hedge::after),
            Just(Hedge::after(Duration::MAX)),
            Just(Hedge::on_failure()),
        ],
        concurrent in count(&[2, 3, 16, u32::MAX]),
        samples in count(&[1, 2, 20, u64::MAX]),
        minimum in prop_oneof![span(ms(1), s(10)), Just(Duration::MAX)],
        more in prop::option::of(span(Duration::ZERO, s(10))),
        cold in prop::option::of(span(ms(1), s(10))),
        window in span(s(1), s(3_600)),
        suppress in within(f64::MIN_POSITIVE, 1.0),
        win_rate in prop::option::of(any_win_rate()),
    ) -> Hedge {
        let mut hedge = timing
            .max_concurrent(concurrent)
            .minimum_samples(samples)
            .minimum_delay(minimum)
            .window(window)
            .suppress_at(suppress);
        hedge.maximum_delay = more.map(|more| minimum.saturating_add(more));
        hedge.cold_start = cold;
        hedge.win_rate = win_rate;
        hedge
    }
}

prop_compose! {
    fn any_budget()(
        capacity in within(1.0, 1e6),
        initial in within(0.0, 1.0),
        reserve in within(0.0, 1.0),
        ratio in within(0.0, 1.0),
    ) -> BudgetPolicy {
        BudgetPolicy::default()
            .ratio(ratio)
            .capacity(capacity)
            .initial(initial * capacity)
            .reserve(reserve * capacity)
    }
}

prop_compose! {
    fn any_breaker()(
        consecutive in count(&[1, 2, 5, u32::MAX]),
        window in span(s(1), s(300)),
        calls in count(&[2, 3, 20, u64::MAX]),
        ratio in within(f64::MIN_POSITIVE, 1.0),
        floor in within(f64::MIN_POSITIVE, 1.0),
        cool_down in span(ms(1), s(3_600)),
    ) -> BreakerPolicy {
        BreakerPolicy::default()
            .consecutive(consecutive)
            .window(window)
            .minimum_calls(calls)
            .failure_ratio(ratio)
            .floor((floor * ratio).max(f64::MIN_POSITIVE))
            .cool_down(cool_down)
    }
}

prop_compose! {
    fn any_retry()(
        cap in span(Duration::ZERO, s(3_600)),
        base in within(0.0, 1.0),
        factor in within(1.0, 10.0),
        enabled: bool,
    ) -> Retry {
        let mut retry = Retry::default().cap(cap).base(cap.mul_f64(base).min(cap)).factor(factor);
        retry.enabled = enabled;
        retry
    }
}

/// A channel of one method, as far as it decides.
struct World {
    hedge: Hedge,
    retry: Retry,
    budget: Budget,
    breaker: Breaker,
    meter: Option<WinRateMeter>,
    ring: Ring,
    lag: Lag,
    now: Duration,
    spent: u64,
}

impl World {
    /// One call. Each attempt takes 7 ms more than the last and fails by `failed`'s bits.
    fn call(&mut self, max_attempts: u32, failed: u16, deadline: Option<Duration>) {
        let started = self.now;
        self.budget.deposit(started);
        let probe = match self.breaker.admit(started) {
            Admission::Open { .. } => return,
            Admission::Probe { probe, .. } => Some(probe),
            Admission::Closed => None,
        };
        let mut probe = probe;
        let mut race = Race::new(Rules {
            max_attempts,
            max_concurrent: self.hedge.max_concurrent,
            max_hedges: 15,
            hedging: max_attempts > 1,
            retries: self.retry.enabled,
            eager: false,
            max_unsent: MAX_UNSENT,
            deadline,
        });
        let mut flying = Vec::new();
        let mut launched = 0;
        let mut step = race.on(Duration::ZERO, Event::Start);
        for _ in 0..1_000 {
            let at = self.now - started;
            let event = match step {
                Step::End(_) => {
                    assert!(
                        (1..=max_attempts).contains(&launched) || deadline == Some(Duration::ZERO)
                    );
                    return;
                }
                Step::Launch(launch) => {
                    launched += 1;
                    if let Some(meter) = self.meter.as_ref().filter(|_| launch.id > 0) {
                        meter.started(self.now);
                    }
                    flying.push((at + ms(7 * u64::from(launched)), launch, at));
                    let hedge_after = self.hedge.threshold(self.ring.threshold(self.now));
                    Event::Launched { hedge_after }
                }
                Step::Ask(Ask::Hedge(_)) => match self.hedges() {
                    true => Event::Granted {
                        wait: Duration::ZERO,
                    },
                    false => Event::Held,
                },
                Step::Ask(Ask::Retry { backoff }) => match self.withdraw() {
                    true => Event::Granted {
                        wait: self.retry.backoff(backoff.unwrap_or(0), 0.5),
                    },
                    false => Event::Held,
                },
                Step::Wait { until } => {
                    flying.sort_by_key(|&(end, ..)| std::cmp::Reverse(end));
                    match flying.last().copied() {
                        Some((end, launch, begun)) if until.is_none_or(|until| end <= until) => {
                            flying.pop();
                            self.now = started + end;
                            let failed = failed >> launch.id.min(15) & 1 == 1;
                            match probe.take() {
                                Some(probe) if failed => drop(probe.failure(self.now)),
                                Some(probe) => drop(probe.success(self.now)),
                                None => drop(self.breaker.record(self.now, failed)),
                            }
                            self.ring.record(self.now, end - begun);
                            let verdict = match failed {
                                true => Verdict::Failure(Pushback::None),
                                false => Verdict::Answer,
                            };
                            Event::Finished { launch, verdict }
                        }
                        _ => {
                            self.now = started + until.unwrap();
                            Event::Tick
                        }
                    }
                }
            };
            step = race.on(self.now - started, event);
        }
        panic!("a call that does not end");
    }

    fn hedges(&mut self) -> bool {
        let report = Report::of(&Snapshot {
            configured: true,
            repeatable: Ok("a test"),
            breaker: Some(self.breaker.reading(self.now)),
            suppress_at: self.hedge.suppress_at,
            samples: self.ring.samples(self.now),
            minimum_samples: Some(self.hedge.minimum_samples)
                .filter(|_| self.hedge.is_measured() && self.hedge.cold_start.is_none()),
            budget: Some(self.budget.balance(self.now)),
            criticality: "default",
            sheddable: false,
        });
        let allowed = |meter: &WinRateMeter| meter.allow(self.now);
        report.reason().is_none()
            && !self.lag.is_saturated(self.now)
            && self.meter.as_ref().is_none_or(allowed)
            && self.withdraw()
    }

    fn withdraw(&mut self) -> bool {
        let granted = self.budget.try_withdraw(self.now);
        self.spent += u64::from(granted);
        granted
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A policy that can be built can run: no panic, every call ends, and what was spent is
    /// within the budget.
    #[test]
    fn a_policy_that_can_be_built_can_run(
        hedge in any_hedge(),
        retry in any_retry(),
        budget in any_budget(),
        breaker in any_breaker(),
        limit in span(ms(2), s(10)),
        max_attempts in 1_u32..=16,
        calls in prop::collection::vec((any::<u16>(), prop::option::of(span(Duration::ZERO, s(5)))), 1..60),
    ) {
        prop_assert_eq!(hedge.validate(), Ok(()));
        prop_assert_eq!(retry.validate(), Ok(()));
        let quantile = match hedge.timing {
            Timing::Quantile(quantile) => quantile,
            _ => 0.95,
        };
        let mut world = World {
            meter: hedge.win_rate.as_ref().map(|it| WinRateMeter::new(it).unwrap()),
            ring: Ring::new(quantile, hedge.window, hedge.minimum_samples),
            budget: Budget::new(&budget).unwrap(),
            breaker: Breaker::new(&breaker).unwrap(),
            lag: Lag::new(&Saturation::over(limit)).unwrap(),
            now: Duration::ZERO,
            spent: 0,
            hedge,
            retry,
        };
        let count = calls.len() as f64;
        for (failed, deadline) in calls {
            world.call(max_attempts, failed, deadline);
        }
        let funded = budget.initial + count * budget.ratio + budget.reserve * world.now.as_secs_f64();
        prop_assert!(world.spent as f64 <= funded + 0.001);
    }
}
