//! From a request's path to its method, without an allocation.

use std::{collections::HashMap, sync::Arc};

use tonic_hedge_engine::policy::PolicyError;

use super::{Defaults, Method};
use crate::{circuit::Circuits, descriptor::MethodDescriptor, telemetry::Telemetry};

/// The methods of a channel. Fixed when it is built, so that invented paths cannot grow it:
/// all that no descriptor knows share one.
#[derive(Clone, Debug)]
pub(crate) struct MethodTable {
    known: Arc<HashMap<Box<str>, Arc<Method>>>,
    other: Arc<Method>,
    folds: bool,
}

impl MethodTable {
    /// The table of merged descriptor sets.
    ///
    /// # Errors
    /// The method's path, and the policy field that is out of its bounds.
    pub(crate) fn new(
        descriptors: &[MethodDescriptor],
        defaults: &Defaults,
        circuits: &mut Circuits,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, (String, PolicyError)> {
        let mut known = HashMap::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let method = Method::new(descriptor, defaults, circuits, telemetry)
                .map_err(|error| (descriptor.path.clone(), error))?;
            known.insert(descriptor.path.clone().into(), Arc::new(method));
        }
        let other = Method::other(defaults, circuits, telemetry)
            .map_err(|error| ("other".to_owned(), error))?;
        Ok(Self {
            known: Arc::new(known),
            other: Arc::new(other),
            folds: defaults.estimator.folds(),
        })
    }

    /// The method of a path, and its name as `package.Service/Method`. A client with an origin
    /// puts its prefix before the two segments that name the method.
    pub(crate) fn find<'a>(&'a self, path: &'a str) -> (&'a Arc<Method>, &'a str) {
        // Nearly every path is a key as it is.
        let known = self.known.get(path).or_else(|| self.known.get(key(path)));
        match known {
            Some(method) => (method, method.name()),
            None => (&self.other, key(path).trim_start_matches('/')),
        }
    }

    /// Whether the methods' estimators put samples aside, to be folded off the calls' path.
    pub(crate) fn folds(&self) -> bool {
        self.folds
    }

    /// All known methods, in no order, and the one that stands for the others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Method>> {
        self.known.values().chain(std::iter::once(&self.other))
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
