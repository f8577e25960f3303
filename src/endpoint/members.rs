//! Who is in a set at one moment.

use std::{ops::Deref, sync::Arc};

use super::Endpoint;

/// The endpoints of a set, and what a pick would have to look at all of them for.
#[derive(Default)]
pub(crate) struct Members {
    all: Vec<Arc<Endpoint>>,
    in_localities: bool,
}

impl Members {
    /// Whether they are in more than one locality: where they are not, none is better for that.
    pub(super) fn are_in_localities(&self) -> bool {
        self.in_localities
    }
}

impl FromIterator<Arc<Endpoint>> for Members {
    fn from_iter<I: IntoIterator<Item = Arc<Endpoint>>>(endpoints: I) -> Self {
        let all: Vec<_> = endpoints.into_iter().collect();
        let pairs = all.windows(2);
        let in_localities = pairs
            .into_iter()
            .any(|pair| pair[0].locality != pair[1].locality);
        Self { all, in_localities }
    }
}

impl Deref for Members {
    type Target = [Arc<Endpoint>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}
