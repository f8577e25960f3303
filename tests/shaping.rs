//! The ways to shape a race, on real servers: computed delays, chosen targets, own
//! classifications, and the order of the hooks.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use support::{
    Arrival, Fleet, Latch, ProbeClient, ProbeReply, ProbeRequest, eventually, probe, request,
    settled,
};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BudgetPolicy, Builder, CallLog, Classification, Destination,
    EndpointSpec, Hedge, HedgedChannel, MethodPolicy, RequestExt, ResponseExt, Retry,
};

const GET: &str = "hedge.testing.v1.Probe/Get";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Replicas of which attempt `wins` alone is answered.
async fn answering(wins: u32, count: u8) -> Fleet {
    Fleet::start(count, move |arrival: Arrival| async move {
        if arrival.previous() != wins {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await
}

/// An error of the user's own.
#[derive(Debug)]
struct Mine;

impl fmt::Display for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the delay is not known")
    }
}

impl Error for Mine {}

// === delay_with ===

/// Each delay is asked for its attempt, with the request, and counts from the newest launch.
#[tokio::test]
async fn delays_are_computed_for_each_attempt() {
    let fleet = answering(2, 3).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let hedge = Hedge::delay_with(move |next| {
        let factor = next
            .request
            .metadata("x-factor")
            .map_or(0, |it| u64::from(it[0] - b'0'));
        let known = next.request.metadata("x-none").is_some();
        seen.lock().push((
            next.attempt,
            next.request.method().to_owned(),
            factor,
            known,
        ));
        async move {
            tokio::task::yield_now().await;
            Ok::<_, Mine>(ms(10) * next.attempt * u32::try_from(factor).unwrap())
        }
    });
    let builder = fleet.builder().hedge(hedge.max_concurrent(3));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let mut call = Request::new(request("delays"));
    call.metadata_mut().insert("x-factor", "3".parse().unwrap());
    let response = client.get(call).await.unwrap();
    let log = response.call_log().unwrap();
    let starts: Vec<_> = log
        .attempts()
        .iter()
        .map(|attempt| attempt.start())
        .collect();
    assert_eq!(starts.len(), 3, "{log}");
    assert!(starts[1] >= starts[0] + ms(30), "{log}");
    assert!(starts[2] >= starts[1] + ms(60), "{log}");
    let expected = [1, 2].map(|attempt| (attempt, GET.to_owned(), 3, false));
    assert_eq!(*asked.lock(), expected);
}

/// A failure starts the next attempt at once in each form of timing, however long its delay: alone after
/// the retry's own wait, which is none here.
#[tokio::test]
async fn b05_a_failure_starts_the_next_attempt_at_once() {
    let hour = Duration::from_secs(3600);
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("once")),
            _ => arrival.ok(),
        }
    })
    .await;
    for hedge in [
        Hedge::at(0.95),
        Hedge::at(0.95).cold_start(hour),
        Hedge::after(hour),
        Hedge::after(Duration::MAX),
        Hedge::on_failure(),
        Hedge::delay_with(move |_| async move { Ok::<_, Mine>(hour) }),
        Hedge::delay_with(move |_| std::future::pending::<Result<Duration, Mine>>()),
        Hedge::delay_with(move |_| async move { Ok::<_, Mine>(Duration::MAX) }),
    ] {
        let timing = format!("{:?}", hedge.timing);
        let retry = Retry::default().base(Duration::ZERO);
        let builder = fleet.builder().hedge(hedge).retry(retry);
        let mut client = ProbeClient::new(fleet.channel(builder).await);
        let response = client.get(request("fails")).await;
        let response = response.unwrap_or_else(|status| panic!("{timing}: {status}"));
        let log = response.call_log().unwrap();
        assert_eq!(
            log.attempts()[1].kind(),
            AttemptKind::Retry,
            "{timing}: {log}"
        );
    }
}

/// B87: zero starts all that `max_concurrent` and `max_attempts` allow, even when the original
/// answers immediately.
#[tokio::test]
async fn b87_zero_starts_all_that_are_allowed() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move { arrival.ok() }).await;
    for (name, hedge) in [
        ("immediately", Hedge::immediately()),
        ("after", Hedge::after(Duration::ZERO)),
        (
            "with",
            Hedge::delay_with(|_| async { Ok::<_, Mine>(Duration::ZERO) }),
        ),
    ] {
        for (concurrent, attempts, expected) in [(2, 3, 2), (3, 3, 3), (3, 2, 2)] {
            let hedge = hedge.clone().max_concurrent(concurrent);
            let builder = fleet.builder().hedge(hedge).max_attempts(attempts);
            let mut client = ProbeClient::new(fleet.channel(builder).await);
            let response = client.get(request(name)).await.unwrap();
            let log = response.call_log().unwrap();
            assert_eq!(log.attempts().len(), expected, "{name}: {log}");
        }
    }
}

/// An error ends the call, keeps its identity, and drops the attempts.
#[tokio::test]
async fn an_error_of_a_delay_ends_the_call() {
    let fleet = answering(9, 2).await;
    type Delay = fn() -> Hedge;
    let cases: [(&str, Delay, Code); 4] = [
        (
            "own",
            || Hedge::delay_with(|_| async { Err(Mine) }),
            Code::Unknown,
        ),
        (
            "late",
            || {
                Hedge::delay_with(|_| async {
                    tokio::time::sleep(ms(5)).await;
                    Err(Mine)
                })
            },
            Code::Unknown,
        ),
        (
            "status",
            || Hedge::delay_with(|_| async { Err(Status::aborted("no delay")) }),
            Code::Aborted,
        ),
        (
            "panic",
            || {
                Hedge::delay_with(|next| async move {
                    assert!(next.attempt > 9, "a panic of the user's");
                    Ok::<_, Mine>(Duration::ZERO)
                })
            },
            Code::Internal,
        ),
    ];
    for (name, hedge, code) in cases {
        let channel = fleet.channel(fleet.builder().hedge(hedge())).await;
        let status = ProbeClient::new(channel.clone())
            .get(request(name))
            .await
            .unwrap_err();
        assert_eq!(status.code(), code, "{name}: {status:?}");
        let log = CallLog::of_status(&status).unwrap();
        assert_eq!(log.attempts().len(), 1, "{name}: {log}");
        assert_eq!(
            log.attempts()[0].outcome(),
            AttemptOutcome::Discarded,
            "{name}"
        );
        if code == Code::Unknown {
            let mut source: Option<&(dyn Error + 'static)> = Some(&status);
            while let Some(error) = source.filter(|error| !error.is::<Mine>()) {
                source = error.source();
            }
            assert!(source.is_some(), "{name}: the error is lost: {status:?}");
        }
        settled(&channel).await;
    }
    eventually("no server works on", || fleet.seen.running() == 0).await;
}

// === target_with ===

/// A hedge goes where it is sent; what one attempt's hook writes no other attempt sees.
#[tokio::test]
async fn attempts_go_where_they_are_sent() {
    let fleet = answering(2, 3).await;
    let names: Vec<String> = fleet
        .replicas
        .iter()
        .map(|replica| replica.addr.to_string())
        .collect();
    let order = [names[2].clone(), names[0].clone(), names[1].clone()];
    let chosen = order.clone();
    let builder = fleet
        .builder()
        .hedge(Hedge::after(ms(5)).max_concurrent(3))
        .target_with(move |attempt| {
            assert_eq!(attempt.method(), GET);
            let number = attempt.number();
            let clean = attempt.metadata().get("x-number").is_none();
            assert!(clean && attempt.extensions().get::<u32>().is_none());
            attempt.extensions_mut().insert(number);
            let value = number.to_string().parse().unwrap();
            attempt.metadata_mut().insert("x-number", value);
            attempt.metadata_mut().remove("content-type");
            attempt
                .metadata_mut()
                .insert("grpc-timeout", "1n".parse().unwrap());
            Some(Destination::endpoint(chosen[number as usize].as_str()))
        });
    let channel = builder.method("warm.Up/Up", MethodPolicy::new().target_with(|_| None));
    let mut client = ProbeClient::new(fleet.channel(channel).await);
    let mut call = Request::new(request("sent"));
    call.set_timeout(Duration::from_secs(60));
    let response = client.get(call).await.unwrap();
    let log = response.call_log().unwrap();
    let went: Vec<_> = log
        .attempts()
        .iter()
        .map(|attempt| attempt.endpoint().to_owned())
        .collect();
    assert_eq!(went, order, "{log}");
    assert_eq!(
        log.attempts()[0].outcome(),
        AttemptOutcome::Discarded,
        "{log}"
    );
    for (number, arrival) in fleet.seen.of("sent").iter().enumerate() {
        assert_eq!(arrival.previous() as usize, number);
        let timeout = arrival.metadata.get("grpc-timeout").unwrap();
        assert_ne!(timeout, "1n", "{number}");
        let values: Vec<_> = arrival.metadata.get_all("x-number").iter().collect();
        assert_eq!(values, [&number.to_string()[..]], "{number}");
    }
}

/// A locality narrows the choice; the latest failure is known; what does not exist, and a panic, are
/// reported and leave it to the picker.
#[tokio::test]
async fn a_target_knows_the_latest_failure() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("first")),
            1 => Err(Status::unavailable("second")),
            _ => arrival.ok(),
        }
    })
    .await;
    let specs = fleet
        .replicas
        .iter()
        .zip(["near", "far", "far"])
        .map(|(replica, locality)| {
            let endpoint = tonic::transport::Endpoint::from_shared(replica.uri()).unwrap();
            EndpointSpec::new(endpoint).locality(locality)
        });
    let builder = HedgedChannel::builder()
        .endpoints(specs)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .retry(Retry::default().base(Duration::ZERO))
        .budget(BudgetPolicy::default().initial(100.0))
        .without_breaker()
        .method(
            GET,
            MethodPolicy::new().target_with(|attempt| {
                let failure = attempt.last_failure().map(|it| it.message().to_owned());
                match (attempt.number(), failure.as_deref()) {
                    (0, None) => Some(Destination::locality("near")),
                    (1, Some("first")) => Some(Destination::endpoint("nowhere")),
                    (2, Some("second")) => Some(Destination::locality("far")),
                    other => panic!("{other:?}"),
                }
            }),
        );
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    for _ in 0..20 {
        let response = client.get(request("fails twice")).await.unwrap();
        let log = response.call_log().unwrap();
        let went = log
            .attempts()
            .iter()
            .map(|attempt| attempt.endpoint().to_owned());
        let near = fleet.replicas[0].addr.to_string();
        let went: Vec<_> = went.map(|endpoint| endpoint == near).collect();
        assert_eq!(went.len(), 3, "{log}");
        assert_eq!((went[0], went[2]), (true, false), "{log}");
        assert!(!went[1], "the picker goes elsewhere: {log}");
    }
}

/// An endpoint that is down is left to the picker: what is chosen fails no call that another replica
/// could serve.
#[tokio::test]
async fn a_target_that_is_down_is_left_to_the_picker() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let mut uris: Vec<_> = fleet.replicas.iter().map(|replica| replica.uri()).collect();
    uris.push(format!("http://{gone}"));
    let down = gone.clone();
    let builder = HedgedChannel::builder()
        .endpoints(uris)
        .target_with(move |_| Some(Destination::endpoint(down.as_str())));
    let channel = builder.build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..20 {
        // Also the first, which waits until it is known to be down.
        client.put(request("down")).await.unwrap();
    }
}

/// A hedge that is sent to the endpoint of its original is held.
#[tokio::test]
async fn a_hedge_to_its_originals_endpoint_is_held() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        tokio::time::sleep(ms(50)).await;
        arrival.ok()
    })
    .await;
    let only = fleet.replicas[0].addr.to_string();
    let builder = fleet
        .builder()
        .hedge(Hedge::after(ms(5)))
        .target_with(move |attempt| {
            (attempt.method() == GET).then(|| Destination::endpoint(only.as_str()))
        });
    let channel = fleet.channel(builder).await;
    let response = ProbeClient::new(channel.clone())
        .get(request("same"))
        .await
        .unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
    let measured = channel.measured();
    let method = measured
        .methods
        .iter()
        .find(|method| method.method == GET)
        .unwrap();
    assert_eq!(method.suppressed, [("other_endpoint", 1)], "{method:?}");
    // What it withdrew is back.
    assert_eq!(measured.budget, channel.measured().budget);
}

// === classify ===

/// An OK that the user calls a failure is raced on, and is the result if nothing better comes; an
/// UNAVAILABLE that the user calls an answer is one.
#[tokio::test]
async fn the_user_says_what_a_failure_is() {
    let fleet = Fleet::start(3, |arrival: Arrival| async move {
        let id = arrival.request.id.clone();
        match (&id[..], arrival.previous()) {
            ("stale", 0) | ("always stale", _) => {
                let mut response = arrival.ok()?;
                response
                    .metadata_mut()
                    .insert("x-stale", "1".parse().unwrap());
                Ok(response)
            }
            ("final", _) => Err(Status::unavailable("for good")),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .retry(Retry::default().base(Duration::ZERO))
        .hedge(Hedge::on_failure())
        .classify(|result| {
            assert_eq!(result.method(), GET);
            match result.headers().contains_key("x-stale") {
                true => Classification::Failure,
                false if result.status().message() == "for good" => Classification::Answer,
                false => Classification::Default,
            }
        });
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let response = client.get(request("stale")).await.unwrap();
    assert!(response.metadata().get("x-stale").is_none());
    let log = response.call_log().unwrap();
    assert_eq!(
        log.attempts()[0].outcome(),
        AttemptOutcome::Failed(Code::Ok),
        "{log}"
    );
    let response = client.get(request("always stale")).await.unwrap();
    assert!(response.metadata().get("x-stale").is_some());
    assert_eq!(fleet.seen.of("always stale").len(), 3);
    let status = client.get(request("final")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(fleet.seen.of("final").len(), 1);
}

/// The message decides, for one method; a panic says nothing.
#[tokio::test]
async fn a_message_may_be_a_failure() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let by_message = MethodPolicy::new().classify(|result| {
        let reply = result.decode::<ProbeReply>().unwrap().unwrap();
        assert!(reply.id != "panics", "a panic of the user's");
        match reply.previous_attempts {
            0 => Classification::Failure,
            _ => Classification::Answer,
        }
    });
    let builder = fleet
        .builder()
        .method(GET, by_message)
        .retry(Retry::default().base(Duration::ZERO));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    for bytes in [0, 100_000] {
        let call = ProbeRequest {
            response_bytes: bytes,
            ..request("message")
        };
        let response = client.get(call).await.unwrap();
        assert_eq!(response.get_ref().previous_attempts, 1);
    }
    let response = client.get(request("panics")).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
    // Another method is as it was.
    let response = client.keyed(request("keyed")).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
}

// === The order ===

/// Delay, `on_hedge`, target, launch. The caller's cancellation stops all, inside a hook too, and a
/// hook may call through the same channel.
#[tokio::test]
async fn hooks_run_in_order() {
    let fleet = answering(1, 2).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().push(what)
    };
    let own = Arc::new(Mutex::new(None::<HedgedChannel>));
    let (delay, observe, target) = (note("delay"), note("on_hedge"), note("target"));
    let through = Arc::clone(&own);
    let builder = fleet
        .builder()
        .hedge(Hedge::delay_with(move |_| {
            delay();
            async { Ok::<_, Mine>(ms(1)) }
        }))
        .on_hedge(move |_| {
            observe();
            let channel = through.lock().clone();
            async move {
                // Nothing is locked.
                let call = Request::new(request("inner")).without_hedging();
                if let Some(channel) = channel {
                    let mut client = ProbeClient::new(channel);
                    let _timed_out = tokio::time::timeout(ms(5), client.put(call)).await;
                }
                Ok::<_, Mine>(())
            }
        })
        .target_with(move |attempt| {
            if attempt.method() == GET {
                target();
            }
            None
        });
    let channel = fleet.channel(builder).await;
    *own.lock() = Some(channel.clone());
    let response = ProbeClient::new(channel.clone())
        .get(request("outer"))
        .await
        .unwrap();
    assert!(response.hedge_won());
    assert_eq!(*order.lock(), ["target", "delay", "on_hedge", "target"]);
    assert_eq!(fleet.seen.of("inner").len(), 1);
    *own.lock() = None;
}

/// An answer that comes during a hook stops the launch, and so does the caller.
#[tokio::test]
async fn the_end_of_a_race_stops_a_hook() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    type Hook = fn(Builder, Arc<AtomicU32>, Latch) -> Builder;
    let hooks: [Hook; 2] = [
        |builder, dropped, entered| {
            builder.hedge(Hedge::delay_with(move |_| {
                let guard = Dropped(Arc::clone(&dropped));
                entered.open();
                async move {
                    let _guard = guard;
                    std::future::pending::<Result<Duration, Mine>>().await
                }
            }))
        },
        |builder, dropped, entered| {
            builder.hedge(Hedge::immediately()).on_hedge(move |_| {
                let guard = Dropped(Arc::clone(&dropped));
                entered.open();
                async move {
                    let _guard = guard;
                    std::future::pending::<Result<(), Mine>>().await
                }
            })
        },
    ];
    for hook in hooks {
        for cancelled in [false, true] {
            let (release, entered) = (Latch::closed(), Latch::closed());
            let held = release.clone();
            let fleet = Fleet::start(2, move |arrival: Arrival| {
                let held = held.clone();
                async move {
                    held.passed().await;
                    arrival.ok()
                }
            })
            .await;
            let dropped = Arc::new(AtomicU32::new(0));
            let builder = hook(fleet.builder(), Arc::clone(&dropped), entered.clone());
            let channel = fleet.channel(builder).await;
            let mut client = ProbeClient::new(channel.clone());
            let call = tokio::spawn(async move { client.get(request("held")).await });
            entered.passed().await;
            match cancelled {
                true => call.abort(),
                false => {
                    fleet
                        .seen
                        .until("it arrived", |seen| seen.calls() == 1)
                        .await;
                    release.open();
                    let response = call.await.unwrap().unwrap();
                    // The hook has 100 ms: where that passed first, a hedge was sent.
                    assert!(!response.hedge_won());
                }
            }
            eventually("the hook is dropped", || {
                dropped.load(Ordering::SeqCst) == 1
            })
            .await;
            release.open();
            settled(&channel).await;
        }
    }
}
