//! Responses that are none: broken, cut off, unreadable, or not of gRPC at all.

use tonic::transport::Endpoint;

use super::*;

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
    let statuses = ["", "abc", "99", "-1", "00", "0 ", " 0", "0 0", "17"];
    let mut trailers: Vec<_> = statuses
        .iter()
        .map(|text| vec![header("grpc-status", text)])
        .collect();
    for second in ["0", "14"] {
        trailers.push(vec![
            header("grpc-status", "0"),
            header("grpc-status", second),
        ]);
    }
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

/// FA11: whatever the message's encoding, the status is the server's. One of 64 KiB too, where the
/// endpoint takes such headers: by hyper's default, 16 KiB, the stream is in error.
#[tokio::test]
async fn fa11_bad_messages() {
    let long = "x".repeat(64 << 10);
    let texts: [&[u8]; 7] = [
        b"%",
        b"%2",
        b"%zz",
        b"%ff%fe",
        b"caf%C3",
        b"\xff\xfe",
        long.as_bytes(),
    ];
    for text in texts {
        for code in ["5", "14"] {
            let trailers = vec![header("grpc-status", code), ("grpc-message", text.to_vec())];
            let only = [
                header(":status", "200"),
                header("content-type", "application/grpc"),
            ];
            let only = Step::Trailers([&only[..], &trailers[..]].concat());
            let after = vec![Step::Head, Step::Trailers(trailers)];
            for steps in [after, vec![only]] {
                let raw = Raw::start(script(move |_| steps.clone())).await;
                let endpoint = Endpoint::new(raw.uri()).unwrap();
                let endpoint = endpoint.http2_max_header_list_size(128 << 10);
                let channel = HedgedChannel::builder()
                    .endpoints([endpoint])
                    .descriptors(probe::FILE_DESCRIPTOR_SET)
                    .without_breaker()
                    .build()
                    .unwrap();
                let mut client = ProbeClient::new(channel);
                let expected = Code::from_bytes(code.as_bytes());
                let stream = match client.watch(request("1")).await {
                    Ok(stream) => stream.into_inner().message().await.map(drop),
                    Err(error) => Err(error),
                };
                for error in [
                    client.get(request("1")).await.map(drop),
                    client.put(request("1")).await.map(drop),
                    stream,
                ] {
                    let error = error.unwrap_err();
                    let text = String::from_utf8_lossy(text);
                    assert_eq!(error.code(), expected, "{:.20}: {error}", text);
                }
            }
        }
    }
}

/// FA14: a message that cannot be decompressed is an error, once: what another attempt would get is
/// the same.
#[tokio::test]
async fn fa14_bad_compression() {
    let compressed = Step::Data(vec![1, 0, 0, 0, 2, 8, 1]);
    let encoded = |encoding: Option<&'static str>| {
        let mut head = vec![
            header(":status", "200"),
            header("content-type", "application/grpc"),
        ];
        head.extend(encoding.map(|encoding| header("grpc-encoding", encoding)));
        vec![
            Step::Body,
            Step::HeadOf(head),
            compressed.clone(),
            status("0"),
        ]
    };
    let cases = [
        ("a flag without an encoding", encoded(None), Code::Internal),
        ("identity", encoded(Some("identity")), Code::Internal),
        ("unknown", encoded(Some("snappy")), Code::Unimplemented),
        ("not accepted", encoded(Some("gzip")), Code::Unimplemented),
    ];
    for (what, steps, code) in cases {
        let (a, b, mut client) = two(move |_| steps.clone()).await;
        // Repeatable and not hedged; then not repeatable.
        let error = client.off(request("off")).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error}");
        assert_eq!(ids(&[&a, &b], "off"), 1, "{what}");
        let error = client.put(request("put")).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error}");
        assert_eq!(ids(&[&a, &b], "put"), 1, "{what}");
    }
}
