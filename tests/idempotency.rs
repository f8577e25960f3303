//! Case 12: what is not declared idempotent reaches servers at most once, whatever happens.

#![allow(clippy::unwrap_used)]

mod support;

use std::{collections::HashMap, sync::Arc, time::Duration};

use support::{
    Arrival, Fleet, ProbeClient, ProbeReply, ProbeRequest, Replica, connected, probe, proxy::Proxy,
    request,
};
use tonic::{Request, Status, client::Grpc};
use tonic_hedge::{Budget, BudgetPolicy, Builder, Hedge, HedgedChannel, Retry};

fn rich() -> Budget {
    let policy = BudgetPolicy::default()
        .ratio(1.0)
        .capacity(1e6)
        .initial(1e6);
    Budget::new(&policy).unwrap()
}

/// The eagerest channel there is.
fn eager(builder: Builder) -> Builder {
    builder
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately().max_concurrent(3))
        .retry(Retry::default().base(Duration::ZERO))
        .max_attempts(16)
        .shared_budget(rich())
        .without_breaker()
}

/// Case 12: stalled servers. Methods that are not declared idempotent, or vetoed, or that stream,
/// or that no descriptor knows, arrive once; declared ones are hedged.
#[tokio::test]
async fn case_12_stalled() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        arrival.ok()
    })
    .await;
    let uris = || HedgedChannel::builder().endpoints(fleet.replicas.iter().map(Replica::uri));
    let channel = fleet.channel(eager(uris())).await;
    let mut client = ProbeClient::new(channel);
    client.put(request("put")).await.unwrap();
    client.vetoed(request("vetoed")).await.unwrap();
    client.watch(request("watch")).await.unwrap();
    let upload = tokio_stream::iter([request("upload")]);
    client.upload(upload).await.unwrap();
    let chat = tokio_stream::iter([request("chat")]);
    client
        .chat(chat)
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap();
    for id in ["put", "vetoed", "watch", "upload", "chat"] {
        assert_eq!(fleet.seen.of(id).len(), 1, "{id}");
    }
    client.get(request("get")).await.unwrap();
    client.keyed(request("keyed")).await.unwrap();
    for id in ["get", "keyed"] {
        assert!(fleet.seen.of(id).len() >= 2, "{id}");
    }

    // Without a descriptor set nothing is known, so nothing is repeated.
    let bare = uris()
        .hedge(Hedge::immediately())
        .shared_budget(rich())
        .max_attempts(16);
    let mut client = ProbeClient::new(fleet.channel(bare).await);
    client.get(request("bare")).await.unwrap();
    let marked = tonic_hedge::RequestExt::mark_repeatable(Request::new(request("marked")));
    client.get(marked).await.unwrap();
    for id in ["bare", "marked"] {
        assert_eq!(fleet.seen.of(id).len(), 1, "{id}");
    }
}

/// Case 12: failures that a declared method is retried after.
#[tokio::test]
async fn case_12_failing() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.request.status {
            8 => {
                let mut status = Status::resource_exhausted("full");
                let value = "0".parse().unwrap();
                status
                    .metadata_mut()
                    .insert("grpc-retry-pushback-ms", value);
                Err(status)
            }
            code => Err(Status::new(tonic::Code::from(code as i32), "scripted")),
        }
    })
    .await;
    let uris = || HedgedChannel::builder().endpoints(fleet.replicas.iter().map(Replica::uri));
    let channel = fleet.channel(eager(uris())).await;
    let mut client = ProbeClient::new(channel);
    for status in 1..=16 {
        let message = |method: &str| ProbeRequest {
            status,
            ..request(&format!("{method}-{status}"))
        };
        client.put(message("put")).await.unwrap_err();
        client.vetoed(message("vetoed")).await.unwrap_err();
        client.watch(message("watch")).await.unwrap_err();
        let upload = tokio_stream::iter([message("upload")]);
        client.upload(upload).await.unwrap_err();
        for method in ["put", "vetoed", "watch", "upload"] {
            let id = format!("{method}-{status}");
            assert_eq!(fleet.seen.of(&id).len(), 1, "{id}");
        }
    }
}

/// An unknown path is not repeated either, however it fails.
#[tokio::test]
async fn case_12_unknown_path() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move { arrival.ok() }).await;
    let uris = HedgedChannel::builder().endpoints(fleet.replicas.iter().map(Replica::uri));
    let channel = fleet.channel(eager(uris)).await;
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/hedge.testing.v1.Probe/Got");
    let codec = tonic_prost::ProstCodec::<ProbeRequest, ProbeReply>::default();
    let marked = tonic_hedge::RequestExt::mark_repeatable(Request::new(request("1")));
    grpc.unary(marked, path, codec).await.unwrap_err();
    let methods = channel.measured().methods;
    let other = methods
        .iter()
        .find(|method| method.method == "other")
        .unwrap();
    assert_eq!(other.attempts, other.calls);
}

/// Case 12: ten thousand calls of a method that is not idempotent, while connections are cut at
/// random between client and servers: each call reaches servers at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_never_twice_under_cuts() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move { arrival.ok() }).await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut proxies = Vec::new();
    for (index, replica) in fleet.replicas.iter().enumerate() {
        proxies.push(Proxy::cutting(replica.addr, 0.02, seed ^ index as u64).await);
    }
    let uris = HedgedChannel::builder().endpoints(proxies.iter().map(Proxy::uri));
    let channel = eager(uris).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            let (mut answered, mut call) = (Vec::new(), 0);
            while call < 500 {
                let id = format!("{task}-{call}");
                let mut message = Request::new(request(&id));
                message.set_timeout(support::PATIENCE);
                match client.put(message).await {
                    Ok(response) => {
                        assert_eq!(response.get_ref().id, id);
                        answered.push(id);
                    }
                    // While none is connected a call fails at once: let one come back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
                call += 1;
            }
            answered
        });
    }
    let answered: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let mut counts = HashMap::new();
    for arrival in fleet.seen.arrivals() {
        *counts.entry(arrival.request.id).or_insert(0) += 1;
    }
    for (id, count) in &counts {
        assert_eq!(
            *count, 1,
            "call {id} was processed {count} times (seed {seed})"
        );
    }
    for id in &answered {
        assert_eq!(counts.get(id), Some(&1), "call {id} (seed {seed})");
    }
    let cuts: usize = proxies.iter().map(Proxy::cuts).sum();
    println!(
        "{} answered, {} arrived, {cuts} cuts",
        answered.len(),
        counts.len()
    );
    assert!(cuts > 40, "{cuts} cuts (seed {seed})");
    assert!(
        answered.len() > 1_000,
        "{} answered (seed {seed})",
        answered.len()
    );
}

/// The same cuts, an idempotent method: callers see next to nothing of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_are_hidden_from_idempotent_calls() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move { arrival.ok() }).await;
    let steady = Replica::fast("steady").await;
    let mut proxies = Vec::new();
    for (index, replica) in fleet.replicas.iter().enumerate() {
        proxies.push(Proxy::cutting(replica.addr, 0.005, index as u64).await);
    }
    let uris = proxies.iter().map(Proxy::uri).chain([steady.uri()]);
    let builder = HedgedChannel::builder().endpoints(uris);
    let channel = eager(builder).hedge(Hedge::on_failure()).build().unwrap();
    connected(&channel, 4).await;
    let channel = Arc::new(channel);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..10 {
        let mut client = ProbeClient::new((*channel).clone());
        tasks.spawn(async move {
            for call in 0..200 {
                let id = format!("{task}-{call}");
                let response = client.get(request(&id)).await.unwrap();
                assert_eq!(response.get_ref().id, id);
            }
        });
    }
    tasks.join_all().await;
}
