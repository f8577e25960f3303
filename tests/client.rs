//! The generated client, unchanged: interceptors, origins, per-request settings, statuses that
//! pass through whole, the call log.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use support::{
    Answer, Arrival, Fleet, ProbeClient, ProbeRequest, Replica, connected, probe, request, wire,
};
use tonic::{
    Code, Request, Status,
    metadata::{MetadataMap, MetadataValue},
    transport::Endpoint,
};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, CallLog, Criticality, Hedge, HedgedChannel, RequestExt as _,
    ResponseExt, Retry,
};

const NEVER: Duration = Duration::from_secs(3600);

async fn fast(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move { arrival.ok() }).await
}

/// Answers only hedges.
async fn raced(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

/// Long enough for several thresholds, then OK.
async fn slow(count: u8) -> Fleet {
    Fleet::start(count, |arrival: Arrival| async move {
        tokio::time::sleep(Duration::from_millis(80)).await;
        arrival.ok()
    })
    .await
}

/// An interceptor runs once per call; what it adds reaches every attempt.
#[tokio::test]
async fn interceptor_runs_once_per_call() {
    let fleet = raced(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let mut client = ProbeClient::with_interceptor(channel, move |mut request: Request<()>| {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        let method = request.extensions().get::<tonic::GrpcMethod<'static>>();
        assert_eq!(method.unwrap().method(), "Get");
        let token = format!("Bearer {run}").parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        Ok(request)
    });
    for call in 0..3 {
        let id = call.to_string();
        let response = client.get(request(&id)).await.unwrap();
        assert!(response.call_log().unwrap().hedge_won());
        let attempts = fleet.seen.of(&id);
        assert_eq!(attempts.len(), 2);
        for attempt in attempts {
            let token = attempt.metadata.get("authorization").unwrap();
            assert_eq!(token, &format!("Bearer {call}"));
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

/// An interceptor's refusal sends nothing.
#[tokio::test]
async fn interceptor_refuses() {
    let fleet = fast(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::with_interceptor(channel, |_: Request<()>| {
        Err(Status::unauthenticated("no token"))
    });
    let status = client.get(request("1")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(fleet.seen.calls(), 0);
}

/// An interceptor can set a whole client's terms.
#[tokio::test]
async fn interceptor_sets_terms() {
    let fleet = slow(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client =
        ProbeClient::with_interceptor(
            channel,
            |request: Request<()>| Ok(request.without_hedging()),
        );
    let response = client.get(request("1")).await.unwrap();
    assert!(!response.hedged());
}

/// A client with an origin: its path's prefix is sent, and the method is found all the same.
#[tokio::test]
async fn origin_with_a_prefix() {
    let replica = raced(2).await;
    let channel = replica.channel(replica.builder()).await;
    // The prefix is a proxy's business; the server itself does not know it.
    let origin = "http://search.test/prefix".parse().unwrap();
    let mut client = ProbeClient::with_origin(channel.clone(), origin);
    let status = client.get(request("1")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let measured = channel.measured();
    let get = |m: &&tonic_hedge::MethodMeasured| m.method == "hedge.testing.v1.Probe/Get";
    assert_eq!(measured.methods.iter().find(get).unwrap().calls, 1);

    let origin = "http://search.test".parse().unwrap();
    let mut client = ProbeClient::with_origin(channel, origin);
    let response = client.get(request("2")).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
    for attempt in replica.seen.of("2") {
        let authority = attempt.metadata.get(wire::AUTHORITY).unwrap();
        assert!(authority.to_str().unwrap().starts_with("127.0.0.1:"));
    }
}

/// `mark_repeatable` makes a method without a level hedgeable, for that call.
#[tokio::test]
async fn mark_repeatable() {
    let fleet = raced(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel);
    let response = client
        .put(Request::new(request("1")).mark_repeatable())
        .await;
    assert!(response.unwrap().call_log().unwrap().hedge_won());
    assert_eq!(fleet.seen.of("1").len(), 2);
    let plain = tokio::spawn(async move { client.put(request("2")).await });
    let arrived = |seen: &support::Seen| seen.of("2").len() == 1;
    fleet.seen.until("the original arrives", arrived).await;
    // Several thresholds later it is still alone.
    tokio::time::sleep(Duration::from_millis(100)).await;
    plain.abort();
    assert_eq!(fleet.seen.of("2").len(), 1);
}

/// ... and retryable.
#[tokio::test]
async fn mark_repeatable_is_retried() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    })
    .await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let marked = Request::new(request("1")).mark_repeatable();
    assert_eq!(
        client
            .put(marked)
            .await
            .unwrap()
            .get_ref()
            .previous_attempts,
        1
    );
    let status = client.put(request("2")).await.unwrap_err();
    assert_eq!(status.message(), "down");
    assert_eq!(fleet.seen.of("2").len(), 1);
}

/// `without_hedging` and a sheddable criticality keep one call from being hedged.
#[tokio::test]
async fn without_hedging_and_sheddable() {
    let fleet = slow(2).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let off = Request::new(request("off")).without_hedging();
    assert!(!client.get(off).await.unwrap().hedged());
    let shed = Request::new(request("shed")).criticality(Criticality::Sheddable);
    assert!(!client.get(shed).await.unwrap().hedged());
    let critical = Request::new(request("critical")).criticality(Criticality::Critical);
    assert!(client.get(critical).await.unwrap().hedged());
    let get = channel.measured().methods.remove(0);
    let expected = [("hedge_configured", 1), ("not_sheddable", 1)];
    assert_eq!(get.suppressed, expected);
}

/// A request's own policy beats the channel's.
#[tokio::test]
async fn policy_of_one_request() {
    let fleet = slow(3).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel);
    let own = Hedge::immediately().max_concurrent(3);
    let response = client.get(Request::new(request("own")).hedge(own)).await;
    assert_eq!(response.unwrap().call_log().unwrap().attempts().len(), 3);
    // It does not make a call repeatable.
    let own = Request::new(request("put")).hedge(Hedge::immediately());
    assert!(!client.put(own).await.unwrap().hedged());
    assert_eq!(fleet.seen.of("put").len(), 1);

    let invalid = Request::new(request("invalid")).hedge(Hedge::at(1.2));
    let status = client.get(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "Hedge.quantile: 1.2 is not in [0.5, 1)");
    assert_eq!(fleet.seen.of("invalid").len(), 0);
}

/// The probe's methods behave as their .proto says.
#[tokio::test]
async fn the_protos_word() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "slow" => tokio::time::sleep(Duration::from_millis(80)).await,
            "unavailable" if arrival.previous() == 0 => return Err(Status::unavailable("down")),
            "internal" if arrival.previous() == 0 => return Err(Status::internal("down")),
            "always" => return Err(Status::internal("down")),
            _ => {}
        }
        arrival.ok()
    })
    .await;
    let retry = Retry::default().base(Duration::ZERO);
    let builder = fleet.builder().retry(retry).without_breaker();
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    // By level: hedged and retried.
    assert!(client.get(request("slow")).await.unwrap().hedged());
    assert!(client.keyed(request("slow")).await.unwrap().hedged());
    client.keyed(request("unavailable")).await.unwrap();
    // The veto beats the level.
    assert!(!client.vetoed(request("slow")).await.unwrap().hedged());
    client.vetoed(request("unavailable")).await.unwrap_err();
    // OFF: retried, not hedged.
    assert!(!client.off(request("slow")).await.unwrap().hedged());
    let log = client.off(request("unavailable")).await.unwrap();
    let log = log.call_log().unwrap();
    assert_eq!(log.attempts()[1].kind(), AttemptKind::Retry);
    // Tuned: its own retryable codes, two attempts, a quantile (so no hedge without samples).
    client.tuned(request("internal")).await.unwrap();
    client.get(request("always")).await.unwrap_err();
    assert!(!client.tuned(request("slow")).await.unwrap().hedged());
}

/// Tuned: its own quantile and floor are followed, once there are samples.
#[tokio::test]
async fn the_protos_own_quantile() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.request.id == "slow" && arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let builder = fleet.builder().hedge(Hedge::at(0.99));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..20 {
        client.tuned(request("fast")).await.unwrap();
    }
    let tuned = channel.measured().methods.remove(0);
    assert_eq!(tuned.method, "hedge.testing.v1.Probe/Tuned");
    assert!(tuned.threshold.unwrap() >= Duration::from_millis(5));
    let response = client.tuned(request("slow")).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
}

/// The log: in the extensions of a response, on the source of a status, in one line.
#[tokio::test]
async fn call_log_in_one_line() {
    let fleet = raced(2).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    let line = log.to_string();
    let endpoints: Vec<_> = log.attempts().iter().map(|a| a.endpoint()).collect();
    assert!(line.starts_with("2 attempts in "), "{line}");
    assert!(
        line.contains(&format!("original {} discarded (", endpoints[0])),
        "{line}"
    );
    assert!(
        line.contains(&format!("hedge {} OK (", endpoints[1])),
        "{line}"
    );
    assert!(line.contains("started at "), "{line}");
    assert!(!line.contains('\n'));

    let failing = Replica::failing("a", Status::not_found("page 7")).await;
    let channel = HedgedChannel::builder()
        .endpoints([failing.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let status = ProbeClient::new(channel)
        .get(request("1"))
        .await
        .unwrap_err();
    let log = CallLog::of_status(&status).unwrap();
    assert!(status.source().unwrap().downcast_ref::<CallLog>().is_some());
    let won = AttemptOutcome::Won(Code::NotFound);
    assert_eq!(log.attempts()[0].outcome(), won);
    assert_eq!(log.attempts()[0].endpoint(), failing.addr.to_string());
}

/// A status of a server, with everything that it can carry.
fn rich(code: Code) -> Answer {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-reason", "quota".parse().unwrap());
    metadata.append("x-reason", "shard 7".parse().unwrap());
    metadata.insert_bin(
        "x-trace-bin",
        MetadataValue::from_bytes(&[0, 159, 146, 150]),
    );
    let details = bytes::Bytes::from_static(&[8, 3, 18, 4, 98, 97, 100, 33]);
    let message = "no \"page\" 7 % é\n";
    Err(Status::with_details_and_metadata(
        code, message, details, metadata,
    ))
}

/// Everything of a status but its source, and but what names the moment.
/// Code, message, details, metadata.
type Whole = (Code, String, Vec<u8>, Vec<(String, Vec<u8>)>);

fn whole(status: &Status) -> Whole {
    (
        status.code(),
        status.message().to_owned(),
        status.details().to_vec(),
        pairs(status.metadata()),
    )
}

fn pairs(metadata: &MetadataMap) -> Vec<(String, Vec<u8>)> {
    let headers = metadata.clone().into_headers();
    let mut pairs: Vec<_> = headers
        .iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
}

/// Statuses with details, binary metadata and initial metadata are those of a plain channel, in
/// a head alone, in trailers after no message, and in trailers after a message.
#[tokio::test]
async fn statuses_pass_through_whole() {
    let rewrite = |response: http::Response<tonic::body::Body>| {
        match response.headers().get("x-form").map(|form| form.as_bytes()) {
            Some(b"trailers") => {
                // All that came in the head goes to the trailers, but for two initial headers.
                let (mut head, _) = response.into_parts();
                let mut trailers = std::mem::take(&mut head.headers);
                let content = trailers.remove("content-type").unwrap();
                head.headers.insert("content-type", content);
                head.headers.insert("x-initial", "head".parse().unwrap());
                head.headers.insert("x-reason", "head".parse().unwrap());
                let frames = vec![http_body::Frame::trailers(trailers)];
                http::Response::from_parts(head, wire::of_frames(frames))
            }
            Some(b"message") => {
                let (mut head, _) = response.into_parts();
                let trailers = std::mem::take(&mut head.headers);
                head.headers
                    .insert("content-type", "application/grpc".parse().unwrap());
                head.headers.insert("x-initial", "head".parse().unwrap());
                let frames = vec![wire::message(b""), http_body::Frame::trailers(trailers)];
                http::Response::from_parts(head, wire::of_frames(frames))
            }
            _ => response,
        }
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival: Arrival| async move {
        let code = Code::from(arrival.request.status as i32);
        let mut status = rich(code).unwrap_err();
        if !arrival.request.id.is_empty() {
            let form = arrival.request.id.parse().unwrap();
            status.metadata_mut().insert("x-form", form);
        }
        Err(status)
    })
    .await;
    let retry = Retry::default().base(Duration::ZERO);
    let builder = fleet.builder().retry(retry).without_breaker();
    let mut hedged = ProbeClient::new(fleet.channel(builder).await);
    let plain = Endpoint::new(fleet.replicas[0].uri()).unwrap();
    let mut plain = ProbeClient::new(plain.connect().await.unwrap());
    for form in ["", "trailers", "message"] {
        for status in 1..=16 {
            let message = ProbeRequest {
                status,
                ..request(form)
            };
            let expected = plain.get(message.clone()).await.unwrap_err();
            assert_eq!(expected.details().len(), 8);
            let got = hedged.get(message.clone()).await.unwrap_err();
            assert_eq!(whole(&got), whole(&expected), "{form:?} {status}");
            let expected = plain.put(message.clone()).await.unwrap_err();
            let got = hedged.put(message).await.unwrap_err();
            assert_eq!(whole(&got), whole(&expected), "put {form:?} {status}");
        }
    }
}

/// A response's metadata, initial and trailing, is what a plain channel gives.
#[tokio::test]
async fn response_metadata_passes_through_whole() {
    let rewrite = |response: http::Response<tonic::body::Body>| {
        wire::with_trailers(response, |trailers| {
            trailers.insert("x-tail", "tail".parse().unwrap());
            trailers.append("x-both", "tail".parse().unwrap());
            trailers.insert("x-sum-bin", "AJ+Slg".parse().unwrap());
        })
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival: Arrival| async move {
        let mut response = arrival.ok()?;
        let metadata = response.metadata_mut();
        metadata.insert("x-head", "head".parse().unwrap());
        metadata.append("x-both", "head".parse().unwrap());
        Ok(response)
    })
    .await;
    let mut hedged = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let plain = Endpoint::new(fleet.replicas[0].uri()).unwrap();
    let mut plain = ProbeClient::new(plain.connect().await.unwrap());
    let expected = plain.get(request("1")).await.unwrap();
    let got = hedged.get(request("1")).await.unwrap();
    assert_eq!(pairs(got.metadata()), pairs(expected.metadata()));
    let got = hedged.put(request("1")).await.unwrap();
    assert_eq!(pairs(got.metadata()), pairs(expected.metadata()));
    assert!(got.metadata().get_bin("x-sum-bin").is_some());
}

/// A channel that is one opaque `Channel`: it is hedged all the same.
#[tokio::test]
async fn an_opaque_channel_is_hedged() {
    let fleet = raced(2).await;
    let endpoints = fleet
        .replicas
        .iter()
        .map(|replica| Endpoint::new(replica.uri()).unwrap());
    let balanced = tonic::transport::Channel::balance_list(endpoints);
    let channel = HedgedChannel::builder()
        .channel(balanced)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .build()
        .unwrap();
    connected(&channel, 1).await;
    assert!(channel.measured().opaque);
    let response = ProbeClient::new(channel).get(request("1")).await.unwrap();
    assert!(response.call_log().unwrap().hedge_won());
}
