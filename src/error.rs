//! Why a channel cannot be built.

use std::fmt;

use tonic_hedge_engine::policy::PolicyError;

use crate::descriptor::DescriptorError;
#[cfg(feature = "service-config")]
use crate::service_config::ServiceConfigError;

/// A channel cannot be built. The text names what is wrong, its value and the bound.
#[derive(Debug)]
pub struct BuildError(Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    NoSource,
    TwoSources,
    NoEndpoint,
    Endpoint {
        text: String,
        error: tonic::transport::Error,
    },
    Uri {
        text: String,
        why: &'static str,
    },
    Policy(PolicyError),
    Method {
        path: String,
        error: PolicyError,
    },
    MethodPolicy {
        name: String,
        why: &'static str,
    },
    Descriptor(DescriptorError),
    #[cfg(feature = "service-config")]
    ServiceConfig(ServiceConfigError),
    #[cfg(feature = "service-config")]
    ServiceConfigFile {
        path: std::path::PathBuf,
        error: std::io::Error,
    },
    #[cfg(feature = "service-config")]
    ServiceConfigTwice,
    /// A service config's `retryThrottling`, and the builder's setter for a budget of somebody
    /// else's.
    TwoBudgets(&'static str),
}

impl From<Kind> for BuildError {
    fn from(kind: Kind) -> Self {
        Self(kind)
    }
}

impl From<PolicyError> for BuildError {
    fn from(error: PolicyError) -> Self {
        Self(Kind::Policy(error))
    }
}

impl From<DescriptorError> for BuildError {
    fn from(error: DescriptorError) -> Self {
        Self(Kind::Descriptor(error))
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::NoSource => f.write_str(
                "HedgedChannel: no endpoints given: use endpoints, discover, dns or channel",
            ),
            Kind::TwoSources => f.write_str(
                "HedgedChannel: more than one of endpoints, discover, dns and channel given",
            ),
            Kind::NoEndpoint => f.write_str("HedgedChannel.endpoints: 0 is not at least 1"),
            Kind::Endpoint { text, error } => {
                write!(f, "HedgedChannel.endpoints: {text:?} is not a URI: {error}")
            }
            Kind::Uri { text, why } => {
                write!(f, "HedgedChannel.endpoints: {text:?} {why}")
            }
            Kind::Policy(error) => error.fmt(f),
            Kind::Method { path, error } => write!(f, "{path}: {error}"),
            Kind::MethodPolicy { name, why } => {
                write!(f, "HedgedChannel.method: {name:?} {why}")
            }
            Kind::Descriptor(error) => write!(f, "HedgedChannel.descriptors: {error}"),
            #[cfg(feature = "service-config")]
            Kind::ServiceConfig(error) => write!(f, "HedgedChannel.service_config: {error}"),
            #[cfg(feature = "service-config")]
            Kind::ServiceConfigFile { path, error } => {
                write!(f, "HedgedChannel.service_config_file: {path:?}: {error}")
            }
            #[cfg(feature = "service-config")]
            Kind::ServiceConfigTwice => {
                f.write_str("HedgedChannel.service_config: more than one given")
            }
            Kind::TwoBudgets(setter) => write!(
                f,
                "HedgedChannel.{setter}: there is a service config with retryThrottling too: one of them"
            ),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Endpoint { error, .. } => Some(error),
            Kind::Policy(error) | Kind::Method { error, .. } => Some(error),
            Kind::Descriptor(error) => Some(error),
            #[cfg(feature = "service-config")]
            Kind::ServiceConfig(error) => Some(error),
            #[cfg(feature = "service-config")]
            Kind::ServiceConfigFile { error, .. } => Some(error),
            _ => None,
        }
    }
}
