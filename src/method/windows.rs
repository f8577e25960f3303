//! A method's latency windows: one, or one for each endpoint or locality; each with its plan, where
//! hedging is planned.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tonic_hedge_engine::{
    measure::{Latencies, LatencyEstimator, Ring},
    plan::Planner,
    policy::{Hedge, Scope},
};

use super::Estimator;
use crate::{endpoint::Endpoint, learned::MethodLearned};

/// Windows of one method by endpoint or locality; those without samples make room at half of it.
/// What comes beyond shares one. A window takes some 13 KiB where latencies span three orders of
/// magnitude, and 33 KiB at most (see [`Ring`]).
const MOST: usize = 128;

/// How often room is made: it looks at all of them under the lock.
const SWEEP: Duration = Duration::from_secs(1);

/// What the shared one is called.
pub(super) const OTHER: &str = "other";

/// Where a method's latencies are recorded.
#[derive(Debug)]
pub(crate) enum Windows {
    /// All in one.
    One(Window),
    /// By where an attempt went.
    Each(Each),
}

/// What is measured in one place, and what is planned by it.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) estimator: Box<dyn LatencyEstimator>,
    /// Where the policy is [`Hedge::within`].
    pub(crate) planner: Option<Planner>,
}

#[derive(Debug)]
pub(crate) struct Each {
    make: Make,
    /// Opt in, and read for each call: a lock that writers hold only when an endpoint is new.
    by_name: RwLock<ByName>,
    others: Arc<Window>,
    other: Arc<str>,
}

#[derive(Debug, Default)]
struct ByName {
    windows: HashMap<Arc<str>, Arc<Window>>,
    swept: Option<Duration>,
    resumed: Option<Resumed>,
}

/// What an earlier process has learnt of places that no attempt has gone to yet.
#[derive(Debug)]
struct Resumed {
    /// When it was taken over.
    at: Duration,
    places: BTreeMap<String, Latencies>,
}

/// What makes a window.
#[derive(Debug)]
struct Make {
    estimator: Estimator,
    hedge: Hedge,
}

impl Windows {
    pub(super) fn new(estimator: Estimator, hedge: &Hedge) -> Self {
        let make = Make {
            estimator,
            hedge: hedge.clone(),
        };
        match hedge.scope {
            Scope::Method => Self::One(make.one()),
            _ => Self::Each(Each {
                others: make.one().into(),
                make,
                by_name: RwLock::default(),
                other: OTHER.into(),
            }),
        }
    }

    /// With the window that attempts at `endpoint` are recorded in.
    pub(super) fn at<T>(
        &self,
        now: Duration,
        endpoint: &Endpoint,
        look: impl FnOnce(&Window) -> T,
    ) -> T {
        match self {
            Self::One(window) => look(window),
            Self::Each(each) => look(&each.of(now, each.name_of(endpoint))),
        }
    }

    /// Shows each with its name; the only one has none.
    pub(super) fn each(&self, mut see: impl FnMut(Option<&Arc<str>>, &Window)) {
        match self {
            Self::One(window) => see(None, window),
            Self::Each(each) => {
                // Not under the lock: what is seen may take its time.
                let windows: Vec<_> = {
                    let by_name = each.by_name.read();
                    let all = by_name.windows.iter();
                    all.map(|(name, window)| (Arc::clone(name), Arc::clone(window)))
                        .collect()
                };
                for (name, window) in &windows {
                    see(Some(name), window);
                }
                see(Some(&each.other), &each.others);
            }
        }
    }

    /// Hands on what they hold.
    pub(super) fn export(&self, now: Duration, learned: &mut MethodLearned) {
        self.each(|name, window| {
            let latencies = window.estimator.export(now);
            let Some(latencies) = latencies.filter(|it| it.samples() > 0) else {
                return;
            };
            match (self, name) {
                (Self::One(_), _) => learned.window = Some(latencies),
                // Several places, and who knows which.
                (Self::Each(each), Some(name)) if Arc::ptr_eq(name, &each.other) => {}
                (Self::Each(_), name) => {
                    let name = name.map(|name| String::from(&**name));
                    learned.places.extend(name.map(|name| (name, latencies)));
                }
            }
        });
    }

    /// Takes over what was handed on; of a place when the first attempt goes there.
    pub(super) fn import(&self, now: Duration, learned: &MethodLearned) {
        match self {
            Self::One(window) => {
                if let Some(latencies) = &learned.window {
                    window.import(now, latencies);
                }
            }
            Self::Each(each) => {
                let places = learned.places.iter().take(MOST);
                let places = places.map(|(name, it)| (name.clone(), it.clone()));
                each.by_name.write().resumed = Some(Resumed {
                    at: now,
                    places: places.collect(),
                });
            }
        }
    }

    /// Samples in all of them.
    pub(super) fn samples(&self, now: Duration) -> u64 {
        let mut samples = 0;
        self.each(|_, window| samples += window.estimator.samples(now));
        samples
    }
}

impl Window {
    /// The threshold by its plan; before there is one, by the quantile that its policy names.
    #[inline]
    pub(super) fn threshold(&self, now: Duration) -> Option<Duration> {
        let planned = self.planner.as_ref().and_then(Planner::delay);
        planned.or_else(|| self.estimator.threshold(now))
    }

    /// The work that is kept off the calls' path.
    pub(super) fn fold(&self, now: Duration) {
        self.estimator.fold(now);
        if let Some(planner) = &self.planner {
            planner.replan(now, &*self.estimator);
        }
    }

    fn import(&self, now: Duration, latencies: &Latencies) {
        // With its plan: the first call is timed as all others.
        if self.estimator.import(now, latencies) {
            self.fold(now);
        }
    }
}

impl Each {
    fn name_of<'a>(&self, endpoint: &'a Endpoint) -> &'a Arc<str> {
        match (self.make.hedge.scope, endpoint.locality()) {
            (Scope::Locality, Some(locality)) => locality,
            // One that is nowhere is a place of its own.
            _ => endpoint.name(),
        }
    }

    fn of(&self, now: Duration, name: &Arc<str>) -> Arc<Window> {
        {
            let by_name = self.by_name.read();
            if let Some(window) = by_name.windows.get(name) {
                return Arc::clone(window);
            }
            if by_name.windows.len() >= MOST && !by_name.is_due(now) {
                return Arc::clone(&self.others);
            }
        }
        let mut by_name = self.by_name.write();
        if by_name.windows.len() >= MOST / 2 && by_name.is_due(now) {
            by_name.swept = Some(now);
            let in_use = |window: &Window| window.estimator.samples(now) > 0;
            by_name.windows.retain(|_, window| in_use(window));
        }
        if by_name.windows.len() >= MOST {
            return Arc::clone(&self.others);
        }
        if let Some(window) = by_name.windows.get(name) {
            return Arc::clone(window);
        }
        let window = Arc::new(self.make.one());
        if let Some((at, latencies)) = by_name.resumed(now, name, self.make.hedge.window) {
            window.import(at, &latencies);
        }
        by_name
            .windows
            .insert(Arc::clone(name), Arc::clone(&window));
        window
    }
}

impl ByName {
    fn is_due(&self, now: Duration) -> bool {
        self.swept
            .is_none_or(|swept| now.saturating_sub(swept) >= SWEEP)
    }

    /// What was learnt of a place, and when it was taken over.
    fn resumed(
        &mut self,
        now: Duration,
        name: &str,
        window: Duration,
    ) -> Option<(Duration, Latencies)> {
        let resumed = self.resumed.as_mut()?;
        let at = resumed.at;
        let latencies = resumed.places.remove(name);
        // After a window none of it would count.
        if now.saturating_sub(at) >= window || resumed.places.is_empty() {
            self.resumed = None;
        }
        Some((at, latencies?))
    }
}

impl Make {
    fn one(&self) -> Window {
        let hedge = &self.hedge;
        // The other is only read by requests that bring a quantile of their own.
        let quantile = hedge.quantile().unwrap_or(0.95);
        let (window, least) = (hedge.window, hedge.minimum_samples);
        Window {
            estimator: match self.estimator {
                Estimator::Ring => Box::new(Ring::new(quantile, window, least)),
                #[cfg(feature = "quantiles")]
                Estimator::Ckms => Box::new(tonic_hedge_engine::measure::Ckms::new(
                    quantile, window, least,
                )),
            },
            planner: Planner::new(hedge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn each() -> Each {
        let hedge = Hedge::at(0.95).scope(Scope::Endpoint);
        match Windows::new(Estimator::Ring, &hedge) {
            Windows::Each(each) => each,
            Windows::One(_) => unreachable!(),
        }
    }

    fn name(index: usize) -> Arc<str> {
        format!("endpoint {index}").into()
    }

    /// EC6: endpoints that come and go leave nothing behind.
    #[test]
    fn ec6_windows_without_samples_make_room() {
        let each = each();
        let minute = Duration::from_secs(60);
        for index in 0..10_000 {
            let now = minute * u32::try_from(index / 10).unwrap();
            let window = each.of(now, &name(index));
            window.estimator.record(now, minute);
            assert!(each.by_name.read().windows.len() <= MOST / 2 + 1);
        }
    }

    /// A place has what was learnt of it when its first attempt comes, as of when that was taken
    /// over; a place that no attempt goes to is never there.
    #[test]
    fn a_place_goes_on_when_it_is_first_used() {
        let each = each();
        let latencies = Latencies::new(vec![(40_000, 100)], Vec::new());
        let places = ["endpoint 1", "endpoint 2", "gone"];
        let places = places.map(|name| (name.to_owned(), latencies.clone()));
        let learned = MethodLearned {
            places: places.into(),
            ..MethodLearned::default()
        };
        let windows = Windows::Each(each);
        windows.import(NOW, &learned);
        let Windows::Each(each) = &windows else {
            unreachable!()
        };
        let second = Duration::from_secs(1);
        let threshold = |now, index| each.of(now, &name(index)).threshold(now);
        assert_eq!(threshold(second, 0), None);
        assert!(threshold(second, 1).is_some());
        let half = Duration::from_secs(15);
        assert!(threshold(half, 2).is_some());
        let after = Duration::from_secs(31);
        assert_eq!(threshold(after, 2), None, "it has left as all of then has");
        assert_eq!(each.by_name.read().windows.len(), 3);
        // What is left of it is let go.
        threshold(after, 3);
        assert!(each.by_name.read().resumed.is_none());
    }

    /// Of a file made by hand no more is kept than there are windows.
    #[test]
    fn no_more_places_wait_than_there_are_windows() {
        let latencies = Latencies::new(vec![(1, 1)], Vec::new());
        let places = (0..10_000).map(|index| (format!("place {index}"), latencies.clone()));
        let learned = MethodLearned {
            places: places.collect(),
            ..MethodLearned::default()
        };
        let windows = Windows::Each(each());
        windows.import(NOW, &learned);
        let Windows::Each(each) = &windows else {
            unreachable!()
        };
        let waiting = &each.by_name.read().resumed;
        assert_eq!(waiting.as_ref().unwrap().places.len(), MOST);
    }

    /// More at once than are kept share one, and those that have one keep it.
    #[test]
    fn what_comes_beyond_shares_one() {
        let each = each();
        for index in 0..MOST * 2 {
            let window = each.of(NOW, &name(index));
            window.estimator.record(NOW, Duration::from_millis(1));
        }
        assert_eq!(each.by_name.read().windows.len(), MOST);
        assert_eq!(each.others.estimator.samples(NOW), MOST as u64);
        assert_eq!(each.of(NOW, &name(7)).estimator.samples(NOW), 1);
    }
}
