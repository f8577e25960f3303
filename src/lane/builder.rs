//! What lanes are made from.

use std::sync::{Arc, Weak};

use http::{HeaderName, HeaderValue, request::Parts};
use tokio::time::Instant;
use tonic_hedge_engine::lane::{Lane, LanePolicy, TenantPolicy, Tenants};

use super::{Function, Lanes, LanesError, Named, Shared, TenantOf, error::Kind};
use crate::telemetry::{Measure, Metrics};

/// Makes [`Lanes`]. Every mistake is an error of [`LanesBuilder::build`].
#[derive(Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LanesBuilder {
    lanes: Vec<(String, LanePolicy)>,
    lane_of: Option<Function>,
    tenant_key: Option<String>,
    tenant_of: Option<Function>,
    tenants: TenantPolicy,
    name: Option<String>,
    metrics: Metrics,
}

impl LanesBuilder {
    /// Adds a lane, less important than those before it. Its name is told in the metadata of what
    /// it sheds, so it is visible ASCII. Without any there are two by the default policy,
    /// `interactive` and `batch`.
    pub fn lane(mut self, name: impl Into<String>, policy: LanePolicy) -> Self {
        self.lanes.push((name.into(), policy));
        self
    }

    /// Names the lane of a request by its head. Where it says `None`, or there is no lane of
    /// that name, the request's criticality decides. It runs for each call, so it should be quick.
    pub fn lane_of<F>(mut self, lane_of: F) -> Self
    where
        F: for<'a> Fn(&'a Parts) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.lane_of = Some(Box::new(lane_of));
        self
    }

    /// The metadata key that names a request's tenant; those who send none are one tenant
    /// together. The name is believed, so something before it should have checked it.
    pub fn tenant_key(mut self, key: impl Into<String>) -> Self {
        self.tenant_key = Some(key.into());
        self
    }

    /// Names the tenant of a request by its head, in place of [`LanesBuilder::tenant_key`].
    pub fn tenant_of<F>(mut self, tenant_of: F) -> Self
    where
        F: for<'a> Fn(&'a Parts) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.tenant_of = Some(Box::new(tenant_of));
        self
    }

    /// How many tenants are known, and for how long.
    pub fn tenants(mut self, policy: TenantPolicy) -> Self {
        self.tenants = policy;
        self
    }

    /// What their metrics call them (`lanes`): by default `lanes`. Of two of one name
    /// only one is shown: give each its own.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sends their metrics to this provider instead of the global one.
    #[cfg(feature = "telemetry")]
    pub fn meter_provider(
        mut self,
        provider: Arc<dyn opentelemetry::metrics::MeterProvider + Send + Sync>,
    ) -> Self {
        self.metrics.set_meter_provider(provider);
        self
    }

    /// The lanes.
    ///
    /// # Errors
    /// A policy that is out of its bounds, two lanes of one name, a name or a key that cannot be
    /// in metadata, or two ways to name a tenant.
    pub fn build(mut self) -> Result<Lanes, LanesError> {
        if self.lanes.is_empty() {
            let lane = |name: &str| (name.to_owned(), LanePolicy::default());
            self.lanes = vec![lane("interactive"), lane("batch")];
        }
        let mut lanes: Vec<Named> = Vec::with_capacity(self.lanes.len());
        for (name, policy) in self.lanes {
            if lanes.iter().any(|lane| *lane.name == *name) {
                return Err(Kind::Twice(name).into());
            }
            lanes.push(named(name, &policy)?);
        }
        let tenant_of = match (self.tenant_key, self.tenant_of) {
            (Some(_), Some(_)) => return Err(Kind::TwoTenants.into()),
            (None, None) => None,
            (None, Some(function)) => Some(TenantOf::Function(function)),
            (Some(key), None) => match HeaderName::try_from(&key) {
                Ok(key) => Some(TenantOf::Key(key)),
                Err(_) => return Err(Kind::Key(key).into()),
            },
        };
        // Checked also where nobody asks for tenants: a mistake is a mistake.
        let of_lanes = lanes.iter().map(|lane| lane.lane.clone());
        let tenants = Tenants::new(&self.tenants, of_lanes).map_err(Kind::Tenants)?;
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            lanes: lanes.into(),
            lane_of: self.lane_of,
            tenants: tenant_of.map(|tenant_of| (tenant_of, tenants)),
            metrics: self.metrics,
        });
        let name = self.name.as_deref().unwrap_or("lanes");
        let weak = Arc::downgrade(&shared) as Weak<dyn Measure>;
        shared.metrics.watch(name.into(), weak);
        Ok(Lanes(shared))
    }
}

fn named(name: String, policy: &LanePolicy) -> Result<Named, LanesError> {
    let visible = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::try_from(&name).ok().filter(|_| visible);
    let Some(value) = value else {
        return Err(Kind::Name(name).into());
    };
    match Lane::new(policy) {
        Ok(lane) => Ok(Named {
            name: name.into(),
            value,
            round_trip: policy.round_trip,
            lane,
        }),
        Err(error) => Err(Kind::Lane { name, error }.into()),
    }
}

impl std::fmt::Debug for LanesBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LanesBuilder")
            .field("lanes", &self.lanes)
            .field("tenants", &self.tenants)
            .finish_non_exhaustive()
    }
}
