//! Real tonic replicas in memory, on the test's own runtime: under a paused clock a whole call
//! takes exactly the time that its script says.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::{convert::Infallible, future::Future, io, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::{io::DuplexStream, sync::mpsc, task::JoinHandle};
use tokio_stream::{Stream, wrappers::UnboundedReceiverStream};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint, Server},
};
use tonic_hedge::{Builder, EndpointSpec, HedgedChannel, Measured, MethodMeasured};
use tower::discover::Change;

use crate::support::{Answer, Arrival, ProbeRequest, Seen, probe, request, scripted};

/// Enough that no test fills it.
const PIPE: usize = 1 << 20;

/// A replica without a socket. Dropping it kills it with its connections.
pub struct InMemory {
    pub name: String,
    pub seen: Arc<Seen>,
    pub channel: Channel,
    server: JoinHandle<()>,
}

impl InMemory {
    pub fn start<F, R>(name: &str, script: F) -> Self
    where
        F: Fn(Arrival) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let seen = Arc::new(Seen::default());
        let service = scripted(name, Arc::clone(&seen), script);
        let (channel, incoming) = pipe();
        let server = Server::builder().add_service(service);
        Self {
            name: name.to_owned(),
            seen,
            channel,
            server: tokio::spawn(async move {
                server.serve_with_incoming(incoming).await.unwrap();
            }),
        }
    }

    pub fn spec(&self) -> EndpointSpec {
        EndpointSpec::channel(self.name.as_str(), self.channel.clone())
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A channel, and the server's ends of the connections that it makes.
pub fn pipe() -> (Channel, impl Stream<Item = io::Result<DuplexStream>>) {
    let (ends, incoming) = mpsc::unbounded_channel();
    let connector = tower::service_fn(move |_| {
        let (client, server) = tokio::io::duplex(PIPE);
        let sent = ends.send(Ok(server));
        async move {
            sent.map_err(|_| io::Error::other("the replica is gone"))?;
            Ok::<_, io::Error>(TokioIo::new(client))
        }
    });
    let channel = Endpoint::from_static("http://memory").connect_with_connector_lazy(connector);
    (channel, UnboundedReceiverStream::new(incoming))
}

pub type Changes = Result<Change<usize, EndpointSpec>, Infallible>;

pub fn inserted(key: usize, spec: EndpointSpec) -> Changes {
    Ok(Change::Insert(key, spec))
}

/// A channel over these replicas, in the making.
pub fn builder<'a>(replicas: impl IntoIterator<Item = &'a InMemory>) -> Builder {
    let specs = replicas.into_iter().map(InMemory::spec).enumerate();
    let changes: Vec<_> = specs.map(|(key, spec)| inserted(key, spec)).collect();
    HedgedChannel::builder()
        .discover(tokio_stream::iter(changes))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
}

/// Does what the request says: holds the original's answer for `delay_ms`, then gives `status`.
/// A further attempt is answered at once.
pub async fn tail(arrival: Arrival) -> Answer {
    match arrival.metadata.contains_key("grpc-previous-rpc-attempts") {
        true => arrival.ok(),
        false => uniform(arrival).await,
    }
}

/// As [`tail`], but all attempts alike.
pub async fn uniform(arrival: Arrival) -> Answer {
    tokio::time::sleep(Duration::from_millis(arrival.request.delay_ms.into())).await;
    match Code::from(arrival.request.status as i32) {
        Code::Ok => arrival.ok(),
        code => Err(Status::new(code, "as asked")),
    }
}

/// A call whose original takes this long, and then ends in `code`.
pub fn asked(delay_ms: u32, code: Code) -> Request<ProbeRequest> {
    Request::new(ProbeRequest {
        delay_ms,
        status: code as i32 as u32,
        ..request("asked")
    })
}

/// What was measured of `Probe`'s method.
pub fn method(measured: &Measured, name: &str) -> MethodMeasured {
    let method = measured.method(&format!("hedge.testing.v1.Probe/{name}"));
    method
        .cloned()
        .unwrap_or_else(|| panic!("{name} had no calls"))
}

pub fn get(channel: &HedgedChannel) -> MethodMeasured {
    method(&channel.measured(), "Get")
}
