//! From a request's path to its method, without an allocation.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{Defaults, Method};
use crate::{
    circuit::Circuits,
    descriptor::{self, DescriptorError, MethodDescriptor},
    error::{BuildError, Kind},
    learned::Resumed,
    service_config::ServiceConfig,
    telemetry::Telemetry,
};

/// The methods of a channel. Fixed when it is built, or when its server has told of its methods, so
/// that invented paths cannot grow it: all that no descriptor knows share one.
#[derive(Clone, Debug)]
pub(crate) struct MethodTable {
    known: Arc<Known>,
    /// All of them, once the server has told.
    #[cfg(feature = "reflection")]
    learned: Arc<std::sync::OnceLock<Known>>,
    other: Arc<Method>,
    /// Some of the methods have work that is kept off the calls' path.
    folds: Arc<AtomicBool>,
    /// For the timeouts of methods that no descriptor knows.
    service_config: Arc<ServiceConfig>,
}

type Known = HashMap<Box<str>, Arc<Method>, BuildHasherDefault<PathHasher>>;

/// Eight bytes at a time, where the standard library's hasher takes ten times as long. That one
/// resists keys that are chosen to collide; here nobody who calls chooses a key.
#[derive(Debug, Default)]
pub(crate) struct PathHasher(u64);

/// What methods are made with.
#[derive(Debug)]
pub(crate) struct Maker {
    /// Whether an HTTP GET declares a method.
    pub(crate) http_get: bool,
    pub(crate) defaults: Defaults,
    pub(crate) circuits: Arc<Mutex<Circuits>>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// What an earlier process has learnt.
    pub(crate) resumed: Option<Resumed>,
}

/// What it takes to learn of further methods.
#[cfg(feature = "reflection")]
#[derive(Debug)]
pub(crate) struct Learner {
    /// What the user's own sets say, as [`Maker::checked`] returns it.
    pub(crate) own: Vec<MethodDescriptor>,
    pub(crate) maker: Maker,
}

impl PathHasher {
    fn mix(&mut self, word: u64) {
        // An odd constant from the golden ratio: all of a word's bits reach the upper ones, which are
        // folded back, since the table takes its place from the lower.
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

impl Hasher for PathHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
    }

    // What ends a string: the last word has its end already.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Maker {
    /// The methods of all sets, each once.
    ///
    /// # Errors
    /// A value out of bounds; a method that asks for what it cannot have.
    pub(crate) fn checked(
        &self,
        mut sets: Vec<Vec<MethodDescriptor>>,
    ) -> Result<Vec<MethodDescriptor>, DescriptorError> {
        for method in sets.iter_mut().flatten() {
            if self.http_get {
                method.trust_http_get();
            }
            method.check()?;
        }
        Ok(descriptor::merge(sets))
    }

    /// The descriptors, and those that only policies by name know.
    ///
    /// # Errors
    /// What `refuse` makes of a policy that cannot be.
    fn named(
        &self,
        mut descriptors: Vec<MethodDescriptor>,
        refuse: impl FnMut(BuildError) -> Result<(), BuildError>,
    ) -> Result<Vec<MethodDescriptor>, BuildError> {
        let policies = &self.defaults.policies;
        policies.complete(&mut descriptors, refuse)?;
        Ok(descriptors)
    }

    fn method(&self, descriptor: &MethodDescriptor) -> Result<Arc<Method>, BuildError> {
        let mut circuits = self.circuits.lock();
        let method = Method::new(descriptor, &self.defaults, &mut circuits, &self.telemetry);
        let method = method.map_err(|error| Kind::Method {
            path: descriptor.path.clone(),
            error,
        })?;
        if let Some(resumed) = &self.resumed {
            resumed.apply(&method);
        }
        Ok(Arc::new(method))
    }
}

impl MethodTable {
    /// The table of merged descriptor sets.
    ///
    /// # Errors
    /// The method's path, and the policy field that is out of its bounds.
    pub(crate) fn new(own: &[MethodDescriptor], maker: &Maker) -> Result<Self, BuildError> {
        let mut known = Known::default();
        for descriptor in &maker.named(own.to_vec(), Err)? {
            known.insert(descriptor.path.clone().into(), maker.method(descriptor)?);
        }
        let mut circuits = maker.circuits.lock();
        let other = Method::other(&maker.defaults, &mut circuits, &maker.telemetry);
        let other = other.map_err(|error| Kind::Method {
            path: "other".to_owned(),
            error,
        })?;
        let folds = maker.defaults.estimator.folds() || known.values().any(|it| it.plans());
        Ok(Self {
            known: Arc::new(known),
            #[cfg(feature = "reflection")]
            learned: Arc::default(),
            other: Arc::new(other),
            folds: Arc::new(AtomicBool::new(folds)),
            service_config: Arc::new(maker.defaults.service_config.clone()),
        })
    }

    /// Whether no method is known: each call has one attempt then.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Adds what a server says of its methods, once, and returns how many are known now. A method of
    /// which that says nothing new keeps all that is measured of it; another starts anew.
    ///
    /// Nothing is refused, since a veto may be among it: a method whose options cannot be, or that has
    /// a policy by name that it may not have, has one attempt, and the log says why.
    #[cfg(feature = "reflection")]
    pub(crate) fn learn(&self, learner: &Learner, mut more: Vec<MethodDescriptor>) -> usize {
        let Learner { own, maker } = learner;
        let doubt = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "reflection: it is not repeated");
        };
        for method in &mut more {
            if maker.http_get {
                method.trust_http_get();
            }
            if let Err(error) = method.check() {
                doubt(&error);
                method.veto();
            }
        }
        let refused = |error| {
            doubt(&error);
            Ok(())
        };
        let before = maker.named(own.clone(), Err).unwrap_or_default();
        let all = descriptor::merge([own.clone(), more]);
        let all = maker.named(all, refused).unwrap_or_default();
        let mut known = Known::default();
        known.reserve(all.len());
        for mut descriptor in all {
            let path = descriptor.path.as_str();
            let same = before.binary_search_by(|it| it.path.as_str().cmp(path));
            let same = same.is_ok_and(|at| before[at] == descriptor);
            let method = match self.known.get(path).filter(|_| same) {
                Some(method) => Ok(Arc::clone(method)),
                None => maker.method(&descriptor),
            };
            let method = method.or_else(|error| {
                doubt(&error);
                descriptor.veto();
                maker.method(&descriptor)
            });
            // Without it the path has one attempt, as all that nobody knows.
            if let Ok(method) = method {
                known.insert(descriptor.path.into(), method);
            }
        }
        if known.values().any(|method| method.plans()) {
            // Relaxed: whoever reads it late asks again at the next call.
            self.folds.store(true, Ordering::Relaxed);
        }
        self.learned.get_or_init(|| known).len()
    }

    fn known(&self) -> &Known {
        #[cfg(feature = "reflection")]
        if let Some(learned) = self.learned.get() {
            return learned;
        }
        &self.known
    }

    /// The method of a path, and its name as `package.Service/Method`. A client with an origin
    /// puts its prefix before the two segments that name the method.
    pub(crate) fn find<'a>(&'a self, path: &'a str) -> (&'a Arc<Method>, &'a str) {
        // Nearly every path is a key as it is.
        let known = self.known();
        match known.get(path).or_else(|| known.get(key(path))) {
            Some(method) => (method, method.name()),
            None => (&self.other, key(path).trim_start_matches('/')),
        }
    }

    /// The longest that a call of the method, as it was [found](Self::find) with its name, may take.
    pub(crate) fn timeout(&self, method: &Arc<Method>, name: &str) -> Option<Duration> {
        match Arc::ptr_eq(method, &self.other) {
            false => method.timeout(),
            true => self.service_config.of(name)?.config.timeout,
        }
    }

    /// Whether methods have work that is kept off the calls' path: samples that an estimator has put
    /// aside, plans.
    pub(crate) fn folds(&self) -> bool {
        // Relaxed: see `learn`.
        self.folds.load(Ordering::Relaxed)
    }

    /// All known methods, in no order, and the one that stands for the others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Method>> {
        self.known().values().chain(std::iter::once(&self.other))
    }
}

/// The last two segments of a path, with their slashes: `/package.Service/Method`.
fn key(path: &str) -> &str {
    let service = path
        .rfind('/')
        .and_then(|method| path[..method].rfind('/'))
        .unwrap_or(0);
    &path[service..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_segments_name_the_method() {
        for (path, expected) in [
            ("/pkg.Service/Method", "/pkg.Service/Method"),
            ("/prefix/pkg.Service/Method", "/pkg.Service/Method"),
            ("/a/b/c.D/E", "/c.D/E"),
            ("/Hello/Hello", "/Hello/Hello"),
            ("/only", "/only"),
            ("/", "/"),
            ("", ""),
            ("//", "//"),
        ] {
            assert_eq!(key(path), expected);
        }
    }
}
