//! Where a user sends one attempt.

use std::sync::Arc;

use super::Endpoint;

/// Where one attempt goes, in place of what the picker would choose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Destination {
    /// The endpoint of this name, as [`EndpointSpec::name`](crate::EndpointSpec::name) and the call
    /// log have it.
    Endpoint(Arc<str>),
    /// The endpoints of this locality: the picker chooses among them.
    Locality(Arc<str>),
}

impl Destination {
    /// The endpoint of this name.
    pub fn endpoint(name: impl Into<Arc<str>>) -> Self {
        Self::Endpoint(name.into())
    }

    /// The endpoints of this locality.
    pub fn locality(locality: impl Into<Arc<str>>) -> Self {
        Self::Locality(locality.into())
    }

    pub(super) fn includes(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Endpoint(name) => *endpoint.name == **name,
            Self::Locality(locality) => endpoint.locality.as_ref() == Some(locality),
        }
    }
}
