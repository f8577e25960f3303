//! When something is the case for a while, again and again.

use std::time::Duration;

/// Spells of the same length at even distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spells {
    /// The start of the first.
    pub from: Duration,
    /// From the start of one to that of the next; more than `last`.
    pub every: Duration,
    /// How long each lasts.
    pub last: Duration,
}

impl Spells {
    /// Whether the time is in a spell.
    pub fn are_on(&self, clock: Duration) -> bool {
        self.end(clock).is_some()
    }

    /// The end of the spell that the time is in.
    pub fn end(&self, clock: Duration) -> Option<Duration> {
        let end = self.start_before(clock)? + self.last;
        (clock < end).then_some(end)
    }

    /// The start of the first spell after the time.
    pub fn next(&self, clock: Duration) -> Duration {
        match self.start_before(clock) {
            Some(start) => start + self.every,
            None => self.from,
        }
    }

    /// The start of the last spell that began by then.
    fn start_before(&self, clock: Duration) -> Option<Duration> {
        let passed = clock.checked_sub(self.from)?.as_nanos();
        let into = passed % self.every.as_nanos();
        Some(clock - Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX)))
    }
}
