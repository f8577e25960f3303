//! A circuit breaker with the name of what it guards: a channel, a service or a method.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tonic_hedge_engine::{
    gate::{BreakerReading, BreakerState},
    measure::{Admission, Breaker, Probe},
    policy::{BreakerPolicy, PolicyError},
};

/// What one circuit breaker guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerScope {
    /// One for the channel: its methods share their fate, as behind one process they do.
    #[default]
    Channel,
    /// One for each service.
    Service,
    /// One for each method.
    Method,
}

/// One breaker. It says of each change once, in the log.
#[derive(Debug)]
pub(crate) struct Circuit {
    name: Box<str>,
    breaker: Breaker,
}

/// Makes the circuits of a channel, one for each thing that is guarded.
#[derive(Debug)]
pub(crate) struct Circuits {
    policy: Option<BreakerPolicy>,
    scope: BreakerScope,
    made: HashMap<Box<str>, Arc<Circuit>>,
}

impl Circuits {
    pub(crate) fn new(policy: Option<BreakerPolicy>, scope: BreakerScope) -> Self {
        Self {
            policy,
            scope,
            made: HashMap::new(),
        }
    }

    /// The circuit of a method, given as `package.Service/Method`; `None` without a policy.
    ///
    /// # Errors
    /// A field of the policy is out of its bounds.
    pub(crate) fn of(&mut self, method: &str) -> Result<Option<Arc<Circuit>>, PolicyError> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        let name = match self.scope {
            BreakerScope::Channel => "channel",
            BreakerScope::Service => method.rsplit_once('/').map_or(method, |(name, _)| name),
            BreakerScope::Method => method,
        };
        if let Some(circuit) = self.made.get(name) {
            return Ok(Some(Arc::clone(circuit)));
        }
        let circuit = Arc::new(Circuit {
            name: name.into(),
            breaker: Breaker::new(policy)?,
        });
        self.made.insert(name.into(), Arc::clone(&circuit));
        Ok(Some(circuit))
    }

    /// All that were made, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Circuit>> {
        let mut all: Vec<_> = self.made.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Circuit {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a call may be made: as the half-open breaker's probe, or as any other.
    ///
    /// # Errors
    /// The breaker is open, for this long.
    pub(crate) fn admit(&self, now: Duration) -> Result<Option<Probe>, Duration> {
        match self.breaker.admit(now) {
            Admission::Closed => Ok(None),
            Admission::Probe { probe, change } => {
                self.changed(change);
                Ok(Some(probe))
            }
            Admission::Open { retry_after } => Err(retry_after),
        }
    }

    /// Records an outcome of a call that was `admitted` then; the half-open breaker's probe takes
    /// it, if this is it.
    pub(crate) fn record(
        &self,
        admitted: Duration,
        now: Duration,
        probe: Option<Probe>,
        failed: bool,
    ) {
        self.changed(match probe {
            Some(probe) if failed => probe.failure(now),
            Some(probe) => probe.success(now),
            None => self.breaker.record_of(admitted, now, failed),
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.breaker.is_closed()
    }

    pub(crate) fn reading(&self, now: Duration) -> BreakerReading {
        self.breaker.reading(now)
    }

    fn changed(&self, change: Option<BreakerState>) {
        if let Some(state) = change {
            tracing::warn!(
                breaker = &*self.name,
                state = state.name(),
                "circuit breaker changed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scope: BreakerScope) -> Vec<String> {
        let mut circuits = Circuits::new(Some(BreakerPolicy::default()), scope);
        for method in ["a.S/One", "a.S/Two", "b.T/One", "other"] {
            assert!(circuits.of(method).unwrap().is_some());
        }
        let all = circuits.all();
        all.iter()
            .map(|circuit| circuit.name().to_owned())
            .collect()
    }

    #[test]
    fn one_for_each_thing_that_is_guarded() {
        assert_eq!(names(BreakerScope::Channel), ["channel"]);
        assert_eq!(names(BreakerScope::Service), ["a.S", "b.T", "other"]);
        assert_eq!(
            names(BreakerScope::Method),
            ["a.S/One", "a.S/Two", "b.T/One", "other"]
        );
    }

    #[test]
    fn no_policy_no_circuit() {
        let mut circuits = Circuits::new(None, BreakerScope::Channel);
        assert!(circuits.of("a.S/One").unwrap().is_none());
    }
}
