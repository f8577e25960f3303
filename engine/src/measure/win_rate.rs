//! Whether hedges win often enough to be worth their load.

use std::time::Duration;

use parking_lot::Mutex;

use super::nanos;
use crate::policy::{PolicyError, WinRate};

/// Decisions in a window.
const QUARTERS: usize = 4;

/// All of it, in the unit of allowances: shares are exact to six decimals.
const ALL: u32 = 1_000_000;

/// What a quarter without bad evidence gives back.
const RETURN: u32 = ALL / 4;

/// Steps after which an idle meter no longer changes: four quarters empty the window, four more
/// restore the allowance.
const SETTLED: u64 = 2 * QUARTERS as u64;

/// The share of would-be hedges that start, by how often hedges have won.
///
/// At the end of each quarter of the window, if at least `minimum_samples` hedges started in the
/// window and fewer than `floor` of them won, the allowance is halved, but not below
/// `minimum_allowance`; otherwise a quarter is added back. This runs on the clock, because a
/// hedge that is held back yields no evidence; it is computed when somebody asks.
///
/// A hedge counts as started in the quarter of its start, as won in the quarter of its win.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::{measure::WinRateMeter, policy::WinRate};
///
/// let meter = WinRateMeter::new(&WinRate::at_least(0.1))?;
/// for _ in 0..10 {
///     meter.started(Duration::from_secs(1));
/// }
/// let later = Duration::from_secs(16);
/// assert_eq!(meter.allowance(later), 0.5);
/// let starts = (0..10).filter(|_| meter.allow(later)).count();
/// assert_eq!(starts, 5, "every other one");
/// # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
/// ```
#[derive(Debug)]
pub struct WinRateMeter {
    policy: WinRate,
    /// Nanoseconds of a quarter.
    quarter: u64,
    /// The least allowance.
    least: u32,
    /// Locked for a few instructions, and only for calls that outran their threshold.
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The number of the quarter that is being filled.
    number: u64,
    /// The last four quarters, by their number modulo four.
    quarters: [Tally; QUARTERS],
    allowance: u32,
    /// What is left of the allowances of former hedges: less than [`ALL`].
    carry: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    started: u64,
    won: u64,
}

impl WinRateMeter {
    /// A meter that allows everything until it knows better.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(policy: &WinRate) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self {
            policy: policy.clone(),
            quarter: nanos(policy.window) / QUARTERS as u64,
            least: (policy.minimum_allowance * f64::from(ALL)).round() as u32,
            state: Mutex::new(State {
                number: 0,
                quarters: [Tally::default(); QUARTERS],
                allowance: ALL,
                carry: 0,
            }),
        })
    }

    /// Whether this would-be hedge starts. It uses up the remainder that calls carry on, so it
    /// is asked last: only when everything else holds, and once.
    pub fn allow(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        self.advance(&mut state, now);
        let sum = state.carry + state.allowance;
        let starts = sum >= ALL;
        state.carry = if starts { sum - ALL } else { sum };
        starts
    }

    /// What [`WinRateMeter::allow`] would say now. Reading changes nothing.
    pub fn would_allow(&self, now: Duration) -> bool {
        let state = self.at(now);
        state.carry + state.allowance >= ALL
    }

    /// The share of would-be hedges that start now. Reading changes nothing.
    pub fn allowance(&self, now: Duration) -> f64 {
        f64::from(self.at(now).allowance) / f64::from(ALL)
    }

    /// Goes on from an allowance that was learnt before, by another process: at least the policy's
    /// minimum, at most 1. Without hedges that lose, the clock gives back the rest as ever. `false` for
    /// what is no number in [0, 1], which is not taken.
    pub fn resume(&self, now: Duration, allowance: f64) -> bool {
        let holds = (0.0..=1.0).contains(&allowance);
        if holds {
            let mut state = self.state.lock();
            self.advance(&mut state, now);
            let allowance = (allowance * f64::from(ALL)).round() as u32;
            state.allowance = allowance.max(self.least);
        }
        holds
    }

    /// A hedge started.
    pub fn started(&self, now: Duration) {
        let mut state = self.state.lock();
        self.advance(&mut state, now);
        state.current().started += 1;
    }

    /// A hedge's answer became its call's.
    pub fn won(&self, now: Duration) {
        let mut state = self.state.lock();
        self.advance(&mut state, now);
        state.current().won += 1;
    }

    /// The share of the hedges started in the window that won; `None` without hedges.
    pub fn win_rate(&self, now: Duration) -> Option<f64> {
        self.at(now).window().rate()
    }

    fn at(&self, now: Duration) -> State {
        let mut state = *self.state.lock();
        self.advance(&mut state, now);
        state
    }

    /// Makes the decisions that the clock has passed. A late `now` belongs to the quarter that
    /// others have begun.
    fn advance(&self, state: &mut State, now: Duration) {
        let number = nanos(now) / self.quarter;
        let passed = number.saturating_sub(state.number);
        for _ in 0..passed.min(SETTLED) {
            let window = state.window();
            let losing = window.started >= self.policy.minimum_samples
                && window.rate().is_some_and(|rate| rate < self.policy.floor);
            state.allowance = if losing {
                (state.allowance / 2).max(self.least)
            } else {
                (state.allowance + RETURN).min(ALL)
            };
            state.number += 1;
            *state.current() = Tally::default();
        }
        state.number = state.number.max(number);
    }
}

impl State {
    fn current(&mut self) -> &mut Tally {
        &mut self.quarters[(self.number % QUARTERS as u64) as usize]
    }

    fn window(&self) -> Tally {
        self.quarters
            .iter()
            .fold(Tally::default(), |sum, it| Tally {
                started: sum.started + it.started,
                won: sum.won + it.won,
            })
    }
}

impl Tally {
    fn rate(self) -> Option<f64> {
        (self.started > 0).then(|| self.won as f64 / self.started as f64)
    }
}
