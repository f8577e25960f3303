//! Why lanes cannot be built.

use std::fmt;

use tonic_hedge_engine::policy::PolicyError;

/// Lanes cannot be built. The text names what is wrong, its value and the bound.
#[derive(Debug)]
pub struct LanesError(Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Lane { name: String, error: PolicyError },
    Name(String),
    Twice(String),
    Tenants(PolicyError),
    Key(String),
    TwoTenants,
}

impl From<Kind> for LanesError {
    fn from(kind: Kind) -> Self {
        Self(kind)
    }
}

impl fmt::Display for LanesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Lane { name, error } => write!(f, "Lanes.lane: {name:?}: {error}"),
            Kind::Name(name) => write!(f, "Lanes.lane: {name:?} is not visible ASCII"),
            Kind::Twice(name) => write!(f, "Lanes.lane: {name:?} is given twice"),
            Kind::Tenants(error) => write!(f, "Lanes.tenants: {error}"),
            Kind::Key(key) => write!(f, "Lanes.tenant_key: {key:?} is not a metadata key"),
            Kind::TwoTenants => {
                f.write_str("Lanes: both tenant_key and tenant_of given: one of them")
            }
        }
    }
}

impl std::error::Error for LanesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Lane { error, .. } | Kind::Tenants(error) => Some(error),
            _ => None,
        }
    }
}
