//! How much slower calls become when there are more of them: what a hedge costs the others.
//!
//! Where calls wait for each other, each hedge makes all of them slower, and no distribution of
//! latencies says so: the planner would hedge more the more it hurts. Traffic itself is the
//! experiment that tells. It comes in waves, as all that comes at random does, and where they are
//! followed by slower calls, so is a plan's load.

use std::{
    f64::consts::LN_2,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::measure::micros;

/// A wave of calls shows in the latency for about as long, in seconds.
const WAVE: f64 = 2.0;

/// Seconds that say what is usual now: several waves, and short enough that a shift of all latencies
/// is soon the usual.
const USUAL: f64 = 15.0;

/// Seconds that what was seen counts for.
const MEMORY: f64 = 120.0;

/// Calls that take this much longer or shorter than usual (in the logarithm) have met a shift, which
/// no wave explains: it is the usual from then on.
const MOST: f64 = 1.0;

/// What a hedge costs of a call: of the two attempts one is cut off, and where calls wait for each
/// other that is often one that waits still. Found by simulation, over queues of several depths,
/// loads and kinds of work: the whole gives up hedges that are worth it, a third keeps harm.
const WORK: f64 = 0.5;

/// What is taken for the slope without evidence, give or take as much: a percent more calls makes all
/// a percent slower. So a planner begins with a load that is worth it even then, and sees the waves
/// before its own.
const PRIOR: f64 = 1.0;

/// Bits of a logarithm's fraction.
const PLACES: u32 = 8;

/// One call in a second's word; below it is the sum of the logarithms.
const ONE: u64 = 1 << 40;

/// Seconds after which a second's calls are taken to have ended. Those that take longer are left
/// out: of all seconds alike.
const AWAITED: u64 = 4;

/// Seconds that are kept: those that are awaited, and as many for somebody who looks late.
const SECONDS: usize = 2 * AWAITED as usize;

/// How many calls each second brought, and what they took.
///
/// By the second of their start: by that of their end, the slow ones of a wave would come after it
/// and look as if it had made them slow.
#[derive(Debug)]
pub(super) struct Took {
    /// Number and sum of logarithms in one word, up to 16 million calls a second.
    seconds: [AtomicU64; SECONDS],
}

/// The regression of the calls' mean logarithmic time on their number.
#[derive(Debug, Default)]
pub(super) struct Drag {
    /// The next second to look at.
    next: u64,
    /// Calls in a second, now and usually.
    rate: f64,
    usual_rate: f64,
    /// The mean logarithm of what they take, usually.
    usual: f64,
    /// Weighted sums over the deviations: of rates `x` relatively, and of logarithms `y`.
    seconds: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Took {
    pub(super) fn new() -> Self {
        Self {
            seconds: [const { AtomicU64::new(0) }; SECONDS],
        }
    }

    #[inline]
    pub(super) fn add(&self, now: Duration, took: Duration) {
        if took.as_secs() >= AWAITED {
            return;
        }
        let micros = u64::from(micros(took).max(1));
        let octave = micros.ilog2();
        // A straight line from octave to octave is close enough to a logarithm.
        let place = (micros << PLACES >> octave) - (1 << PLACES);
        let binary = (u64::from(octave) << PLACES) + place;
        let second = now.saturating_sub(took).as_secs();
        // Relaxed: a count, which publishes nothing.
        self.of(second).fetch_add(ONE + binary, Ordering::Relaxed);
    }

    /// How many calls a second brought, and the mean logarithm of what they took. Forgets them.
    fn take(&self, second: u64) -> (f64, f64) {
        // Relaxed: as in `add`.
        let word = self.of(second).swap(0, Ordering::Relaxed);
        let (calls, sum) = ((word / ONE) as f64, (word % ONE) as f64);
        (calls, sum / f64::from(1 << PLACES) / calls.max(1.0) * LN_2)
    }

    fn of(&self, second: u64) -> &AtomicU64 {
        &self.seconds[(second % SECONDS as u64) as usize]
    }
}

impl Drag {
    /// Takes in the seconds whose calls have ended by now.
    pub(super) fn learn(&mut self, now: Duration, took: &Took) {
        let end = now.as_secs().saturating_sub(AWAITED);
        // Of what is older, the words hold later seconds.
        let kept = (end + AWAITED).saturating_sub(SECONDS as u64 - 1);
        for second in self.next..end.min(self.next + SECONDS as u64) {
            let (calls, took) = took.take(second);
            if second >= kept && calls > 0.0 {
                self.add(calls, took);
            }
        }
        self.next = self.next.max(end);
    }

    fn add(&mut self, calls: f64, took: f64) {
        if self.usual_rate == 0.0 {
            (self.rate, self.usual_rate, self.usual) = (calls, calls, took);
            return;
        }
        self.rate += (calls - self.rate) / WAVE;
        let x = self.rate / self.usual_rate - 1.0;
        let y = took - self.usual;
        self.usual_rate += (calls - self.usual_rate) / USUAL;
        if y.abs() > MOST {
            self.usual = took;
            return;
        }
        self.usual += y / USUAL;
        let kept = 1.0 - 1.0 / MEMORY;
        self.seconds = self.seconds * kept + 1.0;
        self.xx = self.xx * kept + x * x;
        self.xy = self.xy * kept + x * y;
        self.yy = self.yy * kept + y * y;
    }

    /// How much the logarithm of a call's time grows with a load, in parts of the calls: the slope that
    /// was seen, and the less sure it is the more what was taken for it before.
    pub(super) fn of_load(&self) -> f64 {
        if self.seconds < 3.0 || self.xx <= 0.0 {
            return WORK * PRIOR;
        }
        let slope = self.xy / self.xx;
        let rest = (self.yy - slope * self.xy).max(0.0) / self.seconds;
        let variance = rest / self.xx;
        let drag = (slope * PRIOR * PRIOR + PRIOR * variance) / (PRIOR * PRIOR + variance);
        WORK * drag.max(0.0)
    }
}
