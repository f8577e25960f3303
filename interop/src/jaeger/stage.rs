//! An application, two instrumented tonic replicas, and the Jaeger that gets the spans of both.

use std::{error::Error, future::Future, sync::Arc};

use opentelemetry::{
    Context,
    trace::{FutureExt as _, Span as _, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tonic::Status;
use tonic_hedge::{Builder, EndpointState, HedgedChannel};

use crate::{
    collector::Jaeger,
    otlp,
    replica::Replica,
    script::{
        Arrival, Script,
        probe::{self, ProbeRequest, probe_client::ProbeClient},
        service,
    },
    trace::Trace,
    traced::{Busy, Traced},
};

/// The spans of each replica are those of a service of its own.
const REPLICAS: [&str; 2] = ["replica-a", "replica-b"];

pub(crate) struct Stage {
    pub(crate) jaeger: Jaeger,
    application: SdkTracerProvider,
    servers: [SdkTracerProvider; 2],
    busy: Busy,
}

/// Two replicas with one script.
pub(crate) struct Fleet {
    replicas: [Replica; 2],
}

impl Stage {
    pub(crate) async fn new(jaeger: Jaeger) -> Result<Self, Box<dyn Error>> {
        let endpoint = jaeger.otlp_grpc();
        let [a, b] = REPLICAS;
        Ok(Self {
            jaeger,
            application: provider(&endpoint, "application").await?,
            servers: [provider(&endpoint, a).await?, provider(&endpoint, b).await?],
            busy: Busy::new(),
        })
    }

    pub(crate) async fn fleet<F, A>(&self, script: F) -> Result<Fleet, Box<dyn Error>>
    where
        F: Fn(Arrival) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let script = Arc::new(script);
        let start = async |server: &SdkTracerProvider| {
            let service = service(Shared(Arc::clone(&script)));
            let tracer = server.tracer("replica");
            Replica::start(Traced::new(service, tracer, self.busy.clone())).await
        };
        let [a, b] = &self.servers;
        Ok(Fleet {
            replicas: [start(a).await?, start(b).await?],
        })
    }

    /// A channel to these servers that is still to be told when to hedge.
    pub(crate) fn builder(&self, uris: impl IntoIterator<Item = String>) -> Builder {
        HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .tracer_provider(&self.application)
    }

    /// Does `work` under a span of the application's own. What it came to, and its trace's id.
    pub(crate) async fn traced<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T>,
    ) -> (String, T) {
        let root = self.application.tracer("application").start(name);
        let id = root.span_context().trace_id().to_string();
        let done = work.with_context(Context::new().with_span(root)).await;
        (id, done)
    }

    /// The whole of a trace that has so many spans, and not one more.
    pub(crate) async fn trace(&self, id: &str, spans: usize) -> Result<Trace, Box<dyn Error>> {
        self.busy.idle().await;
        otlp::flush(&self.application).await?;
        for server in &self.servers {
            otlp::flush(server).await?;
        }
        let trace = self.jaeger.trace(id, spans).await?;
        if trace.spans.len() > spans {
            return Err(format!("trace {id}: {} spans for {spans}", trace.spans.len()).into());
        }
        Ok(trace)
    }
}

impl Fleet {
    pub(crate) fn uris(&self) -> [String; 2] {
        self.replicas.each_ref().map(Replica::uri)
    }

    /// The service whose replica listens there.
    pub(crate) fn service(&self, port: u64) -> String {
        let ours = self.uris();
        let at = ours
            .iter()
            .position(|uri| uri.ends_with(&format!(":{port}")));
        at.map_or_else(String::new, |at| REPLICAS[at].to_owned())
    }
}

/// A client whose channel is connected to all of its servers: only then a hedge has somewhere to go.
pub(crate) async fn connected(
    builder: Builder,
) -> Result<ProbeClient<HedgedChannel>, Box<dyn Error>> {
    let channel = builder.build()?;
    let mut client = ProbeClient::new(channel.clone());
    loop {
        let ready = |channel: &HedgedChannel| {
            let endpoints = channel.measured().endpoints;
            endpoints.iter().all(|e| e.state == EndpointState::Ready)
        };
        if ready(&channel) {
            return Ok(client);
        }
        client
            .put(ProbeRequest {
                id: WARM_UP.to_string(),
                ..ProbeRequest::default()
            })
            .await?;
    }
}

/// The id of calls that only make a channel connect: scripts answer them at once.
const WARM_UP: u64 = 0;
/// The id of the call that is looked at.
pub(crate) const CALL: u64 = 1;

struct Shared<F>(Arc<F>);

impl<F, A> Script for Shared<F>
where
    F: Fn(Arrival) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), Status>> + Send + 'static,
{
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        match arrival.call {
            WARM_UP => Ok(()),
            _ => (self.0)(arrival).await,
        }
    }
}

async fn provider(
    endpoint: &str,
    service: &'static str,
) -> Result<SdkTracerProvider, Box<dyn Error>> {
    Ok(SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name(service).build())
        .with_batch_exporter(otlp::exporter(endpoint).await?)
        .build())
}
