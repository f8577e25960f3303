//! What Prometheus scrapes: the library's own metrics, by OpenTelemetry.

use std::{error::Error, sync::Arc};

use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider};
use prometheus::{Registry, TextEncoder};

/// A meter provider, and what it was told so far. Clones are the same.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    provider: Arc<SdkMeterProvider>,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let registry = Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .build()?;
        let resource = Resource::builder().with_service_name("gateway");
        let provider = SdkMeterProvider::builder()
            .with_resource(resource.build())
            .with_reader(reader)
            .build();
        Ok(Self {
            registry,
            provider: Arc::new(provider),
        })
    }

    pub(crate) fn provider(&self) -> Arc<SdkMeterProvider> {
        Arc::clone(&self.provider)
    }

    /// In Prometheus's text format.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
