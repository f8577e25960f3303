//! What was never processed, and what may have been: resets, GOAWAYs, connections cut.

use std::convert::Infallible;

use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use tonic_hedge::{BreakerState, EndpointMeasured, EndpointState};
use tower::discover::Change;

use super::*;

/// FA1: what each RST_STREAM code is to the caller, before the head and after it, and how often the
/// request is sent. Only REFUSED_STREAM before the head says that it was not processed, so only then
/// is a method that is not repeatable sent again: once, as the transparent replacement. To one that
/// is, any reset is a failure of the transport, which another attempt could better.
#[tokio::test]
async fn fa1_reset_codes() {
    // The status before the head and after it.
    let cases = [
        (NO_ERROR, Code::Internal, Code::Unknown),
        (0x1, Code::Internal, Code::Internal),
        (INTERNAL_ERROR, Code::Internal, Code::Internal),
        (0x3, Code::Internal, Code::Internal),
        (0x4, Code::Internal, Code::Internal),
        (0x5, Code::Unknown, Code::Unknown),
        (0x6, Code::Internal, Code::Internal),
        (REFUSED_STREAM, Code::Unavailable, Code::Unavailable),
        (CANCEL, Code::Cancelled, Code::Cancelled),
        (0x9, Code::Internal, Code::Internal),
        (0xa, Code::Internal, Code::Internal),
        (0xb, Code::ResourceExhausted, Code::ResourceExhausted),
        (0xc, Code::PermissionDenied, Code::PermissionDenied),
        (0xd, Code::Unknown, Code::Unknown),
    ];
    for (reset, before, after) in cases {
        let at_once = vec![Step::Body, Step::Reset(reset)];
        let late = vec![Step::Body, Step::Head, Step::Reset(reset)];
        for (steps, code, head) in [(at_once, before, false), (late, after, true)] {
            let (a, b, mut client) = two(move |_| steps.clone()).await;
            let replaced = usize::from(reset == REFUSED_STREAM && !head);
            for (id, attempts) in [("put", 1), ("off", 3)] {
                let error = match id {
                    "put" => client.put(request(id)).await.unwrap_err(),
                    _ => client.off(request(id)).await.unwrap_err(),
                };
                let what = format!("{id}, code {reset}, head {head}: {error}");
                assert_eq!(error.code(), code, "{what}");
                assert_eq!(ids(&[&a, &b], id), attempts + replaced, "{what}");
            }
        }
    }
}

/// FA2: a refused stream is replaced once, on the other endpoint, for any method.
#[tokio::test]
async fn fa2_refused_once() {
    let (a, b, channel) = two_channel(|number| match number {
        0 => vec![Step::Body, Step::Reset(REFUSED_STREAM)],
        _ => ok("good"),
    })
    .await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.put(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    assert_eq!(
        kinds(log),
        [AttemptKind::Original, AttemptKind::Replacement]
    );
    assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
    assert_eq!(ids(&[&a, &b], "1"), 2);
    let measured = channel.measured();
    let put = measured.method("hedge.testing.v1.Probe/Put").unwrap();
    assert_eq!((put.replacements, put.retries, put.hedges), (1, 0, 0));
    // Ten at the start and a fifth for each of the two calls.
    assert_eq!(measured.budget, Some(10.4));
}

/// FA2: always refused is two attempts, and UNAVAILABLE.
#[tokio::test]
async fn fa2_refused_always() {
    let (a, b, mut client) = two(|_| vec![Step::Body, Step::Reset(REFUSED_STREAM)]).await;
    let error = client.put(request("1")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert_eq!(ids(&[&a, &b], "1"), 2);

    let (raw, mut client) = one(|_| vec![Step::Body, Step::Reset(REFUSED_STREAM)]).await;
    let error = client.put(request("1")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert_eq!(ids(&[&raw], "1"), 2);
}

/// FA2: a refused stream's request is streamed again while nothing of it was read.
#[tokio::test]
async fn fa2_streaming_while_unread() {
    // The client's window is not the issue: the body's first message waits for the test.
    let go = Latch::closed();
    let (a, b, mut client) = two(|number| match number {
        0 => vec![Step::Reset(REFUSED_STREAM)],
        _ => vec![Step::Body, Step::Head, reply("good"), status("0")],
    })
    .await;
    let messages = {
        let go = go.clone();
        async_stream(async move {
            go.passed().await;
            request("1")
        })
    };
    let call = tokio::spawn(async move { client.upload(messages).await });
    let replaced = || a.log(|log| log.streams) + b.log(|log| log.streams) == 3;
    support::eventually("the replacement", replaced).await;
    go.open();
    let reply = call.await.unwrap().unwrap();
    assert_eq!(reply.get_ref().replica, "good");

    // Once its message is gone there is nothing to send again.
    let (a, b, mut client) = two(|_| vec![Step::Body, Step::Reset(REFUSED_STREAM)]).await;
    let messages = async_stream(async { request("2") });
    let error = client.upload(messages).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(ids(&[&a, &b], "2"), 1);
}

fn async_stream<T: Send + 'static>(
    item: impl Future<Output = T> + Send + 'static,
) -> impl tokio_stream::Stream<Item = T> + Send + 'static {
    futures_util::stream::once(item)
}

/// B10: a GOAWAY that leaves the stream out says that it was not processed: replaced, on
/// another endpoint or, with one only, on its next connection.
#[tokio::test]
async fn b10_goaway_above_the_stream() {
    for code in [NO_ERROR, INTERNAL_ERROR] {
        for close in [false, true] {
            let steps = move |number| match number {
                0 => {
                    let mut steps = vec![Step::Body, Step::GoAway(Last::Before, code)];
                    steps.extend(close.then_some(Step::Close));
                    steps
                }
                _ => ok("good"),
            };
            let (a, b, mut client) = two(steps).await;
            let response = client.put(request("1")).await.unwrap();
            let log = response.call_log().unwrap();
            assert_eq!(
                kinds(log),
                [AttemptKind::Original, AttemptKind::Replacement]
            );
            assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
            assert_eq!(ids(&[&a, &b], "1"), 2);

            let (raw, mut client) = one(move |number| match number {
                0 => ok("warm"),
                number => steps(number - 1),
            })
            .await;
            client.get(request("warm")).await.unwrap();
            let response = client.put(request("2")).await.unwrap();
            assert_eq!(
                kinds(response.call_log().unwrap()),
                [AttemptKind::Original, AttemptKind::Replacement]
            );
            assert_eq!(ids(&[&raw], "2"), 2);
            assert_eq!(raw.log(|log| log.connections), 2);
        }
    }
}

/// The same endpoint again, for a repeatable call whose only connection was cut.
#[tokio::test]
async fn cut_connection_is_retried_on_the_next() {
    let (raw, mut client) = one(|number| match number {
        1 => vec![Step::Body, Step::Close],
        _ => ok("good"),
    })
    .await;
    client.get(request("warm")).await.unwrap();
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(
        kinds(response.call_log().unwrap()),
        [AttemptKind::Original, AttemptKind::Retry]
    );
    assert_eq!(raw.log(|log| log.connections), 2);
}

/// A connection that was up, is told to go away, and is refused when tonic dials again: the
/// call was never sent, and is replaced.
#[tokio::test]
async fn refused_after_it_was_up() {
    // The stream that is left keeps the old connection draining.
    let (a, b, client) = two(|number| match number {
        0 => vec![
            Step::Body,
            Step::Deaf,
            Step::GoAway(Last::This, NO_ERROR),
            Step::Head,
        ],
        _ => ok("good"),
    })
    .await;
    let held = tokio::spawn({
        let mut client = client.clone();
        async move { client.off(request("held")).await }
    });
    support::eventually("the first call", || ids(&[&a, &b], "held") == 1).await;
    for id in 0..20 {
        let response = client.clone().put(request(&id.to_string())).await;
        let response = response.unwrap();
        assert_eq!(response.get_ref().replica, "good");
        assert_eq!(ids(&[&a, &b], &id.to_string()), 1);
    }
    held.abort();
}

/// A.12: a call that is not repeatable, cut off after it was sent, was sent once.
#[tokio::test]
async fn a12_cut_connection_is_never_sent_twice() {
    type Cut = (&'static str, fn() -> Vec<Step>);
    let cuts: [Cut; 7] = [
        ("before the head", || vec![Step::Body, Step::Close]),
        ("after the head", || {
            vec![Step::Body, Step::Head, Step::Close]
        }),
        ("in the body", || {
            vec![
                Step::Body,
                Step::Head,
                Step::Data(vec![0, 0, 0, 0, 9, 1]),
                Step::Close,
            ]
        }),
        ("after the message", || {
            vec![Step::Body, Step::Head, reply("bad"), Step::Close]
        }),
        ("goaway that counts it", || {
            vec![
                Step::Body,
                Step::GoAway(Last::This, INTERNAL_ERROR),
                Step::Close,
            ]
        }),
        ("reset", || vec![Step::Body, Step::Reset(INTERNAL_ERROR)]),
        ("head, refused", || {
            vec![Step::Body, Step::Head, Step::Reset(REFUSED_STREAM)]
        }),
    ];
    for (what, cut) in cuts {
        for round in 0..10 {
            let (a, b, mut client) = two(move |_| cut()).await;
            let error = client.put(request("1")).await.unwrap_err();
            assert!(
                matches!(
                    error.code(),
                    Code::Unavailable | Code::Unknown | Code::Internal
                ),
                "{what}: {error}"
            );
            assert_eq!(ids(&[&a, &b], "1"), 1, "{what}, round {round}: {error}");
        }
    }
}

/// A connection that is lost under many calls is one failure to the breaker: the replica that is
/// left serves, and those calls that may be repeated do not notice.
#[tokio::test]
async fn a_lost_connection_is_one_failure() {
    let cut = Latch::closed();
    let dies = Raw::start(script({
        let cut = cut.clone();
        // Half of them have their head already.
        move |number| match number % 2 {
            0 => vec![Step::Head, Step::Wait(cut.clone()), Step::Close],
            _ => vec![Step::Wait(cut.clone()), Step::Close],
        }
    }))
    .await;
    let lives = Replica::fast("lives").await;
    let (changes, receiver) = tokio::sync::mpsc::unbounded_channel();
    let insert = |key: u32, uri: String| {
        let change = Change::Insert(key, Endpoint::new(uri).unwrap());
        changes.send(Ok::<_, Infallible>(change)).unwrap();
    };
    let channel = HedgedChannel::builder()
        .discover(UnboundedReceiverStream::new(receiver))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::on_failure())
        .budget(BudgetPolicy::default().initial(100.0))
        .build()
        .unwrap();
    insert(0, dies.uri());
    let mut calls = JoinSet::new();
    for id in 0..40 {
        let mut client = ProbeClient::new(channel.clone());
        calls.spawn(async move {
            match id % 4 {
                0 => client.watch(request("watch")).await.map(drop).err(),
                _ => client.get(request("get")).await.map(drop).err(),
            }
        });
    }
    dies.until("all are there", |log| log.streams == 40).await;
    insert(1, lives.uri());
    support::until_measured(&channel, "both are connected", |measured| {
        let ready = |e: &&EndpointMeasured| e.state == EndpointState::Ready;
        measured.endpoints.iter().filter(ready).count() == 2
    })
    .await;
    cut.open();
    let failed: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    // The streams whose head had not come.
    assert!(failed.len() <= 10, "{failed:?}");
    for error in failed {
        assert_eq!(error.code(), Code::Unavailable, "{error:?}");
        assert_eq!(kinds(CallLog::of_status(&error).unwrap()).len(), 1);
    }
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, BreakerState::Closed);
}
