//! Faults on the wire: what a server may break, and what the caller gets for it.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{
    Latch, ProbeClient, ProbeRequest, Replica, probe,
    raw::{
        CANCEL, INTERNAL_ERROR, Last, Manner, NO_ERROR, REFUSED_STREAM, Raw, Step, header, ok,
        reply, script, status, trailers_only,
    },
    request,
};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BudgetPolicy, CallLog, Hedge, HedgedChannel, ResponseExt,
};

type Client = ProbeClient<HedgedChannel>;

/// Hedges after 20 ms; no breaker, so that each fault meets the same channel.
fn channel<const N: usize>(uris: [String; N]) -> HedgedChannel {
    HedgedChannel::builder()
        .endpoints(uris)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .without_breaker()
        .build()
        .unwrap()
}

fn client<const N: usize>(uris: [String; N]) -> Client {
    ProbeClient::new(channel(uris))
}

/// Waits until every endpoint is connected. A first call has started the connecting.
async fn connected(channel: &HedgedChannel) {
    let ready = async {
        while channel
            .measured()
            .endpoints
            .iter()
            .any(|endpoint| endpoint.state != tonic_hedge::EndpointState::Ready)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, ready)
        .await
        .unwrap();
}

/// Two raw servers, connected by a first call each way; then the n-th stream of both gets
/// `steps(n)`.
async fn two(steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> (Raw, Raw, Client) {
    let (a, b, channel) = two_channel(steps).await;
    (a, b, ProbeClient::new(channel))
}

async fn two_channel(
    steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static,
) -> (Raw, Raw, HedgedChannel) {
    let script = script(move |number| match number {
        0 => ok("warm"),
        number => steps(number - 1),
    });
    let a = Raw::start(script.clone()).await;
    let b = Raw::start(script).await;
    let channel = channel([a.uri(), b.uri()]);
    let mut client = ProbeClient::new(channel.clone());
    // Not hedged, so that it takes the first stream only.
    client.put(request("warm")).await.unwrap();
    connected(&channel).await;
    (a, b, channel)
}

/// One server with `steps` for every stream.
async fn one(steps: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> (Raw, Client) {
    let raw = Raw::start(script(steps)).await;
    let client = client([raw.uri()]);
    (raw, client)
}

fn ids(servers: &[&Raw], id: &str) -> usize {
    servers
        .iter()
        .map(|raw| raw.log(|log| log.ids.iter().filter(|seen| *seen == id).count()))
        .sum()
}

fn kinds(log: &CallLog) -> Vec<AttemptKind> {
    log.attempts()
        .iter()
        .map(|attempt| attempt.kind())
        .collect()
}

// === a response that is no response ===

/// FA8, FA15, BL11: what is not exactly one whole message and a status is never success; alone
/// it is an error with this code, and beside another endpoint its answer.
#[tokio::test]
async fn fa8_fa15_bl11_broken_responses() {
    let cut = |len: usize| Step::Data([vec![0, 0, 0, 0, 9], vec![7; len]].concat());
    let broken: Vec<(&str, Vec<Step>, Code)> = vec![
        (
            "no trailers",
            vec![Step::Head, reply("bad"), Step::End],
            Code::Unknown,
        ),
        (
            "no body, no trailers",
            vec![Step::Head, Step::End],
            Code::Unknown,
        ),
        (
            "trailers without status",
            vec![
                Step::Head,
                reply("bad"),
                Step::Trailers(vec![header("x-other", "1")]),
            ],
            Code::Unknown,
        ),
        ("no message", vec![Step::Head, status("0")], Code::Internal),
        ("trailers-only OK", vec![trailers_only("0")], Code::Internal),
        (
            "two messages",
            vec![Step::Head, reply("bad"), reply("bad"), status("0")],
            Code::Internal,
        ),
        (
            "cut inside a message",
            vec![Step::Head, cut(3), status("0")],
            Code::Internal,
        ),
        (
            "cut inside a prefix",
            vec![Step::Head, Step::Data(vec![0, 0]), status("0")],
            Code::Internal,
        ),
        (
            "cut, no trailers",
            vec![Step::Head, cut(3), Step::End],
            Code::Unknown,
        ),
        (
            "cut, reset",
            vec![Step::Head, cut(3), Step::Reset(INTERNAL_ERROR)],
            Code::Internal,
        ),
        (
            "cut, cancelled",
            vec![Step::Head, cut(3), Step::Reset(CANCEL)],
            Code::Cancelled,
        ),
    ];
    for (what, steps, code) in broken {
        let alone = steps.clone();
        let (_raw, mut client) = one(move |_| alone.clone()).await;
        let error = client.get(request("alone")).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error}");

        let first = steps.clone();
        let (_a, _b, mut client) = two(move |number| match number {
            0 => first.clone(),
            _ => ok("good"),
        })
        .await;
        let reply = client.get(request("beside")).await.unwrap();
        assert_eq!(reply.get_ref().replica, "good", "{what}");
    }
}

/// FA9, on the path that races and on the one that passes through.
#[tokio::test]
async fn fa9_unreadable_status() {
    let statuses = ["", "abc", "99", "-1", "00", "0 0"];
    let mut trailers: Vec<_> = statuses
        .iter()
        .map(|text| vec![header("grpc-status", text)])
        .collect();
    trailers.push(vec![header("grpc-status", "0"), header("grpc-status", "0")]);
    for trailers in trailers {
        let only = [
            header(":status", "200"),
            header("content-type", "application/grpc"),
        ];
        let only = [&only[..], &trailers[..]].concat();
        for steps in [
            vec![Step::Head, reply("bad"), Step::Trailers(trailers.clone())],
            vec![Step::Trailers(only)],
        ] {
            let (_raw, mut client) = one(move |_| steps.clone()).await;
            let error = client.get(request("1")).await.unwrap_err();
            assert_eq!(error.code(), Code::Unknown, "get {trailers:?}: {error}");
            let error = client.put(request("1")).await.unwrap_err();
            assert_eq!(error.code(), Code::Unknown, "put {trailers:?}: {error}");
        }
    }
}

/// Details that are not base64 panic in tonic's client: they never reach it, wherever the
/// status stands and whatever it says.
#[tokio::test]
async fn bad_details_do_not_panic() {
    for code in ["0", "5", "13"] {
        let trailers = vec![
            header("grpc-status", code),
            header("grpc-status-details-bin", "*not base64*"),
        ];
        let only = [
            header(":status", "200"),
            header("content-type", "application/grpc"),
        ];
        let only = Step::Trailers([&only[..], &trailers[..]].concat());
        let after = vec![Step::Head, reply("bad"), Step::Trailers(trailers.clone())];
        let no_status = vec![
            Step::HeadOf(vec![
                header(":status", "200"),
                header("content-type", "application/grpc"),
                header("grpc-status-details-bin", "*not base64*"),
            ]),
            reply("bad"),
            Step::Trailers(trailers),
        ];
        for steps in [after, vec![only], no_status] {
            let (_raw, mut client) = one(move |_| steps.clone()).await;
            let expected = |result: Result<_, Status>| match result {
                Ok(_) => assert_eq!(code, "0"),
                Err(error) if code == "0" => assert_eq!(error.code(), Code::Internal),
                Err(error) => assert_eq!(error.code(), Code::from_bytes(code.as_bytes())),
            };
            expected(client.get(request("1")).await.map(drop));
            expected(client.put(request("1")).await.map(drop));
            let mut stream = match client.watch(request("1")).await {
                Ok(stream) => stream.into_inner(),
                Err(error) => {
                    assert_eq!(error.code(), Code::from_bytes(code.as_bytes()));
                    continue;
                }
            };
            while let Ok(Some(_)) = stream.message().await {}
        }
    }
}

/// FA13: an HTTP error of a gateway is mapped; one that says UNAVAILABLE is a failure that
/// another endpoint betters, the others are answers.
#[tokio::test]
async fn fa13_http_errors() {
    let cases = [
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("429", Code::Unavailable),
        ("404", Code::Unimplemented),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
    ];
    for (http, code) in cases {
        let page = move || {
            vec![
                Step::HeadOf(vec![
                    header(":status", http),
                    header("content-type", "text/html"),
                ]),
                Step::Data(b"<html>bad gateway</html>".to_vec()),
                Step::End,
            ]
        };
        let (_raw, mut client) = one(move |_| page()).await;
        for error in [
            client.get(request("1")).await.unwrap_err(),
            client.put(request("1")).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), code, "{http}");
        }
        let (_a, _b, mut client) = two(move |number| match number {
            0 => page(),
            _ => ok("good"),
        })
        .await;
        // Retried, not hedged.
        match client.off(request("2")).await {
            Ok(reply) => {
                assert_eq!(code, Code::Unavailable, "{http}");
                assert_eq!(reply.get_ref().replica, "good");
            }
            Err(error) => {
                assert_ne!(code, Code::Unavailable, "{http}");
                assert_eq!(error.code(), code);
                let log = CallLog::of_status(&error).unwrap();
                assert_eq!(kinds(log), [AttemptKind::Original], "{http}");
            }
        }
    }
}

/// RC12, RC13, A.4: UNAVAILABLE in the head, or in trailers after an empty body, never wins.
#[tokio::test]
async fn rc12_rc13_a4_failure_in_head_or_trailers() {
    for failing in [vec![trailers_only("14")], vec![Step::Head, status("14")]] {
        // As the original: it is retried.
        let first = failing.clone();
        let (_a, _b, mut client) = two(move |number| match number {
            0 => first.clone(),
            _ => ok("good"),
        })
        .await;
        let reply = client.off(request("1")).await.unwrap();
        assert_eq!(reply.get_ref().replica, "good");
        assert_eq!(
            kinds(reply.call_log().unwrap()),
            [AttemptKind::Original, AttemptKind::Retry]
        );

        // As the hedge: the original, which waits for it to be over, is the answer.
        let failed = Latch::closed();
        let original = failed.clone();
        let (a, b, client) = two(move |number| match number {
            0 => [vec![Step::Wait(original.clone())], ok("slow")].concat(),
            1 => failing.clone(),
            _ => vec![],
        })
        .await;
        let call = tokio::spawn({
            let mut client = client.clone();
            async move { client.get(request("2")).await }
        });
        // Warm, original, hedge, and the one that follows the hedge's failure is held: no
        // third endpoint.
        let both = async {
            a.until("its streams", |log| log.streams >= 1).await;
            b.until("its streams", |log| log.streams >= 1).await;
        };
        both.await;
        failed.open();
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.get_ref().replica, "slow");
    }
}

/// RC14, A.4: a message before a bad status is not handed out; where the method lists the code,
/// another endpoint's answer is the call's.
#[tokio::test]
async fn rc14_message_then_bad_status() {
    let bad = || vec![Step::Head, reply("bad"), status("13")];
    let (_raw, mut client) = one(move |_| bad()).await;
    assert_eq!(
        client.get(request("1")).await.unwrap_err().code(),
        Code::Internal
    );
    assert_eq!(
        client.put(request("1")).await.unwrap_err().code(),
        Code::Internal
    );

    let (_a, _b, mut client) = two(move |number| match number {
        0 => bad(),
        _ => ok("good"),
    })
    .await;
    // `Tuned` lists INTERNAL.
    let reply = client.tuned(request("2")).await.unwrap();
    assert_eq!(reply.get_ref().replica, "good");
}

/// A.5: a head and then silence is beaten, and its server sees the reset.
#[tokio::test]
async fn a5_head_then_silence() {
    let (a, b, mut client) = two(|number| match number {
        0 => vec![Step::Head],
        _ => ok("good"),
    })
    .await;
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.get_ref().replica, "good");
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Discarded);
    let silent = match log.attempts()[0].endpoint() == a.addr.to_string() {
        true => &a,
        false => &b,
    };
    silent
        .until("the reset", |log| log.resets == [CANCEL])
        .await;
}

/// A.5, FA7: with everyone silent the deadline ends the call, and nothing of it is left.
#[tokio::test]
async fn a5_fa7_all_silent() {
    for steps in [vec![Step::Head], vec![]] {
        let (a, b, mut client) = two(move |_| steps.clone()).await;
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let mut request = Request::new(request("1"));
        request.set_timeout(Duration::from_millis(200));
        let error = client.get(request).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        // Both attempts' streams are reset, and the tasks of both clients and servers go.
        for raw in [&a, &b] {
            raw.until("the reset", |log| log.resets == [CANCEL]).await;
        }
        support::eventually("no task is left", || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
                <= tasks
        })
        .await;
    }
}

// === never processed, and processed perhaps ===

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

/// FA1: every RST_STREAM code before the head and after it.
#[tokio::test]
async fn fa1_reset_codes() {
    for code in 0..=0xd {
        let after = vec![Step::Body, Step::Head, Step::Reset(code)];
        for (steps, head) in [(vec![Step::Body, Step::Reset(code)], false), (after, true)] {
            let (a, b, mut client) = two(move |_| steps.clone()).await;
            let error = client.put(request("1")).await.unwrap_err();
            let expected = match (code, head) {
                (REFUSED_STREAM, _) => Code::Unavailable,
                // hyper takes it for the end of the body, which then lacks its status.
                (NO_ERROR, true) => Code::Unknown,
                (CANCEL, _) => Code::Cancelled,
                (0xb, _) => Code::ResourceExhausted,
                (0xc, _) => Code::PermissionDenied,
                (5 | 0xd, _) => Code::Unknown,
                _ => Code::Internal,
            };
            assert_eq!(error.code(), expected, "code {code}, head {head}: {error}");
            let sent = if code == REFUSED_STREAM && !head {
                2
            } else {
                1
            };
            assert_eq!(ids(&[&a, &b], "1"), sent, "code {code}, head {head}");
        }
    }
}

// === silence ===

/// FA18, FA6: an endpoint that accepts and never speaks takes no call; alone, the deadline ends
/// the call.
#[tokio::test]
async fn fa18_mute_endpoint() {
    let mute = Raw::with(
        Manner {
            mute: true,
            ..Manner::default()
        },
        script(|_| vec![]),
    )
    .await;
    let mut alone = client([mute.uri()]);
    let mut timed = Request::new(request("1"));
    timed.set_timeout(Duration::from_millis(200));
    assert_eq!(
        alone.get(timed).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );

    let good = Replica::fast("good").await;
    let mut client = client([mute.uri(), good.uri()]);
    for _ in 0..20 {
        assert_eq!(
            client.put(request("2")).await.unwrap().get_ref().replica,
            "good"
        );
    }
}

/// FA6: an endpoint that was up and then swallows everything is beaten by a hedge, or by the
/// deadline.
#[tokio::test]
async fn fa6_black_hole() {
    let (_a, _b, mut client) = two(|number| match number {
        0 | 2 | 3 => vec![],
        _ => ok("good"),
    })
    .await;
    assert_eq!(
        client.get(request("1")).await.unwrap().get_ref().replica,
        "good"
    );
    let mut timed = Request::new(request("2"));
    timed.set_timeout(Duration::from_millis(200));
    assert_eq!(
        client.put(timed).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
}

/// A server whose own timer for the deadline is a moment earlier says CANCELLED, as tonic's does:
/// to the caller it is the deadline. Far from it, it is what the server says.
#[tokio::test]
async fn cancelled_at_the_deadline() {
    let server = Replica::start("a", |arrival| async move {
        tokio::time::sleep(Duration::from_millis(arrival.request.delay_ms.into())).await;
        Err(Status::cancelled("Timeout expired"))
    })
    .await;
    let mut client = client([server.uri()]);
    for (delay_ms, timeout, code) in [
        (78, Duration::from_millis(80), Code::DeadlineExceeded),
        (0, Duration::from_secs(60), Code::Cancelled),
    ] {
        let timed = || {
            let mut request = Request::new(ProbeRequest {
                delay_ms,
                ..request("1")
            });
            request.set_timeout(timeout);
            request
        };
        assert_eq!(client.off(timed()).await.unwrap_err().code(), code);
        assert_eq!(client.put(timed()).await.unwrap_err().code(), code);
    }
}

// === uploads ===

/// A server with a 64 KiB window that does `slow` to its first `rounds` streams, and a replica
/// that answers all calls but the `last`. All calls go to both at once.
async fn uploads(rounds: usize, slow: Vec<Step>) -> (Raw, Replica, HedgedChannel) {
    let manner = Manner {
        grants: false,
        ..Manner::default()
    };
    let script = script(move |number| match number {
        number if number < rounds => slow.clone(),
        _ => [vec![Step::Grant(2 << 20)], ok("slow")].concat(),
    });
    let slow = Raw::with(manner, script).await;
    let fast = Replica::start("fast", |arrival| async move {
        match arrival.request.id.as_str() {
            "last" => Err(Status::unavailable("done")),
            _ => arrival.ok(),
        }
    })
    .await;
    let channel = HedgedChannel::builder()
        .endpoints([slow.uri(), fast.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .budget(BudgetPolicy::default().ratio(1.0).initial(100.0))
        .without_breaker()
        .build()
        .unwrap();
    // It only starts the connecting.
    let mut client = ProbeClient::new(channel.clone());
    let warm = tokio::spawn(async move { client.vetoed(request("warm")).await });
    connected(&channel).await;
    warm.abort();
    let _ = warm.await;
    if slow.log(|log| log.streams) > 0 {
        slow.until("the warm-up's reset", |log| log.resets.len() == 1)
            .await;
    }
    (slow, fast, channel)
}

fn upload(id: &str) -> ProbeRequest {
    ProbeRequest {
        payload: vec![7; (1 << 20) - 100],
        ..request(id)
    }
}

/// A.8: a loser whose upload is blocked is reset, and leaves the connection its window.
#[tokio::test]
async fn a8_cancel_while_upload_is_blocked() {
    const ROUNDS: usize = 100;
    let (slow, _fast, channel) = uploads(ROUNDS, vec![Step::Head]).await;
    let mut client = ProbeClient::new(channel.clone());
    let before = slow.log(|log| log.resets.len());
    for round in before..ROUNDS {
        let response = client.get(upload(&round.to_string())).await.unwrap();
        assert_eq!(response.get_ref().replica, "fast");
        slow.until("the reset", |log| log.resets.len() == round + 1)
            .await;
    }
    assert!(slow.log(|log| log.resets.iter().all(|code| *code == CANCEL)));
    // The window is whole again: the next call gets through on the same connection.
    let response = client.get(upload("last")).await.unwrap();
    assert_eq!(response.get_ref().replica, "slow");
    assert_eq!(slow.log(|log| log.connections), 1);
}

/// A server that says nothing gets 16 resets, and then losers that run on, as long as these
/// keep no more than 16 MiB: 15 of 1 MiB. From there on a reset costs less.
#[tokio::test]
async fn detached_uploads_are_bounded_in_bytes() {
    const ROUNDS: usize = 60;
    let (slow, _fast, channel) = uploads(ROUNDS, vec![]).await;
    let mut client = ProbeClient::new(channel.clone());
    for round in slow.log(|log| log.streams)..ROUNDS {
        client.get(upload(&round.to_string())).await.unwrap();
        slow.until("its stream", |log| log.streams > round).await;
    }
    let measured = channel.measured();
    assert_eq!(measured.detached, 15, "{measured:?}");
    let slow_in_flight = measured.endpoints[0].in_flight;
    assert_eq!(slow_in_flight, 15);
}
