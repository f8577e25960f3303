//! Tenants: each keeps its share of a lane, and their number is bounded.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{thread, time::Duration};

use tonic_hedge_engine::lane::{
    Lane, LaneOutcome, LanePolicy, Permit, TenantPolicy, TenantReading, Tenants,
};

const INTERACTIVE: usize = 0;
const BATCH: usize = 1;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn fixed(limit: u32) -> Lane {
    Lane::new(&LanePolicy::default().minimum(limit).maximum(limit)).unwrap()
}

fn tenants(policy: &TenantPolicy, limits: [u32; 2]) -> (Tenants, [Lane; 2]) {
    let lanes = limits.map(fixed);
    (Tenants::new(policy, lanes.clone()).unwrap(), lanes)
}

fn names(readings: &[TenantReading]) -> Vec<&str> {
    readings.iter().map(|it| &*it.name).collect()
}

/// A tenant's traffic in one class: so many calls a second, each of which takes so long.
#[derive(Clone, Copy)]
struct Load {
    tenant: &'static str,
    class: usize,
    per_second: u64,
    takes: u64,
}

/// Runs the loads against the lanes for a minute; what each of them got done in a second.
fn run(tenants: &Tenants, lanes: &[Lane; 2], loads: &[Load]) -> Vec<f64> {
    const MINUTE: u64 = 60_000;
    let mut running: Vec<(u64, usize, Permit)> = Vec::new();
    let mut done = vec![0_u32; loads.len()];
    for now in 0..MINUTE {
        for index in (0..running.len()).rev() {
            if running[index].0 <= now {
                let (_, load, permit) = running.swap_remove(index);
                permit.finish(ms(now), LaneOutcome::Answered);
                done[load] += 1;
            }
        }
        // Each millisecond another one is the first.
        for index in 0..loads.len() {
            let index = (index + now as usize) % loads.len();
            let load = loads[index];
            let due = (now + 1) * load.per_second / 1_000 - now * load.per_second / 1_000;
            for _ in 0..due {
                let permit = tenants.try_admit(ms(now), Some(load.tenant), load.class);
                let limits = lanes.iter().all(|lane| lane.in_flight() <= lane.limit());
                assert!(limits, "over the limit");
                running.extend(permit.map(|permit| (now + load.takes, index, permit)));
            }
        }
    }
    let seconds = MINUTE as f64 / 1_000.0;
    done.into_iter()
        .map(|done| f64::from(done) / seconds)
        .collect()
}

fn within_a_tenth(rate: f64, expected: f64) -> bool {
    (rate / expected - 1.0).abs() <= 0.1
}

/// Two tenants, of which one floods batch: the other's batch, and everybody's interactive calls,
/// keep their share.
#[test]
fn a_flood_of_one_tenant() {
    let (tenants, lanes) = tenants(&TenantPolicy::default(), [40, 20]);
    let load = |tenant, class, per_second| Load {
        tenant,
        class,
        per_second,
        takes: 100,
    };
    let rates = run(
        &tenants,
        &lanes,
        &[
            load("flood", BATCH, 2_000),
            load("calm", BATCH, 90),
            load("flood", INTERACTIVE, 150),
            load("calm", INTERACTIVE, 150),
        ],
    );
    // Twenty places, each of which is free ten times a second, halved.
    assert!(within_a_tenth(rates[0], 100.0), "{rates:?}");
    assert!(within_a_tenth(rates[1], 90.0), "{rates:?}");
    assert!(within_a_tenth(rates[2], 150.0), "{rates:?}");
    assert!(within_a_tenth(rates[3], 150.0), "{rates:?}");
    let calm = &tenants.readings(ms(60_000), BATCH)[0];
    assert_eq!(&*calm.name, "calm");
    assert!(
        calm.shed < 30,
        "only while the flood's first calls drain: {calm:?}"
    );
}

/// Two that both want all get half each; three a third.
#[test]
fn equal_floods() {
    for names in [
        &["a", "b"][..],
        &["a", "b", "c"],
        &["a", "b", "c", "d", "e"],
    ] {
        let (tenants, lanes) = tenants(&TenantPolicy::default(), [1, 30]);
        let flood = |tenant: &&'static str| Load {
            tenant,
            class: BATCH,
            per_second: 1_000,
            takes: 100,
        };
        let loads: Vec<_> = names.iter().map(flood).collect();
        let rates = run(&tenants, &lanes, &loads);
        let share = 300.0 / names.len() as f64;
        assert!(
            rates.iter().all(|rate| within_a_tenth(*rate, share)),
            "{rates:?}"
        );
    }
}

/// What does not divide is used, and in the long run by all alike, however long the calls are.
#[test]
fn what_is_left_over() {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    for (limit, count) in [(5, 3), (7, 4), (12, 7), (10, 3)] {
        for takes in [20, 100, 130, 400, 1_000] {
            let (tenants, lanes) = tenants(&TenantPolicy::default(), [1, limit]);
            let flood = |tenant: &&'static str| Load {
                tenant,
                class: BATCH,
                per_second: 1_000,
                takes,
            };
            let loads: Vec<_> = NAMES[..count].iter().map(flood).collect();
            let rates = run(&tenants, &lanes, &loads);
            let share = f64::from(limit) * 1_000.0 / takes as f64 / count as f64;
            assert!(
                rates.iter().all(|rate| within_a_tenth(*rate, share)),
                "{limit} places, {takes} ms: {rates:?} for {share}"
            );
        }
    }
}

/// A tenant that was shed, came back and left reserves nothing beyond the second of everyone.
#[test]
fn who_is_back_is_expected_no_more() {
    let (tenants, [_, lane]) = tenants(&TenantPolicy::default(), [1, 10]);
    let admit = |at, name| tenants.try_admit(ms(at), Some(name), BATCH);
    // Places are held for long here: who is shed is told to wait for seconds.
    let first: Vec<_> = (0..10).map_while(|_| admit(0, "a")).collect();
    for permit in first {
        permit.finish(ms(5_000), LaneOutcome::Answered);
    }
    let mut all: Vec<_> = (0..10).map_while(|_| admit(5_000, "a")).collect();
    assert!(admit(5_010, "b").is_none(), "full");
    all.pop();
    let back = admit(5_020, "b").unwrap();
    drop((back, all));
    let all: Vec<_> = (0..10).map_while(|_| admit(6_200, "a")).collect();
    assert_eq!((all.len(), lane.in_flight()), (10, 10));
}

/// A tenant that is alone may use all, again once the others have been silent for a second; one
/// that comes gets its share as the others drain.
#[test]
fn alone_and_together() {
    let (tenants, [_, lane]) = tenants(&TenantPolicy::default(), [1, 9]);
    let admit = |at, name| tenants.try_admit(ms(at), Some(name), BATCH);
    let mut a: Vec<_> = (0..10).map_while(|_| admit(0, "a")).collect();
    assert_eq!(a.len(), 9);
    assert!(admit(10, "b").is_none(), "full");
    a.drain(..4);
    assert!(admit(20, "a").is_none(), "over half: 4 of 9");
    let mut b: Vec<_> = (0..10).map_while(|_| admit(20, "b")).collect();
    assert_eq!((b.len(), lane.in_flight()), (4, 9));
    let c = admit(30, "c");
    assert!(c.is_none());
    b.drain(..1);
    assert!(admit(40, "b").is_none(), "a third is three");
    let c = admit(40, "c");
    assert!(c.is_some());
    b.clear();
    drop(c);
    // All are counted anew after a tenth of a second. Those who asked within one second stay, and
    // those who were shed for a second longer than they were told to wait: 200 ms at most.
    assert!(admit(900, "a").is_none());
    assert!(admit(1_200, "a").is_none());
    let all: Vec<_> = (0..10).map_while(|_| admit(1_300, "a")).collect();
    assert_eq!((a.len() + all.len(), lane.in_flight()), (9, 9));
}

/// Who is shed and comes again when it was told to finds a place, however much later than a
/// second that is and however one floods who never waits.
#[test]
fn who_comes_when_it_was_told_to() {
    for takes in [1_000, 3_000, 30_000] {
        // A call of the flood each millisecond, and places that become free one after the other.
        let policy = TenantPolicy::default().idle(ms(1_000));
        let (tenants, [_, lane]) = tenants(&policy, [1, 20]);
        let mut running: Vec<(u64, Permit)> = Vec::new();
        let mut due = 120_000;
        let mut tries = 0;
        for now in 0..180_000 {
            for index in (0..running.len()).rev() {
                if running[index].0 <= now {
                    let (_, permit) = running.swap_remove(index);
                    permit.finish(ms(now), LaneOutcome::Answered);
                }
            }
            let flood = tenants.try_admit(ms(now), Some("flood"), BATCH);
            let spread = now % 20 * takes / 20;
            running.extend(flood.map(|permit| (now + takes + spread, permit)));
            if now == due {
                tries += 1;
                match tenants.try_admit(ms(now), Some("polite"), BATCH) {
                    Some(_place) => break,
                    None => due += lane.retry_after(ms(now), 0.99).as_millis() as u64,
                }
            }
        }
        // Twice where the calls of the flood outlast the longest wait.
        let most = 1 + takes.div_ceil(10_000);
        assert!(
            (2..=most).contains(&tries),
            "{takes} ms: tried {tries} times"
        );
        assert!(due < 180_000, "{takes} ms: never");
    }
}

/// Who has a call in flight is there, however long it takes.
#[test]
fn a_long_call_keeps_its_share() {
    let (tenants, _) = tenants(&TenantPolicy::default(), [1, 4]);
    let admit = |at, name| tenants.try_admit(ms(at), Some(name), BATCH);
    let _long = admit(0, "long").unwrap();
    for minute in 1..20 {
        let at = minute * 60_000;
        let other: Vec<_> = (0..9).map_while(|_| admit(at, "other one")).collect();
        assert_eq!(other.len(), 2);
    }
    let readings = tenants.readings(ms(1_200_000), BATCH);
    assert_eq!(names(&readings), ["long", "other one"]);
}

/// A class is a matter of its own: who floods one has no less of another.
#[test]
fn classes_are_apart() {
    let (tenants, lanes) = tenants(&TenantPolicy::default(), [3, 1]);
    let flood: Vec<_> = (0..9)
        .map_while(|_| tenants.try_admit(ms(0), Some("a"), BATCH))
        .collect();
    assert_eq!(flood.len(), 1);
    let interactive: Vec<_> = (0..9)
        .map_while(|_| tenants.try_admit(ms(0), Some("b"), INTERACTIVE))
        .collect();
    assert_eq!(interactive.len(), 3, "alone there");
    drop((flood, interactive));
    assert_eq!(lanes.map(|lane| lane.in_flight()), [0, 0]);
}

/// More tenants than places: each may have one, and the lane's limit holds.
#[test]
fn more_tenants_than_places() {
    let (tenants, [_, lane]) = tenants(&TenantPolicy::default(), [1, 3]);
    let names: Vec<_> = (0..10).map(|i| format!("t{i}")).collect();
    let permits: Vec<_> = names
        .iter()
        .filter_map(|name| tenants.try_admit(ms(0), Some(name), BATCH))
        .collect();
    assert_eq!((permits.len(), lane.in_flight()), (3, 3));
}

/// LA8 for a tenant: a hedge counts in the share as well.
#[test]
fn la8_a_hedge_within_the_share() {
    let (tenants, [_, lane]) = tenants(&TenantPolicy::default(), [1, 4]);
    let admit = |name| tenants.try_admit(ms(0), Some(name), BATCH);
    let a = admit("a").unwrap();
    let b = admit("b").unwrap();
    let extra = a.try_extra();
    assert!(extra.is_some());
    assert!(a.room().try_extra().is_none(), "its half is two");
    assert!(admit("a").is_none());
    assert_eq!(tenants.readings(ms(0), BATCH)[0].in_flight, 2);
    let second = admit("b").unwrap();
    assert!(second.try_extra().is_none(), "full");
    drop((a, b, second, extra));
    assert_eq!(lane.in_flight(), 0);
    let left = tenants.readings(ms(0), BATCH);
    assert!(left.iter().all(|it| it.in_flight == 0), "{left:?}");
}

/// A flood of invented names cannot grow the table; together they are one tenant, and those who
/// are known keep their share. Idle ones are forgotten.
#[test]
fn bounded_tenants() {
    let policy = TenantPolicy::default().most(100);
    let (tenants, [_, lane]) = tenants(&policy, [1, 8]);
    let known = tenants.try_admit(ms(0), Some("known"), BATCH).unwrap();
    for i in 0..100_000_u64 {
        let name = format!("invented {i}");
        drop(tenants.try_admit(ms(i / 100), Some(&name), BATCH));
    }
    let readings = tenants.readings(ms(1_000), BATCH);
    assert_eq!(readings.len(), 101);
    assert_eq!(&*readings[100].name, "other");
    assert_eq!(readings[100].admitted + readings[100].shed, 100_000 - 99);
    let sum: u64 = readings.iter().map(|it| it.admitted).sum();
    assert_eq!(sum, lane.reading().admitted);
    // Of the flood only `other` asks still, at 2.1 s.
    let later: Vec<_> = (0..20)
        .map_while(|i| tenants.try_admit(ms(2_100), Some(&format!("late {i}")), BATCH))
        .collect();
    assert_eq!(later.len(), 4, "half, beside the one that is known");
    drop((later, known));
    // Past five minutes even the full table is emptied, and newcomers have places again.
    let at = ms(310_000);
    drop(tenants.try_admit(at, Some("newcomer"), BATCH).unwrap());
    assert_eq!(names(&tenants.readings(at, BATCH)), ["newcomer", "other"]);
    // And without any call at all.
    assert_eq!(names(&tenants.readings(ms(620_000), BATCH)), ["other"]);
}

/// Who has no name, a name that is too long, or the name `other`, is `other`.
#[test]
fn names_that_are_not_kept() {
    let (tenants, _) = tenants(&TenantPolicy::default(), [9, 9]);
    let (long, longest) = ("x".repeat(129), "x".repeat(128));
    for name in [None, Some("other"), Some(&*long)] {
        drop(tenants.try_admit(ms(0), name, BATCH).unwrap());
    }
    drop(tenants.try_admit(ms(0), Some(&longest), BATCH).unwrap());
    drop(tenants.try_admit(ms(0), Some(""), BATCH).unwrap());
    let readings = tenants.readings(ms(0), BATCH);
    assert_eq!(names(&readings), ["", &*longest, "other"]);
    assert_eq!(readings[2].admitted, 3);
    assert!(tenants.readings(ms(0), INTERACTIVE).is_empty());
}

#[test]
fn policies_out_of_bounds() {
    let default = TenantPolicy::default;
    for (policy, text) in [
        (default().most(0), "Tenant.most: 0 is not in [1, 65536]"),
        (
            default().most(65_537),
            "Tenant.most: 65537 is not in [1, 65536]",
        ),
        (
            default().idle(ms(999)),
            "Tenant.idle: 999ms is not in [1s, 86400s]",
        ),
    ] {
        let error = Tenants::new(&policy, [fixed(1)]).unwrap_err();
        assert_eq!(error.to_string(), text);
    }
}

/// Threads, names that come and go, and limits that move: at the end nothing is left.
#[test]
fn many_threads() {
    let policy = TenantPolicy::default().most(8).idle(Duration::from_secs(1));
    let lanes = [
        LanePolicy::default().initial(10),
        LanePolicy::default().initial(5),
    ]
    .map(|policy| Lane::new(&policy).unwrap());
    let tenants = Tenants::new(&policy, lanes.clone()).unwrap();
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (tenants, lanes) = (&tenants, &lanes);
            scope.spawn(move || {
                for i in 0..20_000_u64 {
                    let name = format!("{}", (i / 100 + thread) % 12);
                    let now = ms(i);
                    let class = (i % 2) as usize;
                    let Some(permit) = tenants.try_admit(now, Some(&name), class) else {
                        continue;
                    };
                    let extra = permit.try_extra();
                    assert!(lanes[class].in_flight() >= 1);
                    match i % 7 {
                        0 => permit.finish(now + ms(1), LaneOutcome::Overloaded),
                        1..=3 => permit.finish(now + ms(1), LaneOutcome::Answered),
                        _ => drop(permit),
                    }
                    drop(extra);
                }
            });
        }
    });
    let at = ms(25_000);
    for (class, lane) in lanes.iter().enumerate() {
        assert_eq!(lane.in_flight(), 0);
        let readings = tenants.readings(at, class);
        assert!(readings.len() <= 9, "{readings:?}");
        assert!(readings.iter().all(|it| it.in_flight == 0), "{readings:?}");
        let all: Vec<_> = (0..lane.limit() + 1)
            .map_while(|_| tenants.try_admit(at, Some("last"), class))
            .collect();
        assert_eq!(all.len() as u32, lane.limit(), "alone again");
    }
}
