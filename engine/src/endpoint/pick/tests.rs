use proptest::prelude::*;

use super::*;

const PICKS: u32 = 100_000;

fn seeded(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut rng = fastrand::Rng::with_seed(seed);
    move |n| rng.u32(0..n)
}

fn tally(len: usize, rank: impl Fn(usize) -> Option<u8>, cost: impl Fn(usize) -> f64) -> Vec<u32> {
    let mut random = seeded(7);
    let mut counts = vec![0; len];
    for _ in 0..PICKS {
        if let Some(index) = pick(len, &rank, &cost, &mut random) {
            counts[index] += 1;
        }
    }
    counts
}

/// Within 5 standard deviations of an even share.
fn assert_even(counts: &[u32], over: usize) {
    let share = 1.0 / over as f64;
    let expected = f64::from(PICKS) * share;
    let tolerance = 5.0 * (f64::from(PICKS) * share * (1.0 - share)).sqrt();
    for &count in counts.iter().filter(|&&count| count > 0) {
        assert!(
            (f64::from(count) - expected).abs() <= tolerance,
            "{counts:?}"
        );
    }
    assert_eq!(counts.iter().filter(|&&count| count > 0).count(), over);
    assert_eq!(counts.iter().sum::<u32>(), PICKS);
}

#[test]
fn ties_are_spread_evenly() {
    for len in [1, 2, 3, 5, 40] {
        assert_even(&tally(len, |_| Some(0), |_| 1.0), len);
    }
}

#[test]
fn two_usable_among_many_are_spread_evenly() {
    assert_even(
        &tally(200, |i| (i == 17 || i == 18).then_some(0), |_| 1.0),
        2,
    );
}

#[test]
fn few_usable_among_many_are_spread_evenly_wherever_they_stand() {
    assert_even(&tally(200, |i| (i >= 195).then_some(0), |_| 1.0), 5);
}

/// What is usual must not cost more for there being more of them.
#[test]
fn a_pick_among_many_looks_at_few() {
    use std::cell::Cell;

    for (usable_of, most) in [(1, 2), (2, 6), (3, 40)] {
        let looks = Cell::new(0);
        let rank = |i: usize| {
            looks.set(looks.get() + 1);
            i.is_multiple_of(usable_of).then_some(0)
        };
        let mut random = seeded(9);
        for _ in 0..1_000 {
            assert!(pick(1_000, rank, |_| 1.0, &mut random).is_some());
        }
        let looks = looks.get() / 1_000;
        assert!(looks <= most, "{looks} where one in {usable_of} is usable");
    }
}

#[test]
fn of_three_the_dearest_is_never_picked() {
    let counts = tally(3, |_| Some(0), |i| [1.0, 1.0, 9.0][i]);
    assert_eq!(counts[2], 0);
}

#[test]
fn the_cheapest_wins_each_pair_that_holds_it() {
    let counts = tally(4, |_| Some(0), |i| i as f64);
    // It is in half of the pairs of four.
    assert!((f64::from(counts[0]) / f64::from(PICKS) - 0.5).abs() < 0.01);
    assert_eq!(counts[3], 0);
}

#[test]
fn the_better_rank_is_taken_at_any_cost() {
    let rank = |i: usize| Some(u8::from(i != 3));
    let counts = tally(10, rank, |i| if i == 3 { 100.0 } else { 0.0 });
    assert_eq!(counts[3], PICKS);
}

#[test]
fn the_next_rank_serves_when_the_best_is_absent() {
    let rank = |i: usize| [None, Some(2), Some(1), Some(2), Some(1)][i];
    assert_even(&tally(5, rank, |_| 1.0), 2);
}

#[test]
fn nothing_usable_is_nothing() {
    let mut random = seeded(1);
    for len in [0, 1, 2, 50] {
        assert_eq!(pick(len, |_| None, |_| 0.0, &mut random), None);
    }
}

/// A server that fails at once beside one that answers in 5 ms; one call after another.
#[test]
fn ec10_a_fast_failer_does_not_attract_load() {
    use std::time::Duration;

    use crate::endpoint::Load;

    let loads = [Load::new(), Load::new(), Load::new()];
    let mut random = seeded(3);
    let mut now = Duration::ZERO;
    let mut failed = 0;
    for _ in 0..12_000 {
        let index = pick(3, |_| Some(0), |i| loads[i].cost(now), &mut random).unwrap();
        loads[index].started(now);
        if index == 1 {
            failed += 1;
            now += Duration::from_micros(100);
            loads[index].failed(now, Duration::from_micros(100));
        } else {
            now += Duration::from_millis(5);
            loads[index].finished(now, Duration::from_millis(5));
        }
    }
    // A minute: a handful to find out, then one in about 40 s.
    assert!((1..=8).contains(&failed), "{failed}");
}

/// The measured case: a 200 ms endpoint whose attempts are all cut off must not stay first choice.
#[test]
fn discarded_attempts_move_traffic_away() {
    use std::time::Duration;

    use crate::endpoint::Load;

    let loads = [Load::new(), Load::new(), Load::new()];
    let mut random = seeded(5);
    let mut now = Duration::ZERO;
    let mut slow = 0;
    for _ in 0..300 {
        let index = pick(3, |_| Some(0), |i| loads[i].cost(now), &mut random).unwrap();
        loads[index].started(now);
        if index == 0 {
            slow += 1;
            now += Duration::from_millis(20);
            loads[index].discarded(now, Duration::from_millis(20));
        } else {
            now += Duration::from_micros(250);
            loads[index].finished(now, Duration::from_micros(250));
        }
    }
    assert!(slow <= 2, "{slow}");
}

proptest! {
    #[test]
    fn ec1_a_tried_endpoint_is_never_picked(
        len in 1..60_usize,
        tried in prop::collection::vec(0..60_usize, 0..70),
        seed: u64,
    ) {
        let rank = |i: usize| (!tried.contains(&i)).then_some(0);
        let picked = pick(len, rank, |i| i as f64, &mut seeded(seed));
        match picked {
            Some(index) => prop_assert!(index < len && !tried.contains(&index)),
            None => prop_assert!((0..len).all(|i| tried.contains(&i))),
        }
    }

    #[test]
    fn the_best_rank_present_is_picked(
        ranks in prop::collection::vec(prop::option::of(0..4_u8), 0..40),
        seed: u64,
    ) {
        let picked = pick(ranks.len(), |i| ranks[i], |_| 0.0, &mut seeded(seed));
        // `None` sorts first among options, so look at those present only.
        let best = ranks.iter().flatten().min().copied();
        prop_assert_eq!(picked.map(|i| ranks[i]), best.map(Some));
    }
}
