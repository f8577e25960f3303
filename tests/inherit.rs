//! A hedge that passes through servers: its mark, and the calls that it causes.

#![allow(clippy::unwrap_used)]

mod support;

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use support::{
    Answer, Arrival, Fleet, Latch, ProbeClient, ProbeRequest, Seen, connected, eventually, probe,
    request, scripted, until_measured,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status, metadata::MetadataMap, transport::Server};
use tonic_hedge::{
    BudgetPolicy, Hedge, HedgedChannel, InheritLayer, Inherited, MethodMeasured, RequestExt,
    ResponseExt,
};

const GET: &str = "hedge.testing.v1.Probe/Get";

fn hedge() -> Hedge {
    Hedge::after(Duration::from_millis(20))
}

/// A real server that answers a call by calling on over a channel of its own.
struct Gateway {
    addr: SocketAddr,
    seen: Arc<Seen>,
    channel: HedgedChannel,
    server: JoinHandle<()>,
}

impl Gateway {
    /// `ask` makes the request that goes on of the one that came.
    async fn start(
        channel: HedgedChannel,
        layer: InheritLayer,
        ask: fn(Arrival) -> Request<ProbeRequest>,
    ) -> Self {
        let seen = Arc::new(Seen::default());
        let to = channel.clone();
        let service = scripted("gateway", Arc::clone(&seen), move |arrival| {
            let mut client = ProbeClient::new(to.clone());
            async move { client.get(ask(arrival)).await }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Server::builder()
            .layer(layer)
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        Self {
            addr,
            seen,
            channel,
            server: tokio::spawn(async move { server.await.unwrap() }),
        }
    }

    /// Two of them, each with a channel over all of `to`.
    async fn pair(to: &[SocketAddr]) -> [Self; 2] {
        let start = async || Self::start(over(to).await, InheritLayer::new(), body).await;
        [start().await, start().await]
    }

    /// One before a fleet.
    async fn before(
        fleet: &Fleet,
        layer: InheritLayer,
        ask: fn(Arrival) -> Request<ProbeRequest>,
    ) -> Self {
        let channel = fleet.channel(fleet.builder()).await;
        Self::start(channel, layer, ask).await
    }

    /// A call by a client that hedges nothing, with such metadata.
    fn call(&self, metadata: &[(&'static str, &'static str)]) -> JoinHandle<Answer> {
        let uri = format!("http://{}", self.addr);
        let request = with(metadata);
        tokio::spawn(async move {
            let mut client = ProbeClient::connect(uri).await.unwrap();
            client.get(request).await
        })
    }

    fn get(&self) -> MethodMeasured {
        self.channel.measured().method(GET).unwrap().clone()
    }

    /// Calls of its own that were kept from hedging.
    fn held(&self) -> u64 {
        let measured = self.channel.measured();
        let get = measured.method(GET).into_iter();
        let mut held = get.flat_map(|get| &get.suppressed);
        held.find(|it| it.0 == "inherited").map_or(0, |it| it.1)
    }

    /// Waits until a call of its own is kept from hedging.
    async fn until_held(&self) {
        until_measured(&self.channel, "held as part of a hedge", |measured| {
            let get = measured.method(GET);
            get.is_some_and(|get| get.suppressed == [("inherited", 1)])
        })
        .await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn over(to: &[SocketAddr]) -> HedgedChannel {
    let channel = HedgedChannel::builder()
        .endpoints(to.iter().map(|addr| format!("http://{addr}")))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(hedge())
        .budget(BudgetPolicy::default().initial(100.0))
        .build()
        .unwrap();
    connected(&channel, to.len()).await;
    channel
}

fn with(metadata: &[(&'static str, &'static str)]) -> Request<ProbeRequest> {
    let mut request = Request::new(request("call"));
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    request
}

fn body(arrival: Arrival) -> Request<ProbeRequest> {
    Request::new(arrival.request)
}

fn body_with_a_policy(arrival: Arrival) -> Request<ProbeRequest> {
    body(arrival).hedge(hedge())
}

fn all_metadata(arrival: Arrival) -> Request<ProbeRequest> {
    Request::from_parts(arrival.metadata, Default::default(), arrival.request)
}

/// Replicas that hold their answers.
async fn held() -> (Fleet, Latch) {
    let latch = Latch::closed();
    let script = {
        let latch = latch.clone();
        move |arrival: Arrival| {
            let latch = latch.clone();
            async move {
                latch.passed().await;
                arrival.ok()
            }
        }
    };
    (Fleet::start(2, script).await, latch)
}

fn is_marked(metadata: &MetadataMap) -> bool {
    metadata.get("x-hedge").is_some_and(|mark| mark == "1")
}

/// What arrived: whether it was marked, and the attempts before it.
fn arrived<'a>(seen: impl IntoIterator<Item = &'a Arc<Seen>>) -> Vec<(bool, u32)> {
    let arrivals = seen.into_iter().flat_map(|seen| seen.of("call"));
    let mut arrived: Vec<_> = arrivals
        .map(|arrival| (is_marked(&arrival.metadata), arrival.previous()))
        .collect();
    arrived.sort_unstable();
    arrived
}

/// Each hop hedges what comes from the original, and passes on what comes from a hedge: where
/// hedging again at each hop makes two, four and eight attempts, these are two, three and four.
#[tokio::test]
async fn a_hedge_is_not_hedged_again_at_the_next_hops() {
    let (replicas, latch) = held().await;
    let addrs: Vec<_> = replicas.replicas.iter().map(|it| it.addr).collect();
    let second = Gateway::pair(&addrs).await;
    let first = Gateway::pair(&second.each_ref().map(|it| it.addr)).await;
    let channel = over(&first.each_ref().map(|it| it.addr)).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("call")).await });
    // A call that is never hedged says so at its start.
    for (hop, expected) in [(&first, 1), (&second, 2)] {
        let held = || hop.iter().map(Gateway::held).sum::<u64>();
        eventually("calls of hedges are held", || held() == expected).await;
    }
    let seen = |seen: &Seen| seen.of("call").len() == 4;
    replicas.seen.until("four attempts", seen).await;
    latch.open();
    let response = call.await.unwrap().unwrap();
    assert!(response.hedged());

    let at = |hop: &[Gateway; 2]| arrived(hop.each_ref().map(|it| &it.seen));
    // The original, and its hedge.
    assert_eq!(at(&first), [(false, 0), (true, 1)]);
    // Of the original its two attempts, of the hedge one, whose mark is all that says so.
    assert_eq!(at(&second), [(false, 0), (true, 0), (true, 1)]);
    let last = [(false, 0), (true, 0), (true, 0), (true, 1)];
    assert_eq!(arrived([&replicas.seen]), last);
    for hop in [&first, &second] {
        let hedges: u64 = hop.iter().map(|it| it.get().hedges).sum();
        assert_eq!(hedges, 1, "of the original's call alone");
    }
}

/// Another client's hedge has no mark of ours. Its calls carry it from here on.
#[tokio::test]
async fn grpc_previous_rpc_attempts_alone_suffices() {
    let (replicas, latch) = held().await;
    let gateway = Gateway::before(&replicas, InheritLayer::new(), body).await;
    let call = gateway.call(&[("grpc-previous-rpc-attempts", "1")]);
    gateway.until_held().await;
    latch.open();
    call.await.unwrap().unwrap();
    assert_eq!(gateway.get().hedges, 0);
    assert_eq!(arrived([&replicas.seen]), [(true, 0)]);
}

/// A policy that the request brings is meant for this very call.
#[tokio::test]
async fn the_requests_own_policy_beats_the_mark() {
    let (replicas, latch) = held().await;
    let gateway = Gateway::before(&replicas, InheritLayer::new(), body_with_a_policy).await;
    let call = gateway.call(&[("x-hedge", "1")]);
    let seen = |seen: &Seen| seen.of("call").len() == 2;
    replicas.seen.until("a hedge", seen).await;
    latch.open();
    call.await.unwrap().unwrap();
    assert!(gateway.get().suppressed.is_empty());
    assert_eq!(arrived([&replicas.seen]), [(true, 0), (true, 1)]);
}

/// A server that is told to hedges again. What comes after it is told all the same.
#[tokio::test]
async fn a_server_that_is_told_to_hedges_again() {
    let (replicas, latch) = held().await;
    let layer = InheritLayer::new().hedge_again(true);
    let gateway = Gateway::before(&replicas, layer, all_metadata).await;
    let call = gateway.call(&[("x-hedge", "1")]);
    let seen = |seen: &Seen| seen.of("call").len() == 2;
    replicas.seen.until("a hedge", seen).await;
    latch.open();
    call.await.unwrap().unwrap();
    assert_eq!(arrived([&replicas.seen]), [(true, 0), (true, 1)]);
}

/// A handler that forwards its metadata needs no layer. Any other value is the caller's own.
#[tokio::test]
async fn a_forwarded_mark_counts() {
    let (replicas, latch) = held().await;
    let channel = replicas.channel(replicas.builder()).await;
    let call = |value| {
        let mut client = ProbeClient::new(channel.clone());
        tokio::spawn(async move { client.get(with(&[("x-hedge", value)])).await })
    };
    let marked = call("1");
    until_measured(&channel, "held as part of a hedge", |measured| {
        let get = measured.method(GET);
        get.is_some_and(|get| get.suppressed == [("inherited", 1)])
    })
    .await;
    let other = call("maybe");
    let seen = |seen: &Seen| seen.of("call").len() == 3;
    replicas.seen.until("a hedge of the other", seen).await;
    latch.open();
    assert!(!marked.await.unwrap().unwrap().hedged());
    assert!(other.await.unwrap().unwrap().hedged());
    let arrived = arrived([&replicas.seen]);
    assert_eq!(arrived, [(false, 0), (true, 0), (true, 1)]);
}

/// What a hedge causes is retried as any other: that is no second copy.
#[tokio::test]
async fn a_hedges_calls_are_retried() {
    let script = |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::new(Code::Unavailable, "once")),
            _ => arrival.ok(),
        }
    };
    let replicas = Fleet::start(2, script).await;
    let gateway = Gateway::before(&replicas, InheritLayer::new(), body).await;
    gateway.call(&[("x-hedge", "1")]).await.unwrap().unwrap();
    assert_eq!((gateway.get().retries, gateway.get().hedges), (1, 0));
    assert_eq!(arrived([&replicas.seen]), [(true, 0), (true, 1)]);
}

/// A retry is no hedge: it is not marked. gRPC's own count says that it is a further attempt.
#[tokio::test]
async fn a_retry_is_not_marked() {
    let script = |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::new(Code::Unavailable, "once")),
            _ => arrival.ok(),
        }
    };
    let replicas = Fleet::start(2, script).await;
    let channel = replicas.channel(replicas.builder()).await;
    let mut client = ProbeClient::new(channel);
    client.get(request("call")).await.unwrap();
    assert_eq!(arrived([&replicas.seen]), [(false, 0), (false, 1)]);
}

/// A task that a handler spawns takes the scope along where it is told to.
#[tokio::test]
async fn a_spawned_task_takes_it_along() {
    async fn is_hedge(work: impl Future<Output = bool> + Send + 'static) -> bool {
        tokio::spawn(work).await.unwrap()
    }
    let seen = Arc::new(Seen::default());
    let service = scripted("spawns", Arc::clone(&seen), |arrival: Arrival| async move {
        let work = async { Inherited::current().is_hedge() };
        assert!(!is_hedge(work).await);
        let work = async { Inherited::current().is_hedge() };
        assert!(is_hedge(Inherited::current().scope(work)).await);
        arrival.ok()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder()
        .layer(InheritLayer::new())
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(server);
    let mut client = ProbeClient::connect(uri).await.unwrap();
    client.get(with(&[("x-hedge", "1")])).await.unwrap();
    server.abort();
}
