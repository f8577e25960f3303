//! The seven gates, each alone and all together, on both sides of their limits.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tonic_hedge_engine::{
    gate::{
        BreakerReading, BreakerState, Gate, Hold, Reading, Reason, Report, Snapshot,
        Value::{self, Count, Number, Text},
    },
    measure::{Admission, Breaker, Budget, WinRateMeter},
    policy::{BreakerPolicy, BudgetPolicy, WinRate},
};

/// All seven hold.
fn open() -> Snapshot {
    Snapshot {
        configured: true,
        repeatable: Ok("declared by the .proto"),
        breaker: Some(breaker(BreakerState::Closed, Some(0.1))),
        suppress_at: 0.5,
        samples: 20,
        minimum_samples: Some(20),
        budget: Some(1.0),
        criticality: "default",
        sheddable: false,
    }
}

fn breaker(state: BreakerState, error_rate: Option<f64>) -> BreakerReading {
    BreakerReading {
        state,
        calls: 100,
        failures: 10,
        error_rate,
        baseline: Some(0.1),
        trip_point: 0.3,
        hedging_trip_point: 0.3,
    }
}

fn text(value: &'static str) -> Value {
    Text(value.into())
}

/// Shuts one gate, and leaves the others as they are.
fn shut(at: &mut Snapshot, gate: Gate) {
    let reading = at.breaker.as_mut().unwrap();
    match gate {
        Gate::HedgeConfigured => at.configured = false,
        Gate::Repeatable => at.repeatable = Err("not declared idempotent"),
        Gate::BreakerClosed => reading.state = BreakerState::HalfOpen,
        Gate::ErrorRate => reading.error_rate = Some(0.2),
        Gate::Samples => at.samples = 7,
        Gate::Budget => at.budget = Some(0.4),
        Gate::NotSheddable => {
            at.criticality = "sheddable";
            at.sheddable = true;
        }
    }
}

#[test]
fn all_hold() {
    let report = Report::of(&open());
    assert_eq!(report.reason(), None);
    assert!(report.gates.iter().all(|reading| reading.holds));
}

/// Number, name, what it observes when it fails, and its limit.
#[test]
fn each_gate_alone() {
    let rows: [(Gate, u8, &str, Value, Value); 7] = [
        (
            Gate::HedgeConfigured,
            1,
            "hedge_configured",
            Value::Bool(false),
            Value::Bool(true),
        ),
        (
            Gate::Repeatable,
            2,
            "repeatable",
            text("not declared idempotent"),
            Value::Bool(true),
        ),
        (
            Gate::BreakerClosed,
            3,
            "breaker_closed",
            text("half_open"),
            text("closed"),
        ),
        (
            Gate::ErrorRate,
            4,
            "error_rate",
            Number(0.2),
            Number(0.5 * 0.3),
        ),
        (Gate::Samples, 5, "samples", Count(7), Count(20)),
        (Gate::Budget, 6, "budget", Number(0.4), Number(1.0)),
        (
            Gate::NotSheddable,
            7,
            "not_sheddable",
            text("sheddable"),
            text("sheddable"),
        ),
    ];
    for (gate, number, name, observed, limit) in rows {
        assert_eq!((gate.number(), gate.name()), (number, name));
        let mut snapshot = open();
        shut(&mut snapshot, gate);
        let report = Report::of(&snapshot);
        for (other, reading) in Gate::ALL.into_iter().zip(&report.gates) {
            assert_eq!(reading.holds, other != gate, "{name}: {}", other.name());
            assert_eq!(*reading, other.ask(&snapshot), "alone as in the report");
        }
        let reading = &report.gates[usize::from(number) - 1];
        assert_eq!(*reading, Reading::new(false, observed, limit), "{name}");
        assert_eq!(report.reason(), Some(Reason::Gate(gate)));
        assert_eq!(report.reason().unwrap().name(), name);
    }
}

/// BR7: the error rate's edge is strict: a rate that is exactly the limit holds hedges back.
#[test]
fn br7_both_sides_of_each_limit() {
    type Change = fn(&mut Snapshot);
    let rate = |at: &mut Snapshot, rate| {
        let reading = at.breaker.as_mut().unwrap();
        (reading.hedging_trip_point, reading.error_rate) = (0.5, rate);
    };
    fn set(at: &mut Snapshot, state: BreakerState) {
        at.breaker.as_mut().unwrap().state = state;
    }
    let rows: &[(Gate, Change, bool)] = &[
        (Gate::HedgeConfigured, |at| at.configured = true, true),
        (Gate::HedgeConfigured, |at| at.configured = false, false),
        (Gate::Repeatable, |at| at.repeatable = Ok("marked"), true),
        (Gate::Repeatable, |at| at.repeatable = Err("vetoed"), false),
        (
            Gate::BreakerClosed,
            |at| set(at, BreakerState::Closed),
            true,
        ),
        (
            Gate::BreakerClosed,
            |at| set(at, BreakerState::HalfOpen),
            false,
        ),
        (Gate::BreakerClosed, |at| set(at, BreakerState::Open), false),
        (Gate::BreakerClosed, |at| at.breaker = None, true),
        (Gate::ErrorRate, |at| at.breaker = None, true),
        (Gate::Samples, |at| at.samples = 19, false),
        (Gate::Samples, |at| at.samples = 20, true),
        (Gate::Samples, |at| at.samples = 21, true),
        // A fixed delay, or a cold-start threshold.
        (
            Gate::Samples,
            |at| (at.samples, at.minimum_samples) = (0, None),
            true,
        ),
        (Gate::Budget, |at| at.budget = Some(0.0), false),
        (Gate::Budget, |at| at.budget = Some(0.999_999), false),
        (Gate::Budget, |at| at.budget = Some(1.0), true),
        (Gate::Budget, |at| at.budget = Some(1.000_001), true),
        // Known only when it is asked for a token.
        (Gate::Budget, |at| at.budget = None, true),
        (Gate::NotSheddable, |at| at.criticality = "critical", true),
        (Gate::NotSheddable, |at| at.sheddable = true, false),
    ];
    for (row, (gate, change, holds)) in rows.iter().enumerate() {
        let mut snapshot = open();
        change(&mut snapshot);
        assert_eq!(gate.ask(&snapshot).holds, *holds, "row {row}: {gate:?}");
    }
    for (error_rate, holds) in [
        (None, true),
        (Some(0.0), true),
        (Some(0.249), true),
        (Some(0.25_f64.next_down()), true),
        (Some(0.25), false),
        (Some(0.25_f64.next_up()), false),
        (Some(0.251), false),
        (Some(1.0), false),
    ] {
        let mut snapshot = open();
        rate(&mut snapshot, error_rate);
        let reading = Gate::ErrorRate.ask(&snapshot);
        assert_eq!(reading, Reading::new(holds, error_rate, 0.25));
    }
}

/// The same edge with a breaker's own numbers: 5 of 20 and 50 % with a fraction of 0.5.
#[test]
fn br7_with_a_measured_rate() {
    let policy = BreakerPolicy::default().floor(0.5);
    for (failures, calls, holds) in [(4, 20, true), (5, 21, true), (5, 20, false), (6, 20, false)] {
        let breaker = Breaker::new(&policy).unwrap();
        for call in 0..calls {
            assert_eq!(
                breaker.record(Duration::ZERO, call % 3 == 0 && call / 3 < failures),
                None
            );
        }
        let reading = breaker.reading(Duration::ZERO);
        assert_eq!((reading.failures, reading.calls), (failures, calls));
        let snapshot = Snapshot {
            breaker: Some(reading),
            ..open()
        };
        assert_eq!(
            Gate::ErrorRate.ask(&snapshot).holds,
            holds,
            "{failures} of {calls}"
        );
    }
}

/// One failure in 19 calls is no rate, whatever it comes after; nor are 20 calls with one failure.
#[test]
fn one_failure_in_nineteen_arms_nothing() {
    let armed = |outcomes: &str| {
        let breaker = Breaker::new(&BreakerPolicy::default()).unwrap();
        for outcome in outcomes.chars() {
            breaker.record(Duration::ZERO, outcome == 'F');
        }
        let reading = breaker.reading(Duration::ZERO);
        let closed = reading.state == BreakerState::Closed;
        let snapshot = Snapshot {
            breaker: Some(reading),
            ..open()
        };
        assert!(closed, "{outcomes}");
        !Gate::ErrorRate.ask(&snapshot).holds
    };
    for place in 0..19 {
        let mut outcomes = [b'.'; 19].map(char::from);
        outcomes[place] = 'F';
        let outcomes: String = outcomes.iter().collect();
        assert!(!armed(&outcomes));
        assert!(!armed(&format!("{outcomes}.")), "20 calls, one failure");
    }
    assert!(!armed("FFFF..............."), "19 calls, four failures");
    assert!(armed("FFFF...F............"), "20 calls, five failures");
}

/// CF3: a hedge starts only when all seven hold; its reason is the first that does not.
#[test]
fn cf3_all_combinations() {
    for mask in 0..1_u32 << 7 {
        let mut snapshot = open();
        let shut_ones = || {
            Gate::ALL
                .into_iter()
                .filter(|gate| mask >> (gate.number() - 1) & 1 == 1)
        };
        for gate in shut_ones() {
            shut(&mut snapshot, gate);
        }
        let mut report = Report::of(&snapshot);
        assert_eq!(
            report.reason(),
            shut_ones().next().map(Reason::Gate),
            "{mask:07b}"
        );
        for (gate, reading) in Gate::ALL.into_iter().zip(&report.gates) {
            assert_eq!(
                reading.holds,
                !shut_ones().any(|it| it == gate),
                "{mask:07b}"
            );
        }
        // A hold comes after all gates, and the first hold before the next.
        report
            .holds
            .push((Hold::WinRate, Reading::new(true, 1.0, 1.0)));
        report
            .holds
            .push((Hold::OtherEndpoint, Reading::new(false, false, true)));
        report
            .holds
            .push((Hold::Lane, Reading::new(false, false, true)));
        let first = shut_ones()
            .next()
            .map_or(Reason::Hold(Hold::OtherEndpoint), Reason::Gate);
        assert_eq!(report.reason(), Some(first));
    }
}

#[test]
fn asking_changes_nothing() {
    let now = Duration::from_secs(1);
    let budget = Budget::new(&BudgetPolicy::default().initial(1.0)).unwrap();
    let breaker = Breaker::new(&BreakerPolicy::default()).unwrap();
    for _ in 0..4 {
        breaker.record(now, true);
    }
    let meter = WinRateMeter::new(&WinRate::at_least(0.5)).unwrap();
    (0..10).for_each(|_| meter.started(Duration::ZERO));
    let later = now + Duration::from_secs(15);
    let before = (breaker.reading(later), meter.allowance(later));
    for _ in 0..1_000 {
        let snapshot = Snapshot {
            budget: Some(budget.balance(later)),
            breaker: Some(breaker.reading(later)),
            ..open()
        };
        let mut report = Report::of(&snapshot);
        let would = meter.would_allow(later);
        report.holds.push((
            Hold::WinRate,
            Reading::new(would, meter.allowance(later), 1.0),
        ));
        assert_eq!(report.reason(), Some(Reason::Hold(Hold::WinRate)));
    }
    assert_eq!((breaker.reading(later), meter.allowance(later)), before);
    assert!(matches!(breaker.admit(later), Admission::Closed));
    assert_eq!(budget.balance(later), 1.0);
    assert!(budget.try_withdraw(later), "the one token is still there");
    assert!(
        !meter.allow(later),
        "half of one, and not a thousand halves"
    );
    assert!(meter.allow(later));
}

#[test]
fn values_as_text() {
    for (value, text) in [
        (Value::None, "none"),
        (Value::Bool(true), "true"),
        (Count(20), "20"),
        (Number(0.25), "0.250"),
        (Value::Time(Duration::from_millis(5)), "5ms"),
        (text("closed"), "closed"),
    ] {
        assert_eq!(value.to_string(), text);
    }
}
