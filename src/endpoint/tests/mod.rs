//! The set against real sockets. No test measures time: each waits for the event that it is about, and
//! only hangs (up to a limit) when that does not come.

mod choice;
mod churn;
mod connecting;
mod lines;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint as TonicEndpoint};
use tower::{ServiceExt, discover::Change};

use super::*;

const NOW: Duration = Duration::ZERO;

/// Answers every request with an empty OK and the authority that it saw. Dropping it closes the port and all connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                open.spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        let authority = request.uri().authority().unwrap().as_str();
                        let response = Response::builder()
                            .header("grpc-status", "0")
                            .header("seen-authority", authority);
                        let _gone = respond.send_response(response.body(()).unwrap(), true);
                    }
                });
            }
        });
        Self {
            address,
            connections,
            task,
        }
    }

    fn spec(&self) -> EndpointSpec {
        spec(self.address)
    }

    fn name(&self) -> String {
        self.address.to_string()
    }

    async fn stop(mut self) {
        self.task.abort();
        let _aborted = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn spec(address: SocketAddr) -> EndpointSpec {
    EndpointSpec::new(TonicEndpoint::from_shared(format!("http://{address}")).unwrap())
}

/// A port that nobody listens on.
async fn refused() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

async fn soon<F: Future>(event: F) -> F::Output {
    timeout(Duration::from_secs(60), event)
        .await
        .expect("the event did not come")
}

/// Waits until `done`, looking whenever the set changes and now and then.
async fn until(set: &EndpointSet, mut done: impl FnMut() -> bool) {
    soon(async {
        loop {
            let changed = set.changed();
            if done() {
                return;
            }
            let _looked = timeout(Duration::from_millis(5), changed).await;
        }
    })
    .await;
}

async fn picked(set: &EndpointSet) -> (Arc<Endpoint>, Channel) {
    set.ensure_started();
    soon(async {
        loop {
            let changed = set.changed();
            match set.pick(NOW, &[], Purpose::Original) {
                Picked::Endpoint(endpoint, line) => return (endpoint, line.channel),
                Picked::Wait => changed.await,
                Picked::None(_) => changed.await,
            }
        }
    })
    .await
}

/// Waits until all endpoints have failed or none is there.
async fn unavailable(set: &EndpointSet) -> String {
    set.ensure_started();
    soon(async {
        loop {
            let changed = set.changed();
            match set.pick(NOW, &[], Purpose::Original) {
                Picked::None(unavailable) => return unavailable.to_string(),
                _ => changed.await,
            }
        }
    })
    .await
}

fn endpoint(set: &EndpointSet, name: &str) -> Arc<Endpoint> {
    let all = set.snapshot();
    let found = all.iter().find(|endpoint| &**endpoint.name() == name);
    Arc::clone(found.expect(name))
}

async fn all_ready(set: &EndpointSet) {
    set.ensure_started();
    until(set, || {
        let all = set.snapshot();
        !all.is_empty() && all.iter().all(|e| e.state() == EndpointState::Ready)
    })
    .await;
}

async fn call(channel: Channel) -> Result<Response<tonic::body::Body>, tonic::transport::Error> {
    let request = Request::post("/a.B/C").body(tonic::body::Body::empty());
    channel.oneshot(request.unwrap()).await
}

type Changes = mpsc::UnboundedSender<Result<Change<u32, EndpointSpec>, Infallible>>;

fn changing() -> (Changes, EndpointSet) {
    let (changes, receiver) = mpsc::unbounded_channel();
    let set = EndpointSet::stream(UnboundedReceiverStream::new(receiver));
    (changes, set)
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

async fn tasks_fall_to(base: usize) {
    soon(async {
        while alive_tasks() > base {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
