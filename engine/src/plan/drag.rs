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

/// A call's time this far from the usual (in its logarithm) says no more: a shift has come, which no
/// wave explains.
const MOST: f64 = 0.5;

/// Seconds of evidence without which there is none.
const LEAST: f64 = 10.0;

/// A wave is over before all that it would bring in the long run has come: lasting load costs about
/// twice as much. Found by simulation, over queues of several depths and kinds of work (1 keeps a
/// third of the harm, 4 gives up hedges that are worth it).
const LASTING: f64 = 2.0;

/// Bits of a logarithm's fraction.
const PLACES: u32 = 8;

/// One call in the word of what they took; below it is the sum of the logarithms.
const ONE: u64 = 1 << 40;

/// What calls have taken since somebody last looked: their number, and the sum of their times'
/// logarithms, in one word. It takes 16 million calls, and a sum of more.
#[derive(Debug)]
pub(super) struct Took(AtomicU64);

/// The regression of the calls' mean logarithmic time on their rate.
#[derive(Debug, Default)]
pub(super) struct Drag {
    /// Calls started when it last looked.
    started: u64,
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
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn add(&self, took: Duration) {
        let micros = u64::from(micros(took).max(1));
        let octave = micros.ilog2();
        // A straight line from octave to octave is close enough to a logarithm.
        let place = (micros << PLACES >> octave) - (1 << PLACES);
        let binary = (u64::from(octave) << PLACES) + place;
        // Relaxed: a count, which publishes nothing.
        self.0.fetch_add(ONE + binary, Ordering::Relaxed);
    }

    /// The mean logarithm, if there are calls. Forgets them.
    fn take(&self) -> Option<f64> {
        // Relaxed: as in `add`.
        let word = self.0.swap(0, Ordering::Relaxed);
        let (calls, sum) = (word / ONE, word % ONE);
        (calls > 0).then(|| sum as f64 / f64::from(1 << PLACES) / calls as f64 * LN_2)
    }
}

impl Drag {
    /// Takes in what happened in the last `seconds`: `started` calls in all have begun until now.
    pub(super) fn learn(&mut self, seconds: f64, started: u64, took: &Took) {
        let rate = (started - self.started) as f64 / seconds;
        self.started = started;
        let Some(took) = took.take() else { return };
        if self.usual_rate == 0.0 {
            (self.rate, self.usual_rate, self.usual) = (rate, rate, took);
            return;
        }
        let part = |span: f64| -(-seconds / span).exp_m1();
        self.rate += part(WAVE) * (rate - self.rate);
        let x = self.rate / self.usual_rate - 1.0;
        let y = (took - self.usual).clamp(-MOST, MOST);
        let kept = 1.0 - part(MEMORY);
        self.seconds = self.seconds * kept + seconds;
        self.xx = self.xx * kept + x * x * seconds;
        self.xy = self.xy * kept + x * y * seconds;
        self.yy = self.yy * kept + y * y * seconds;
        self.usual_rate += part(USUAL) * (rate - self.usual_rate);
        self.usual += part(USUAL) * (took - self.usual);
    }

    /// How much the logarithm of a call's time grows with a lasting load, in parts of the calls. 0
    /// as long as it might as well be chance: what is counted is a standard error less than what was
    /// seen.
    pub(super) fn of_load(&self) -> f64 {
        if self.seconds < LEAST || self.xx <= 0.0 {
            return 0.0;
        }
        let slope = self.xy / self.xx;
        let rest = (self.yy - slope * self.xy).max(0.0) / self.seconds;
        let error = (rest / self.xx).sqrt();
        LASTING * (slope - error).max(0.0)
    }
}
