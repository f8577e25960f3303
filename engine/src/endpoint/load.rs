//! How busy and how slow an endpoint is: attempts in flight, and a latency that believes bad news at once.
//!
//! The latency is a peak-sensitive moving average (Finagle's `PeakEwma`): a sample above it
//! replaces it, a sample below it pulls it down as far as the time since the last one allows.
//! It forgets while the endpoint idles, so that an endpoint that was slow once is asked again.

use std::time::Duration;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The load of one endpoint, shared by all calls.
///
/// Every [`started`](Self::started) is followed by exactly one end: [`finished`](Self::finished),
/// [`discarded`](Self::discarded), [`failed`](Self::failed) or [`released`](Self::released).
/// Whoever starts an attempt keeps a guard that ends it when it is dropped.
///
/// `now` counts from any epoch, the same for all calls on one `Load`.
///
/// ```
/// # use std::time::Duration;
/// # use tonic_hedge_engine::endpoint::Load;
/// let load = Load::new();
/// let now = Duration::from_secs(1);
/// load.started(now);
/// load.finished(now, Duration::from_millis(5));
/// assert_eq!(load.in_flight(), 0);
/// assert!((load.cost(now) - 0.005).abs() < 1e-6);
/// ```
#[derive(Debug, Default)]
pub struct Load {
    in_flight: AtomicU32,
    /// Seconds as `f32` in the upper half; the millisecond of the last change, modulo 2^32, in
    /// the lower. One word, so that a change is one step. Zero seconds: nothing was measured.
    latency: AtomicU64,
}

/// The time in which the weight of the past falls to 1/e.
///
/// An endpoint that one stall made look a hundred times slower than its peers is asked again
/// after 23 s of idling (5 s x ln 100), and one call in 23 s is the price of one that stays slow.
const MEMORY: Duration = Duration::from_secs(5);

/// What an endpoint that has never answered is taken for while an attempt asks it.
///
/// Idle, it costs nothing and gets an attempt; with that one out it must look worse than any
/// endpoint that answers, or a new endpoint would draw all traffic until its first answer.
const UNKNOWN: f32 = 10.0;

/// How many times as long as it ran an attempt is taken to take at most that was cut off in silence: a
/// pause of one second at a threshold of 50 ms must not set its endpoint aside for a minute.
const SILENCE_FACTOR: f32 = 4.0;

/// A failure multiplies the latency by this: a second one weighs more than the first.
const FAILURE_FACTOR: f32 = 4.0;

/// What a failure counts for at least, in seconds, before it is multiplied.
///
/// An endpoint that fails in 0.1 ms would otherwise need seven failures to look like 1 s.
const FAILURE_FLOOR: f32 = 0.010;

/// The longest latency that failures build up, in seconds: with [`MEMORY`], an endpoint that
/// only fails gets a call about every 40 s beside peers that take 20 ms.
const FAILURE_CEILING: f32 = 60.0;

impl Load {
    /// The load of an endpoint that nothing is known of.
    pub fn new() -> Self {
        Self::default()
    }

    /// An attempt goes out.
    pub fn started(&self, _now: Duration) {
        // Relaxed, here and below: a count and an estimate that guard no other memory.
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// The attempt was answered after `latency`.
    pub fn finished(&self, now: Duration, latency: Duration) {
        self.released();
        self.measured(now, latency);
    }

    /// The attempt, which goes on, took `latency` to begin its answer. Its end is
    /// [`released`](Self::released), or [`failed`](Self::failed) after no time.
    pub fn measured(&self, now: Duration, latency: Duration) {
        let latency = latency.as_secs_f32();
        self.change(now, |known| {
            if latency >= known.seconds {
                Some(latency)
            } else {
                let weight = known.weight(now);
                Some(known.seconds * weight + latency * (1.0 - weight))
            }
        });
    }

    /// The attempt was cut off after `elapsed`: its latency is at least that, so this never lowers the load.
    ///
    /// Where nothing else has ended since it was launched, the endpoint has been silent all that time, and
    /// how much longer it would have taken nobody knows: each such attempt doubles the latency, up to
    /// four times of what was seen. Else an endpoint that is always slow, and therefore always
    /// cut off, would look hardly slower than the threshold.
    pub fn discarded(&self, now: Duration, elapsed: Duration) {
        self.released();
        let millis = elapsed.as_millis();
        let elapsed = elapsed.as_secs_f32();
        self.change(now, |known| {
            // Where the old estimate had faded below what was just seen, it counts as fresh again.
            let faded = elapsed > known.decayed(now);
            let silent = known.seconds > 0.0 && u128::from(known.age_millis(now)) >= millis;
            let least = match silent && faded {
                true => (known.seconds * 2.0).clamp(elapsed, elapsed * SILENCE_FACTOR),
                false => elapsed,
            };
            (faded || elapsed >= known.seconds).then(|| least.max(known.seconds))
        });
    }

    /// The attempt failed after `elapsed`. However fast, it makes the endpoint look slower.
    pub fn failed(&self, now: Duration, elapsed: Duration) {
        self.released();
        let elapsed = elapsed.as_secs_f32();
        self.change(now, |known| {
            let base = known.seconds.max(elapsed).max(FAILURE_FLOOR);
            // An endpoint that is slower than the ceiling stays as slow as it is.
            Some((base * FAILURE_FACTOR).min(FAILURE_CEILING.max(base)))
        });
    }

    /// The attempt ended and says nothing about the endpoint: it never left, or was given up at once.
    pub fn released(&self) {
        let ended = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                count.checked_sub(1)
            });
        debug_assert!(ended.is_ok(), "an attempt ended that never started");
    }

    /// What was measured holds no more: the endpoint is another one at the same place. The next
    /// attempt goes there, and the others wait for what it finds out.
    pub fn forget(&self) {
        self.latency.store(0, Ordering::Relaxed);
    }

    /// The attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The latency by which the endpoint is weighed, its failures included; `None` if nothing was measured.
    pub fn latency(&self, now: Duration) -> Option<Duration> {
        let known = Known::unpack(self.latency.load(Ordering::Relaxed));
        (known.seconds > 0.0).then(|| Duration::from_secs_f32(known.decayed(now)))
    }

    /// The picker's measure: the expected latency in seconds, times the attempts in flight and one more.
    ///
    /// Forgetting makes only an idle endpoint cheaper. One that is asked costs what was last known
    /// until it answers, or its faded latency would draw a crowd instead of the one call that finds out.
    pub fn cost(&self, now: Duration) -> f64 {
        let in_flight = self.in_flight();
        let known = Known::unpack(self.latency.load(Ordering::Relaxed));
        let seconds = match (in_flight, known.seconds > 0.0) {
            (0, _) => known.decayed(now),
            (_, true) => known.seconds,
            (_, false) => UNKNOWN,
        };
        f64::from(seconds) * (f64::from(in_flight) + 1.0)
    }

    fn change(&self, now: Duration, next: impl Fn(Known) -> Option<f32>) {
        // A failed exchange runs again on the newer value, so no sample is lost.
        let _unchanged = self
            .latency
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                let known = Known::unpack(word);
                next(known).map(|seconds| known.at(now, seconds).pack())
            });
    }
}

/// An estimate and when it was made.
#[derive(Clone, Copy)]
struct Known {
    seconds: f32,
    /// Modulo 2^32, 49 days: an endpoint untouched for exactly that long looks fresh, which is harmless.
    millis: u32,
}

impl Known {
    fn unpack(word: u64) -> Self {
        Self {
            seconds: f32::from_bits((word >> 32) as u32),
            millis: word as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.seconds.to_bits()) << 32 | u64::from(self.millis)
    }

    /// A sample that comes late, from before the last one, does not turn the time back.
    fn at(self, now: Duration, seconds: f32) -> Self {
        let age = self.age_millis(now);
        Self {
            // Zero means that nothing was measured.
            seconds: seconds.max(f32::MIN_POSITIVE),
            millis: self.millis.wrapping_add(age),
        }
    }

    fn age_millis(self, now: Duration) -> u32 {
        let age = (now.as_millis() as u32).wrapping_sub(self.millis);
        // The upper half of the circle is the past, unless nothing has been recorded yet.
        if age > u32::MAX / 2 && self.seconds > 0.0 {
            0
        } else {
            age
        }
    }

    fn weight(self, now: Duration) -> f32 {
        (-(self.age_millis(now) as f32) / MEMORY.as_millis() as f32).exp()
    }

    fn decayed(self, now: Duration) -> f32 {
        self.seconds * self.weight(now)
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{sync::Arc, thread};

    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    /// Whatever meets, those in flight are counted in and out, and the worst news stays.
    #[test]
    fn each_start_has_one_end() {
        loom::model(|| {
            let load = Arc::new(Load::new());
            let other = Arc::clone(&load);
            let other = thread::spawn(move || {
                other.started(NOW);
                other.discarded(NOW, Duration::from_millis(64));
            });
            load.started(NOW);
            assert!((1..=2).contains(&load.in_flight()));
            load.finished(NOW, Duration::from_millis(8));
            other.join().unwrap();
            assert_eq!(load.in_flight(), 0);
            let latency = load.latency(NOW).unwrap();
            assert!(latency > Duration::from_millis(63), "{latency:?}");
        });
    }
}
