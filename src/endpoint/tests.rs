//! The set against real sockets. No test measures time: each waits for the event that it is about, and
//! only hangs (up to a limit) when that does not come.

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
use tonic::transport::Endpoint as TonicEndpoint;
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
                Picked::Endpoint(endpoint, channel) => return (endpoint, channel),
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

#[tokio::test]
async fn ec9_a_dead_endpoint_is_not_picked_and_returns() {
    let live = Server::start().await;
    let dead = refused().await;
    let set = EndpointSet::list([spec(dead), live.spec()]);
    let (first, _) = picked(&set).await;
    assert_eq!(**first.name(), live.name());
    until(&set, || {
        endpoint(&set, &dead.to_string()).last_error().is_some()
    })
    .await;
    for _ in 0..1_000 {
        let (endpoint, _) = picked(&set).await;
        assert_eq!(**endpoint.name(), live.name());
    }
    assert!(!set.has_other_ready(&[first]));

    let revived = Server::start_at(dead).await;
    all_ready(&set).await;
    let tried = [endpoint(&set, &live.name())];
    assert!(set.has_other_ready(&tried));
    match set.pick(NOW, &tried, Purpose::Hedge) {
        Picked::Endpoint(endpoint, channel) => {
            assert_eq!(**endpoint.name(), revived.name());
            call(channel).await.unwrap();
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn fa18_a_listener_that_never_speaks_is_not_ready() {
    // The kernel accepts for it; no SETTINGS come.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (silent.local_addr().unwrap(), silent);
    let alone = EndpointSet::list([spec(silent.0)]);
    alone.ensure_started();
    // A connection to it is under way.
    silent.1.accept().await.unwrap();
    assert!(matches!(
        alone.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));

    let live = Server::start().await;
    let set = EndpointSet::list([spec(silent.0), live.spec()]);
    for _ in 0..100 {
        assert_eq!(**picked(&set).await.0.name(), live.name());
    }

    let limited = TonicEndpoint::from_shared(format!("http://{}", silent.0)).unwrap();
    let limited = limited.connect_timeout(Duration::from_millis(20));
    let set = EndpointSet::list([EndpointSpec::new(limited)]);
    let text = unavailable(&set).await;
    assert!(text.contains("no connection within 20ms"), "{text}");
}

#[tokio::test]
async fn all_endpoints_down_is_unavailable_with_the_reason() {
    let (a, b) = (refused().await, refused().await);
    let set = EndpointSet::list([spec(a), spec(b)]);
    let text = unavailable(&set).await;
    assert!(text.contains(&a.to_string()), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(text.ends_with("(and 1 more)"), "{text}");
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Hedge),
        Picked::None(Unavailable::NoOther)
    ));
}

#[tokio::test]
async fn a_lost_connection_is_noticed_without_a_call() {
    let server = Server::start().await;
    let address = server.address;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, channel) = picked(&set).await;
    call(channel).await.unwrap();
    endpoint.answered();
    server.stop().await;
    until(&set, || endpoint.channel().is_none()).await;
    let text = unavailable(&set).await;
    assert!(text.contains(&address.to_string()), "{text}");

    let _revived = Server::start_at(address).await;
    let (again, channel) = picked(&set).await;
    assert!(Arc::ptr_eq(&again, &endpoint));
    call(channel).await.unwrap();
}

#[tokio::test]
async fn calls_left_on_a_lost_connection_fail_at_once_as_never_sent() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, channel) = picked(&set).await;
    let address = server.address;
    server.stop().await;
    until(&set, || endpoint.channel().is_none()).await;
    for _ in 0..3 {
        let error = soon(call(channel.clone())).await.unwrap_err();
        let mut cause: &dyn std::error::Error = &error;
        while !cause.is::<tonic::ConnectError>() {
            cause = cause.source().expect("a connect error");
        }
    }
    // Not even a server that is back makes it dial again: against a black hole each call that is still
    // queued would wait for a time-out.
    let _revived = Server::start_at(address).await;
    soon(call(channel)).await.unwrap_err();
}

#[tokio::test]
async fn a_resolved_endpoint_dials_its_address_and_not_its_name() {
    let server = Server::start().await;
    let name = TonicEndpoint::from_static("http://nowhere.invalid:50051");
    let set = EndpointSet::list([EndpointSpec::resolved(name, server.address)]);
    let (_, channel) = picked(&set).await;
    let response = call(channel).await.unwrap();
    assert_eq!(
        response.headers()["seen-authority"],
        "nowhere.invalid:50051"
    );
}

#[tokio::test]
async fn an_answer_renews_the_ration_of_resets() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, _) = picked(&set).await;
    assert_eq!((0..20).filter(|_| endpoint.try_reset(NOW)).count(), 16);
    endpoint.answered();
    assert!(endpoint.try_reset(NOW));
}

/// The connection drains and closes after a GOAWAY; no call is lost, and each new one has a connection.
#[tokio::test]
async fn fa4_a_graceful_goaway_costs_no_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                let mut served = 0;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let response = Response::builder().header("grpc-status", "0");
                    let _gone = respond.send_response(response.body(()).unwrap(), true);
                    served += 1;
                    if served == 3 {
                        connection.graceful_shutdown();
                    }
                }
            });
        }
    });
    let set = EndpointSet::list([spec(address)]);
    for _ in 0..100 {
        let (endpoint, channel) = picked(&set).await;
        soon(call(channel)).await.unwrap();
        endpoint.answered();
    }
    server.abort();
}

#[tokio::test]
async fn fa19_a_server_that_hangs_up_is_not_connected_in_a_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hang_up = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            // Speaks HTTP/2 first, so that it counts as connected.
            let _shut = h2::server::handshake(socket).await;
        }
    });
    let set = EndpointSet::list([spec(address)]);
    set.ensure_started();
    until(&set, || {
        endpoint(&set, &address.to_string()).state() == EndpointState::Backoff
    })
    .await;
    hang_up.abort();
}

#[tokio::test]
async fn ec1_a_hedge_never_goes_where_the_call_has_been() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let set = EndpointSet::list(servers.iter().map(Server::spec));
    all_ready(&set).await;
    for _ in 0..10_000 {
        let (original, _) = picked(&set).await;
        let tried = [original];
        for purpose in [Purpose::Hedge, Purpose::Replacement, Purpose::Retry] {
            match set.pick(NOW, &tried, purpose) {
                Picked::Endpoint(other, _) => assert_ne!(other.name(), tried[0].name()),
                other => panic!("{other:?}"),
            }
        }
    }
    let all = set.snapshot();
    assert!(matches!(
        set.pick(NOW, &all, Purpose::Hedge),
        Picked::None(Unavailable::NoOther)
    ));
    assert!(matches!(
        set.pick(NOW, &all, Purpose::Retry),
        Picked::Endpoint(..)
    ));
}

#[tokio::test]
async fn a_hedge_prefers_another_locality() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let zones = ["a", "a", "b"];
    let specs = servers.iter().zip(zones).map(|(s, z)| s.spec().locality(z));
    let set = EndpointSet::list(specs);
    all_ready(&set).await;
    let tried = [endpoint(&set, &servers[0].name())];
    for _ in 0..200 {
        match set.pick(NOW, &tried, Purpose::Hedge) {
            Picked::Endpoint(other, _) => assert_eq!(other.locality().map(|z| &**z), Some("b")),
            other => panic!("{other:?}"),
        }
    }
    // With the other zone used up, the same zone serves.
    let tried = [
        endpoint(&set, &servers[0].name()),
        endpoint(&set, &servers[2].name()),
    ];
    match set.pick(NOW, &tried, Purpose::Hedge) {
        Picked::Endpoint(other, _) => assert_eq!(**other.name(), servers[1].name()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ec3_an_address_twice_in_a_list_counts_once() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec(), server.spec()]);
    assert_eq!(set.len(), 1);
}

#[tokio::test]
async fn ec4_a_removed_or_replaced_endpoint_finishes_its_attempts() {
    let (a, b) = (Server::start().await, Server::start().await);
    let (changes, set) = changing();
    changes.send(Ok(Change::Insert(1, a.spec()))).unwrap();
    let (endpoint, channel) = picked(&set).await;
    endpoint.load().started(NOW);

    changes.send(Ok(Change::Insert(1, b.spec()))).unwrap();
    until(&set, || **set.snapshot()[0].name() == b.name()).await;
    assert_eq!(set.len(), 1);
    let (replacement, _) = picked(&set).await;
    assert_eq!(replacement.load().in_flight(), 0);

    call(channel).await.unwrap();
    endpoint.load().finished(NOW, Duration::from_millis(1));
    assert_eq!(endpoint.load().in_flight(), 0);

    changes.send(Ok(Change::Remove(1))).unwrap();
    changes.send(Ok(Change::Remove(1))).unwrap();
    until(&set, || set.len() == 0).await;
}

#[tokio::test]
async fn ec8_an_empty_list_is_unavailable_and_recovers() {
    let server = Server::start().await;
    let (changes, set) = changing();
    set.ensure_started();
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    picked(&set).await;
    changes.send(Ok(Change::Remove(1))).unwrap();
    assert_eq!(unavailable(&set).await, "the channel has no endpoint");
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    picked(&set).await;

    let empty = EndpointSet::list([]);
    assert_eq!(unavailable(&empty).await, "the channel has no endpoint");
}

#[tokio::test]
async fn ec7_updates_are_read_without_calls() {
    let server = Server::start().await;
    let dead = refused().await;
    let (changes, set) = changing();
    set.ensure_started();
    for _ in 0..2_000 {
        changes.send(Ok(Change::Insert(1, spec(dead)))).unwrap();
    }
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    until(&set, || {
        set.len() == 1 && set.snapshot()[0].state() == EndpointState::Ready
    })
    .await;
    assert_eq!(**picked(&set).await.0.name(), server.name());
}

#[tokio::test]
async fn a_streams_error_leaves_the_set_and_its_end_too() {
    let server = Server::start().await;
    let (changes, receiver) = mpsc::unbounded_channel();
    let set = EndpointSet::stream(UnboundedReceiverStream::new(receiver));
    changes.send(Err("registry down")).unwrap();
    assert_eq!(
        unavailable(&set).await,
        "the channel has no endpoint: registry down"
    );
    changes
        .send(Ok(Change::Insert("a", server.spec())))
        .unwrap();
    picked(&set).await;
    changes.send(Err("registry down")).unwrap();
    drop(changes);
    for _ in 0..20 {
        tokio::task::yield_now().await;
        picked(&set).await;
    }
}

#[tokio::test]
async fn ec6_churn_leaves_no_task() {
    let server = Server::start().await;
    let dead = refused().await;
    let (changes, set) = changing();
    changes.send(Ok(Change::Insert(0, server.spec()))).unwrap();
    let (_, channel) = picked(&set).await;
    call(channel).await.unwrap();
    let base = alive_tasks();
    for key in 1..=10_000 {
        let spec = if key % 20 == 0 {
            server.spec()
        } else {
            spec(dead)
        };
        changes.send(Ok(Change::Insert(key, spec))).unwrap();
        if key > 10 {
            changes.send(Ok(Change::Remove(key - 10))).unwrap();
        }
        if key % 50 == 0 {
            picked(&set).await;
            tokio::task::yield_now().await;
        }
    }
    for key in 9_991..=10_000 {
        changes.send(Ok(Change::Remove(key))).unwrap();
    }
    until(&set, || set.len() == 1).await;
    tasks_fall_to(base).await;
}

#[tokio::test]
async fn ml3_dropping_the_set_ends_all_tasks() {
    let server = Server::start().await;
    let dead = refused().await;
    let base = alive_tasks();
    let set = EndpointSet::list([server.spec(), spec(dead)]);
    picked(&set).await;
    assert!(alive_tasks() > base);
    let weak = Arc::downgrade(&set.snapshot()[0]);
    drop(set);
    tasks_fall_to(base).await;
    assert!(weak.upgrade().is_none());
}

#[tokio::test]
async fn a_name_becomes_its_addresses() {
    let server = Server::start().await;
    let name = format!("http://localhost:{}", server.address.port());
    let name = TonicEndpoint::from_shared(name).unwrap();
    let set = EndpointSet::dns(name, RESOLVE_INTERVAL).unwrap();
    let (endpoint, channel) = picked(&set).await;
    assert_eq!(**endpoint.name(), server.name());
    assert_eq!(&**endpoint.server_address(), "localhost");
    assert_eq!(endpoint.server_port(), Some(server.address.port()));
    let response = call(channel).await.unwrap();
    let authority = format!("localhost:{}", server.address.port());
    assert_eq!(response.headers()["seen-authority"], authority);
}

#[tokio::test]
async fn a_name_without_addresses_is_named() {
    let name = TonicEndpoint::from_static("http://nowhere.invalid:50051");
    let set = EndpointSet::dns(name, RESOLVE_INTERVAL).unwrap();
    let text = unavailable(&set).await;
    assert!(text.contains("cannot resolve nowhere.invalid"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_that_a_call_could_not_reach_is_connected_again() {
    let path = std::env::temp_dir().join(format!("tonic-hedge-{}.sock", std::process::id()));
    let _none = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while connection.accept().await.is_some() {}
            });
        }
    });
    let uds = TonicEndpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let set = EndpointSet::list([uds.into()]);
    let (endpoint, _) = picked(&set).await;
    assert_eq!(&**endpoint.name(), "unix#0");
    set.report_unreachable(&endpoint, "broken pipe");
    assert!(endpoint.channel().is_none());
    picked(&set).await;
    server.abort();
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_report_about_an_earlier_connection_leaves_the_present_one() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, _) = picked(&set).await;
    set.report_unreachable(&endpoint, "connection refused");
    assert!(endpoint.channel().is_some());
}

#[tokio::test]
async fn a_ready_made_channel_is_taken_as_connected() {
    let server = Server::start().await;
    let lazy = TonicEndpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let made = EndpointSpec::channel("mine", lazy.connect_lazy());
    let set = EndpointSet::list([made, spec(refused().await)]);
    let (endpoint, channel) = picked(&set).await;
    assert_eq!(&**endpoint.name(), "mine");
    assert_eq!(endpoint.state(), EndpointState::Ready);
    call(channel).await.unwrap();
    set.report_unreachable(&endpoint, "refused");
    assert_eq!(endpoint.state(), EndpointState::Ready);
}

#[tokio::test]
async fn an_opaque_channel_takes_every_attempt() {
    let server = Server::start().await;
    let channel = TonicEndpoint::from_shared(format!("http://{}", server.address))
        .unwrap()
        .connect_lazy();
    let set = EndpointSet::opaque(channel);
    assert!(set.is_opaque());
    let (endpoint, channel) = picked(&set).await;
    call(channel).await.unwrap();
    let tried = [endpoint];
    assert!(set.has_other_ready(&tried));
    for purpose in [Purpose::Hedge, Purpose::Replacement, Purpose::Retry] {
        assert!(matches!(
            set.pick(NOW, &tried, purpose),
            Picked::Endpoint(..)
        ));
    }
}

#[test]
fn building_needs_no_runtime_and_a_new_one_takes_over() {
    let set = EndpointSet::list([spec("127.0.0.1:1".parse().unwrap())]);
    set.ensure_started();
    assert_eq!(set.snapshot()[0].state(), EndpointState::Idle);
    drop(set);

    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (server_runtime, first) = (
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
        runtime(),
    );
    let server = server_runtime.block_on(Server::start());
    let set = EndpointSet::list([server.spec()]);
    let (_, channel) = first.block_on(picked(&set));
    first.block_on(call(channel)).unwrap();
    drop(first);
    let (_, channel) = runtime().block_on(async {
        let picked = picked(&set).await;
        call(picked.1.clone()).await.unwrap();
        picked
    });
    drop(channel);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_before_the_wait_is_not_missed() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let changed = set.changed();
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));
    all_ready(&set).await;
    soon(changed).await;
}
