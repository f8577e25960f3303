//! Lanes: the exact path of a limit, places that always come back, and what moves a limit.
// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use tonic_hedge_engine::lane::{
    Aimd, Gradient, Lane, LaneAlgorithm, LaneOutcome, LanePolicy, LaneSample, LimitAlgorithm,
    Permit,
};

use LaneOutcome::{Answered, Overloaded};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lane(policy: LanePolicy) -> Lane {
    Lane::new(&policy).unwrap()
}

/// A lane whose limit stays.
fn fixed(limit: u32) -> Lane {
    lane(LanePolicy::default().minimum(limit).maximum(limit))
}

/// Feeds a series of (end, round trip, in flight, outcome), in milliseconds; the limit after each.
fn path(
    algorithm: &mut dyn LimitAlgorithm,
    series: impl IntoIterator<Item = (u64, u64, u32, LaneOutcome)>,
) -> Vec<u32> {
    let mut limits = Vec::new();
    for (end, rtt, in_flight, outcome) in series {
        let sample = LaneSample {
            rtt: ms(rtt),
            in_flight,
            outcome,
        };
        algorithm.sample(ms(end), sample);
        limits.push(algorithm.limit());
    }
    limits
}

/// LA1: one more per window, three quarters on a slow one or an overload, within the bounds; the
/// path is exact.
#[test]
fn la1_the_path_of_aimd() {
    let policy = LanePolicy::default()
        .minimum(3)
        .maximum(10)
        .initial(8)
        .target(ms(500))
        .window(ms(100));
    let series = [
        (200, 200, 8, Answered, 9),   // the first
        (350, 200, 8, Answered, 9),   // admitted before the limit was 9
        (290, 80, 9, Answered, 9),    // a window has not passed
        (350, 80, 9, Answered, 10),   // it has
        (500, 100, 10, Answered, 10), // the maximum
        (600, 500, 10, Answered, 10), // the target itself is good
        (700, 501, 10, Answered, 7),  // floor(7.5)
        (850, 700, 10, Answered, 7),  // admitted before the cut
        (860, 170, 7, Overloaded, 7), // and this one
        (790, 10, 7, Overloaded, 7),  // not a window after it
        (860, 10, 7, Overloaded, 5),
        (980, 130, 5, Answered, 5), // admitted before the second cut
        (980, 60, 5, Answered, 6),
        (1_000, 20, 6, Overloaded, 4), // a raise does not put a cut off
        (1_100, 5, 4, Overloaded, 3),
        (1_300, 5, 3, Overloaded, 3), // the minimum
        (1_400, 100, 1, Answered, 3), // not used
        (1_500, 100, 2, Answered, 4), // half of it is
    ];
    let limits = path(
        &mut Aimd::new(&policy),
        series.map(|(end, rtt, in_flight, outcome, _)| (end, rtt, in_flight, outcome)),
    );
    assert_eq!(limits, series.map(|(.., limit)| limit));
}

/// A fast call that raises the limit all the time does not hide the slow ones.
#[test]
fn la1_a_slow_call_among_many_fast_ones() {
    let policy = LanePolicy::default().initial(16).target(ms(500));
    let fast = (0..10).map(|i| (1_000 + i * 100, 50, 20, Answered));
    let limits = path(
        &mut Aimd::new(&policy),
        fast.chain([(2_000, 1_000, 20, Answered)]),
    );
    assert_eq!(limits, [17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 19]);
}

/// LA1: samples that meet are not lost: each of them moves the limit, whichever thread brings it.
#[test]
fn la1_concurrent_updates_are_not_lost() {
    /// One more for each sample.
    #[derive(Debug)]
    struct Counting(u32);
    impl LimitAlgorithm for Counting {
        fn limit(&self) -> u32 {
            self.0
        }
        fn sample(&mut self, _: Duration, _: LaneSample) {
            self.0 += 1;
        }
        fn resume(&mut self, limit: u32) {
            self.0 = limit;
        }
    }
    let lane = lane(
        LanePolicy::default()
            .maximum(1_000_000)
            .initial(100)
            .algorithm(LaneAlgorithm::custom(|policy| {
                Box::new(Counting(policy.initial.unwrap()))
            })),
    );
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    lane.try_admit(ms(1)).unwrap().finish(ms(1), Answered);
                }
            });
        }
    });
    assert_eq!((lane.limit(), lane.in_flight()), (80_100, 0));
}

/// LA2.
#[test]
fn la2_a_limit_that_is_not_used_does_not_grow() {
    let policy = LanePolicy::default().initial(10);
    for (make, one, half) in [
        (LaneAlgorithm::Aimd, 10, 11),
        (LaneAlgorithm::Gradient, 10, 10), // 10.8
    ] {
        let lane = lane(policy.clone().algorithm(make));
        for i in 0..100 {
            let permit = lane.try_admit(ms(i * 1_000)).unwrap();
            permit.finish(ms(i * 1_000 + 50), Answered);
        }
        assert_eq!(lane.limit(), one);
        let permits: Vec<_> = (0..5).filter_map(|_| lane.try_admit(ms(200_000))).collect();
        for permit in permits {
            permit.finish(ms(200_050), Answered);
        }
        assert_eq!(lane.limit(), half);
    }
}

/// LA3: a permit that is dropped without an end says nothing; an answer does not cut.
#[test]
fn la3_what_cuts() {
    let lane = lane(LanePolicy::default().initial(20).target(ms(500)));
    let admit = |at| lane.try_admit(ms(at)).unwrap();
    drop(admit(0));
    admit(0).finish(ms(100), Answered);
    let shed = fixed(1);
    let _held = shed.try_admit(ms(0));
    assert!(shed.try_admit(ms(0)).is_none());
    assert_eq!((lane.limit(), shed.limit()), (20, 1));
    admit(200).finish(ms(201), Overloaded);
    assert_eq!(lane.limit(), 15);
    admit(400).finish(ms(901), Answered);
    assert_eq!(lane.limit(), 11, "too slow");
}

/// LA4: whatever ends a call, its place is back.
#[test]
fn la4_release_on_every_exit() {
    let lane = fixed(3);
    let ends: [fn(Permit); 6] = [
        drop,
        |permit| permit.finish(ms(5), Answered),
        |permit| permit.finish(ms(5), Overloaded),
        |mut permit| permit.sample(ms(5), Answered),
        |mut permit| {
            permit.sample(ms(5), Answered);
            permit.finish(ms(9), Overloaded);
        },
        |permit| {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _permit = permit;
                std::panic::resume_unwind(Box::new("a handler's panic"));
            }));
            assert!(caught.is_err());
        },
    ];
    for end in ends {
        let permit = lane.try_admit(ms(0)).unwrap();
        assert_eq!(lane.in_flight(), 1);
        end(permit);
        assert_eq!(lane.in_flight(), 0);
    }
    let all: Vec<_> = (0..4).map(|_| lane.try_admit(ms(10))).collect();
    assert_eq!(all.iter().flatten().count(), 3, "all three are there");
}

/// LA8: a hedge gets what is free, and nothing else.
#[test]
fn la8_a_hedge_is_last_in_line() {
    let lane = fixed(2);
    let permit = lane.try_admit(ms(0)).unwrap();
    let room = permit.room();
    let extra = permit.try_extra().unwrap();
    assert_eq!(lane.in_flight(), 2);
    assert!(room.try_extra().is_none());
    drop(extra);
    let other = lane.try_admit(ms(0)).unwrap();
    assert!(permit.try_extra().is_none() && room.try_extra().is_none());
    drop((permit, other));
    let late = room.try_extra();
    assert_eq!(
        lane.in_flight(),
        1,
        "it is counted though its call has ended"
    );
    drop(late);
    assert_eq!(lane.in_flight(), 0);
    let reading = lane.reading();
    assert_eq!(
        (reading.admitted, reading.shed),
        (2, 0),
        "hedges are no calls"
    );
}

/// A server of this capacity: a call takes 100 ms while no more than the capacity are there, and
/// longer in proportion; `times` slower in all.
struct Server {
    capacity: u32,
    times: u64,
}

impl Server {
    /// Keeps the lane full from `from` for `period`; the limits at the end of each second.
    fn saturate(&self, lane: &Lane, from: Duration, period: Duration) -> Vec<u32> {
        let mut running: Vec<(Duration, Permit)> = Vec::new();
        let mut limits = Vec::new();
        let mut now = from;
        while now < from + period {
            while let Some(index) = running.iter().position(|(end, _)| *end <= now) {
                let (_, permit) = running.swap_remove(index);
                permit.finish(now, Answered);
            }
            while let Some(permit) = lane.try_admit(now) {
                assert!(lane.in_flight() <= lane.limit());
                let load = u64::from(lane.in_flight().div_ceil(self.capacity));
                running.push((now + ms(100) * (load * self.times) as u32, permit));
            }
            now += ms(10);
            if now.subsec_millis() == 0 {
                limits.push(lane.limit());
            }
        }
        limits
    }
}

fn both() -> [(&'static str, Lane); 2] {
    let policy = LanePolicy::default()
        .minimum(4)
        .maximum(200)
        .target(ms(150));
    [
        ("aimd", lane(policy.clone())),
        ("gradient", lane(policy.algorithm(LaneAlgorithm::Gradient))),
    ]
}

/// LA9: ten times the latency for an hour is not learnt as healthy; afterwards the lane is back.
#[test]
fn la9_drift() {
    for (name, lane) in both() {
        let mut server = Server {
            capacity: 50,
            times: 1,
        };
        let healthy = server.saturate(&lane, ms(0), Duration::from_secs(300));
        assert!(healthy[299] > 35, "{name}: {healthy:?}");
        server.times = 10;
        let slow = server.saturate(&lane, Duration::from_secs(300), Duration::from_secs(3_600));
        assert!(
            slow[20..].iter().all(|limit| *limit <= 10),
            "{name}: {slow:?}"
        );
        server.times = 1;
        let again = server.saturate(&lane, Duration::from_secs(3_900), Duration::from_secs(60));
        assert!(again[59] > 35, "{name}: {again:?}");
    }
}

/// LA9: what counts as usual to the gradient at most doubles in an hour, and falls at once.
#[test]
fn la9_the_usual_round_trip() {
    let mut gradient = Gradient::new(&LanePolicy::default());
    let mut feed = |from: u64, rtt: u64| {
        let series = (0..36_000).map(|i| (from * 1_000 + i * 100, rtt, 20, Answered));
        path(&mut gradient, series);
        gradient.usual().unwrap().as_secs_f64() * 1_000.0
    };
    let healthy = feed(0, 100);
    assert!((99.9..100.1).contains(&healthy), "{healthy}");
    let slow = feed(3_600, 1_000);
    assert!((150.0..=200.1).contains(&slow), "{slow}");
    let again = feed(7_200, 100);
    assert!((99.9..100.1).contains(&again), "{again}");
}

/// LA10: a limit below what is in flight underflows nothing, and drains.
#[test]
fn la10_shrink_below_in_flight() {
    let lane = lane(LanePolicy::default().initial(100));
    let mut permits: Vec<_> = (0..100).map_while(|_| lane.try_admit(ms(0))).collect();
    assert_eq!(permits.len(), 100);
    lane.resume(10);
    assert_eq!((lane.limit(), lane.in_flight()), (10, 100));
    while permits.len() > 10 {
        assert!(lane.try_admit(ms(1)).is_none());
        assert!(permits[0].try_extra().is_none());
        drop(permits.pop());
    }
    assert!(lane.try_admit(ms(1)).is_none(), "at the limit");
    drop(permits.pop());
    assert!(lane.try_admit(ms(1)).is_some());
    drop(permits);
    assert_eq!((lane.limit(), lane.in_flight()), (10, 0));
}

/// LA14: min = max is a fixed limit; the others are errors, and none panics.
#[test]
fn la14_bounds() {
    let default = LanePolicy::default;
    for algorithm in [LaneAlgorithm::Aimd, LaneAlgorithm::Gradient] {
        let lane = lane(default().minimum(5).maximum(5).algorithm(algorithm));
        for i in 0..20 {
            let permits: Vec<_> = (0..9).map_while(|_| lane.try_admit(ms(i * 900))).collect();
            assert_eq!(permits.len(), 5);
            for permit in permits {
                let outcome = if i % 3 == 0 { Overloaded } else { Answered };
                permit.finish(ms(i * 900 + 200), outcome);
            }
        }
        assert_eq!(lane.limit(), 5);
    }
    for (policy, text) in [
        (default().minimum(0), "Lane.minimum: 0 is not at least 1"),
        (
            default().minimum(0).maximum(0),
            "Lane.minimum: 0 is not at least 1",
        ),
        (
            default().maximum(0),
            "Lane.minimum: 1 is not at most Lane.maximum",
        ),
        (
            default().minimum(9).maximum(8),
            "Lane.minimum: 9 is not at most Lane.maximum",
        ),
        (
            default().initial(0),
            "Lane.initial: 0 is not in [Lane.minimum, Lane.maximum]",
        ),
        (
            default().maximum(10).initial(11),
            "Lane.initial: 11 is not in [Lane.minimum, Lane.maximum]",
        ),
        (
            default().target(ms(0)),
            "Lane.target: 0ns is not in [1ms, 3600s]",
        ),
        (
            default().target(Duration::MAX),
            "Lane.target: 18446744073709551615.999999999s is not in [1ms, 3600s]",
        ),
        (
            default().window(ms(0)),
            "Lane.window: 0ns is not in [1ms, 60s]",
        ),
        (
            default().window(ms(60_001)),
            "Lane.window: 60.001s is not in [1ms, 60s]",
        ),
    ] {
        assert_eq!(Lane::new(&policy).unwrap_err().to_string(), text);
        // Not checked, but not a panic either.
        let _unchecked = (Aimd::new(&policy), Gradient::new(&policy));
    }
    assert_eq!(
        lane(default().maximum(7)).limit(),
        7,
        "20 if nobody says, or the nearest"
    );
    assert_eq!(lane(default().minimum(30)).limit(), 30);
    assert_eq!(Aimd::new(&default().minimum(30)).limit(), 30);
}

/// An algorithm of the user's that is out of bounds does not bring the lane out of them.
#[test]
fn la14_an_algorithm_out_of_bounds() {
    #[derive(Debug)]
    struct Wild(u32);
    impl LimitAlgorithm for Wild {
        fn limit(&self) -> u32 {
            self.0
        }
        fn sample(&mut self, _: Duration, sample: LaneSample) {
            self.0 = if sample.outcome == Answered {
                u32::MAX
            } else {
                0
            };
        }
        fn resume(&mut self, limit: u32) {
            self.0 = limit;
        }
    }
    let wild = LaneAlgorithm::custom(|_| Box::new(Wild(0)));
    let lane = lane(LanePolicy::default().minimum(2).maximum(6).algorithm(wild));
    assert_eq!(lane.limit(), 2);
    lane.try_admit(ms(0)).unwrap().finish(ms(1), Answered);
    assert_eq!(lane.limit(), 6);
    lane.try_admit(ms(2)).unwrap().finish(ms(3), Overloaded);
    assert_eq!(lane.limit(), 2);
}

/// LA15: an overload that stays leaves the minimum, and the lane comes back when it ends.
#[test]
fn la15_probe_floor() {
    for (name, lane) in both() {
        for i in 0..1_000 {
            let permits: Vec<_> = (0..50).map_while(|_| lane.try_admit(ms(i * 200))).collect();
            assert!(permits.len() >= 4, "{name}");
            for permit in permits {
                permit.finish(ms(i * 200 + 5), Overloaded);
            }
        }
        assert_eq!(lane.limit(), 4, "{name}");
        let server = Server {
            capacity: 50,
            times: 1,
        };
        let after = server.saturate(&lane, ms(200_000), Duration::from_secs(120));
        assert!(after[119] > 35, "{name}: {after:?}");
    }
}

/// A million admissions across eight threads: never more than the limit, and none is lost.
#[test]
fn a_million_admissions() {
    const LIMIT: u32 = 5;
    const EACH: u32 = 125_000;
    let lane = fixed(LIMIT);
    let inside = AtomicU32::new(0);
    let start = Barrier::new(8);
    let (admitted, shed) = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let mut shed = 0_u64;
                    for _ in 0..EACH {
                        let permit = loop {
                            match lane.try_admit(ms(1)) {
                                Some(permit) => break permit,
                                None => shed += 1,
                            }
                            thread::yield_now();
                        };
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                    (u64::from(EACH), shed)
                })
            })
            .collect();
        let sums = threads.into_iter().map(|it| it.join().unwrap());
        sums.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    });
    let reading = lane.reading();
    assert_eq!((reading.admitted, reading.shed), (admitted, shed));
    assert_eq!((admitted, reading.in_flight), (1_000_000, 0));
    let all: Vec<_> = (0..9).map_while(|_| lane.try_admit(ms(1))).collect();
    assert_eq!(all.len(), LIMIT as usize);
}

/// The limit moves while threads are at it: none is admitted over the limit of the moment, and no
/// place is lost.
#[test]
fn a_limit_that_moves() {
    let lane = Arc::new(lane(LanePolicy::default().initial(50)));
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let lane = &lane;
            scope.spawn(move || {
                for i in 0..20_000_u32 {
                    let at = ms(u64::from(i) * 50);
                    let Some(mut permit) = lane.try_admit(at) else {
                        continue;
                    };
                    let extra = permit.try_extra();
                    match (i + thread) % 5 {
                        0 => permit.finish(at + ms(1), Overloaded),
                        1 => permit.sample(at + ms(1), Answered),
                        2 => drop(permit),
                        _ => permit.finish(at + ms(1), Answered),
                    }
                    drop(extra);
                }
            });
        }
    });
    assert_eq!(lane.in_flight(), 0);
    assert!((1..=1_000).contains(&lane.limit()));
}

/// A round trip is the first message's where that is measured, and an overload counts at the end
/// all the same.
#[test]
fn a_first_message() {
    let lane = lane(LanePolicy::default().initial(2).target(ms(500)));
    let mut permit = lane.try_admit(ms(0)).unwrap();
    permit.sample(ms(400), Answered);
    assert_eq!((lane.limit(), lane.in_flight()), (3, 1), "held on");
    permit.finish(ms(60_000), Answered);
    assert_eq!(lane.limit(), 3, "the length of a stream says nothing");
    let mut permit = lane.try_admit(ms(60_000)).unwrap();
    permit.sample(ms(60_001), Answered);
    permit.finish(ms(60_900), Overloaded);
    assert_eq!((lane.limit(), lane.in_flight()), (2, 0));
}

/// The retry time: a round trip, times how far over, up to twice that; 100 ms to 10 s.
#[test]
fn retry_time() {
    let lane = fixed(10);
    assert_eq!(lane.retry_after(ms(0), 0.0), ms(100), "nothing is known");
    assert_eq!(lane.retry_after(ms(0), 0.5), ms(150));
    let permits: Vec<_> = (0..10).map_while(|_| lane.try_admit(ms(0))).collect();
    for permit in permits {
        permit.finish(ms(400), Answered);
    }
    assert_eq!(lane.retry_after(ms(400), 0.0), ms(400));
    assert_eq!(
        lane.retry_after(ms(400), f64::NAN),
        ms(400),
        "no jitter is no panic"
    );
    let full: Vec<_> = (0..10).map_while(|_| lane.try_admit(ms(400))).collect();
    for _ in 0..50 {
        assert!(lane.try_admit(ms(400)).is_none());
    }
    // Fifty a second, over a held time of 0.4 s: twice the limit again.
    assert_eq!(lane.retry_after(ms(400), 0.0), ms(1_200));
    let later = lane.retry_after(ms(10_400), 0.0);
    assert!((ms(400)..ms(401)).contains(&later), "{later:?}");
    for _ in 0..100_000 {
        assert!(lane.try_admit(ms(400)).is_none());
    }
    assert_eq!(lane.retry_after(ms(400), 0.0), ms(5_000));
    assert_eq!(lane.retry_after(ms(400), 1.0), ms(10_000), "at the latest");
    drop(full);
}

/// Where all time out, a place is held for as long as that; where some are refused, for no less.
#[test]
fn retry_time_in_an_overload() {
    let lane = fixed(10);
    let end = |from, to, outcome| lane.try_admit(ms(from)).unwrap().finish(ms(to), outcome);
    end(0, 2, Overloaded);
    assert_eq!(lane.reading().held, None, "a refusal says nothing");
    end(0, 3_000, Overloaded);
    assert_eq!(lane.retry_after(ms(3_000), 0.0), ms(3_000));
    end(3_000, 3_002, Overloaded);
    assert_eq!(lane.retry_after(ms(3_002), 0.0), ms(3_000));
    end(4_000, 4_600, Answered);
    assert_eq!(lane.retry_after(ms(4_600), 0.0), ms(2_700));
}

/// A limit that was learnt before is where the lane goes on.
#[test]
fn resumed() {
    for (name, lane) in both() {
        lane.resume(150);
        assert_eq!(lane.limit(), 150, "{name}");
        lane.resume(9_999);
        assert_eq!(lane.limit(), 200, "{name}: the maximum");
        lane.resume(100);
        lane.try_admit(ms(0)).unwrap().finish(ms(1), Overloaded);
        assert_eq!(lane.limit(), 75, "{name}: it learns on from there");
    }
}
