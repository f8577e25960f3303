//! What a channel and lanes have learnt, for the next process to go on from.
//!
//! It may come from a file of any age, cut or made by hand: what is wrong with it is left out and
//! told in one log line. It never fails a call.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use tonic_hedge_engine::measure::Latencies;

use crate::{
    channel::Shared,
    method::{Method, MethodTable},
};

/// Changes when a reader of an older one would misread it.
const VERSION: u32 = 1;

/// Clocks of two machines differ by so much at most. What was taken later than that was taken by
/// a clock that is wrong, and its age says nothing.
const SKEW: Duration = Duration::from_secs(60);

/// What a channel has learnt: the recent latencies of each method, by endpoint or locality where they
/// are measured so, and how often hedges are let start.
///
/// [`HedgedChannel::learned`](crate::HedgedChannel::learned) takes it, and
/// [`Builder::resume`](crate::Builder::resume) goes on from it, so that a process that has just
/// started hedges from its first call. With the feature `serde` it can be written to a file or a
/// store; it takes some kilobytes for a method. Budget, breaker and the endpoints' load start anew:
/// they are about this minute and this process.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Learned {
    taken: Taken,
    /// By `package.Service/Method`.
    methods: BTreeMap<String, MethodLearned>,
}

/// The limits that lanes have found.
///
/// [`Lanes::learned`](crate::Lanes::learned) takes it, and
/// [`Lanes::resume_from`](crate::Lanes::resume_from) goes on from it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LanesLearned {
    pub(crate) taken: Taken,
    /// By lane.
    pub(crate) limits: BTreeMap<String, u32>,
}

/// What was learnt of one method.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub(crate) struct MethodLearned {
    /// Where it has one estimate.
    pub(crate) window: Option<Latencies>,
    /// Where each endpoint or locality has one.
    pub(crate) places: BTreeMap<String, Latencies>,
    pub(crate) win_rate_allowance: Option<f64>,
}

/// When something was taken, and how it is written.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Taken {
    version: u32,
    /// Milliseconds since 1970: it is read by another process, which has another clock of its own.
    unix_ms: u64,
}

/// What a channel's methods go on from.
#[derive(Debug)]
pub(crate) struct Resumed {
    methods: BTreeMap<String, MethodLearned>,
    /// Windows and allowances that are out of their bounds.
    refused: usize,
    /// When, on the channel's clock.
    at: Duration,
}

impl Learned {
    pub(crate) fn of(shared: &Shared) -> Self {
        let now = shared.now();
        let methods = shared.methods().iter();
        let methods = methods.filter_map(|method| {
            let learned = method.learned(now)?;
            Some((method.name().to_owned(), learned))
        });
        Self {
            taken: Taken::now(),
            methods: methods.collect(),
        }
    }

    /// When it was taken.
    pub fn taken_at(&self) -> SystemTime {
        self.taken.at()
    }

    /// Whether there is nothing in it: no method had a recent call.
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty()
    }

    /// As it is gone on from, unless it is too old; without what is out of its bounds.
    pub(crate) fn accept(self, max_age: Duration) -> Option<Resumed> {
        let mut methods = self.taken.accepts(max_age).then_some(self.methods)?;
        let refused = methods.values_mut().map(MethodLearned::refuse).sum();
        Some(Resumed {
            methods,
            refused,
            at: Duration::ZERO,
        })
    }
}

impl LanesLearned {
    /// When it was taken.
    pub fn taken_at(&self) -> SystemTime {
        self.taken.at()
    }
}

impl MethodLearned {
    /// Takes out what is out of its bounds, and counts it.
    fn refuse(&mut self) -> usize {
        let before = self.places.len();
        self.places.retain(|_, latencies| latencies.is_sound());
        let places = before - self.places.len();
        let window = self.window.take_if(|it| !it.is_sound());
        let allowance = &mut self.win_rate_allowance;
        let allowance = allowance.take_if(|it| !(0.0..=1.0).contains(it));
        places + usize::from(window.is_some()) + usize::from(allowance.is_some())
    }
}

impl Taken {
    pub(crate) fn now() -> Self {
        Self {
            version: VERSION,
            unix_ms: unix_ms(),
        }
    }

    fn at(self) -> SystemTime {
        let since = Duration::from_millis(self.unix_ms);
        let at = SystemTime::UNIX_EPOCH.checked_add(since);
        at.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether it is gone on from; the log says why not.
    pub(crate) fn accepts(self, max_age: Duration) -> bool {
        let why_not = self.why_not(unix_ms(), max_age);
        if let Some(why) = why_not {
            tracing::warn!(why, "nothing is gone on from");
        }
        why_not.is_none()
    }

    fn why_not(self, now_ms: u64, max_age: Duration) -> Option<&'static str> {
        let age = Duration::from_millis(now_ms.saturating_sub(self.unix_ms));
        let ahead = Duration::from_millis(self.unix_ms.saturating_sub(now_ms));
        match self.version {
            VERSION if ahead > SKEW => Some("it was taken in the future"),
            VERSION if age > max_age => Some("it is too old"),
            VERSION => None,
            _ => Some("it is of another version"),
        }
    }
}

/// The one place where the time of day is read: nothing is timed by it.
#[allow(
    clippy::disallowed_methods,
    reason = "no other clock goes on between processes"
)]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

impl Resumed {
    /// On a channel's clock.
    pub(crate) fn at(self, at: Duration) -> Self {
        Self { at, ..self }
    }

    pub(crate) fn apply(&self, method: &Method) {
        if let Some(learned) = self.methods.get(method.name()) {
            method.resume(self.at, learned);
        }
    }

    /// Tells once what was made of it.
    pub(crate) fn tell(&self, table: &MethodTable) {
        let is_known = |name: &&String| table.find(&format!("/{name}")).0.name() == **name;
        let known = self.methods.keys().filter(is_known).count();
        tracing::info!(
            methods = known,
            unknown = self.methods.len() - known,
            refused = self.refused,
            "goes on from what was learnt before"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const MAX_AGE: Duration = Duration::from_secs(600);

    fn taken(version: u32, unix_ms: u64) -> Taken {
        Taken { version, unix_ms }
    }

    #[test]
    fn an_age_after_which_it_is_ignored() {
        for (unix_ms, is_taken) in [
            (NOW, true),
            (NOW - 600_000, true),
            (NOW - 600_001, false),
            (0, false),
            (NOW + 60_000, true),
            (NOW + 60_001, false),
            (u64::MAX, false),
        ] {
            let why_not = taken(VERSION, unix_ms).why_not(NOW, MAX_AGE);
            assert_eq!(why_not.is_none(), is_taken, "{unix_ms}: {why_not:?}");
            let _no_panic = taken(VERSION, unix_ms).at();
        }
        assert!(taken(VERSION, 0).why_not(NOW, Duration::MAX).is_none());
        for version in [0, VERSION + 1, u32::MAX] {
            assert!(taken(version, NOW).why_not(NOW, MAX_AGE).is_some());
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_left_out() {
        let heavy = Latencies::new(vec![(1, u32::MAX)], Vec::new());
        let light = Latencies::new(vec![(1, 1)], Vec::new());
        let of = |latencies: &Latencies, allowance| MethodLearned {
            window: Some(latencies.clone()),
            places: [("a", &light), ("b", latencies)]
                .map(|(name, it)| (name.to_owned(), it.clone()))
                .into(),
            win_rate_allowance: Some(allowance),
        };
        let mut good = of(&light, 0.5);
        assert_eq!(good.refuse(), 0);
        assert_eq!((good.places.len(), good.win_rate_allowance), (2, Some(0.5)));
        for allowance in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
            let mut bad = of(&heavy, allowance);
            assert_eq!(bad.refuse(), 3);
            assert_eq!((bad.window, bad.win_rate_allowance), (None, None));
            assert_eq!(bad.places.len(), 1);
        }
    }
}
