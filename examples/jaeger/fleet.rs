//! Three instrumented replicas, slow or failing as the scene of a call wants it.

use std::{error::Error, future::pending, sync::Arc, time::Duration};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::{sync::Notify, time::sleep};
use tonic::Status;

use crate::{
    otlp,
    replica::Replica,
    scenes::Scene,
    script::{Arrival, Script, service},
    traced::{Busy, Traced},
};

/// Each is a service of its own in the trace.
const NAMES: [&str; 3] = ["replica-1", "replica-2", "replica-3"];

/// Slower than any threshold here.
const SLOW: Duration = Duration::from_millis(250);

pub(crate) struct Fleet {
    replicas: Vec<Replica>,
    providers: Vec<SdkTracerProvider>,
    busy: Busy,
}

impl Fleet {
    /// Starts the replicas; their spans go to the collector at `endpoint`.
    pub(crate) async fn start(endpoint: &str) -> Result<Self, Box<dyn Error>> {
        let mut fleet = Self {
            replicas: Vec::new(),
            providers: Vec::new(),
            busy: Busy::new(),
        };
        let hedge_arrived = Arc::new(Notify::new());
        for name in NAMES {
            let provider = SdkTracerProvider::builder()
                .with_resource(Resource::builder().with_service_name(name).build())
                .with_batch_exporter(otlp::exporter(endpoint).await?)
                .build();
            let tracer = provider.tracer("replica");
            let scripted = Scripted {
                hedge_arrived: Arc::clone(&hedge_arrived),
            };
            let traced = Traced::new(service(scripted), tracer, fleet.busy.clone());
            fleet.replicas.push(Replica::start(traced).await?);
            fleet.providers.push(provider);
        }
        Ok(fleet)
    }

    pub(crate) fn uris(&self) -> impl Iterator<Item = String> {
        self.replicas.iter().map(Replica::uri)
    }

    /// Waits for the replicas' losers, and sends every span.
    pub(crate) async fn flush(&self) -> Result<(), Box<dyn Error>> {
        self.busy.idle().await;
        for provider in &self.providers {
            otlp::flush(provider).await?;
        }
        Ok(())
    }
}

/// Does what the scene wants, whichever replica it is.
struct Scripted {
    hedge_arrived: Arc<Notify>,
}

impl Script for Scripted {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        let original = arrival.before == 0;
        let usual = Duration::from_millis(arrival.draws().u64(5..20));
        match Scene::of_call(arrival.call) {
            Scene::HedgeWins if original => pending().await,
            Scene::OriginalWins if original => self.hedge_arrived.notified().await,
            Scene::OriginalWins => {
                self.hedge_arrived.notify_one();
                pending().await
            }
            Scene::NotIdempotent | Scene::Sheddable | Scene::NoBudget => sleep(SLOW).await,
            Scene::Retried if original => return Err(Status::unavailable("restarting")),
            Scene::Failed => {
                sleep(usual).await;
                return Err(Status::unavailable("restarting"));
            }
            _ => {}
        }
        sleep(usual).await;
        Ok(())
    }
}
