//! The race of one call over real tonic servers: who answers, who is cancelled, what the log says.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use support::{
    Arrival, Fleet, Latch, ProbeClient, request, settled,
    wire::{in_trailers, with_trailers},
};
use tonic::{Code, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, BreakerState, BudgetPolicy, CallLog, Hedge, HedgedChannel,
    ResponseExt, Retry,
};

const NEVER: Duration = Duration::from_secs(3600);

/// The first method's numbers.
fn get(channel: &HedgedChannel) -> tonic_hedge::MethodMeasured {
    let methods = channel.measured().methods;
    let get = |m: &tonic_hedge::MethodMeasured| m.method == "hedge.testing.v1.Probe/Get";
    methods.into_iter().find(get).unwrap()
}

/// RC1: a fast original is alone, and pays nothing.
#[tokio::test]
async fn rc1_fast_primary() {
    let fleet = Fleet::start(2, |arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    assert_eq!(log.attempts().len(), 1);
    assert_eq!(log.attempts()[0].kind(), AttemptKind::Original);
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Won(Code::Ok));
    assert!(!response.hedged());
    assert_eq!(fleet.seen.calls(), 1);
    let get = get(&channel);
    assert_eq!((get.calls, get.attempts, get.hedges), (1, 1, 0));
    assert!(get.suppressed.is_empty(), "{get:?}");
    assert_eq!(channel.measured().budget, Some(100.0));
}

/// RC2, CA6: a hedge on another replica wins, and the original's handler is dropped.
#[tokio::test]
async fn rc2_hedge_wins() {
    let fleet = Fleet::start(2, |arrival| async move {
        if arrival.previous() == 0 {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    assert!(log.hedged() && log.hedge_won());
    assert_eq!(log.attempts().len(), 2);
    assert_eq!(log.attempts()[0].outcome(), AttemptOutcome::Discarded);
    assert_eq!(log.attempts()[1].kind(), AttemptKind::Hedge);
    assert_eq!(log.attempts()[1].outcome(), AttemptOutcome::Won(Code::Ok));
    assert!(log.attempts()[1].start() >= Duration::from_millis(20));
    assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
    fleet
        .seen
        .until("the loser is cancelled", |seen| seen.cancelled() == 1)
        .await;
    assert_eq!((fleet.seen.calls(), fleet.seen.finished()), (2, 1));
    let winner = &fleet.seen.of("1")[1].replica;
    assert_eq!(&response.get_ref().replica, winner);
    let get = get(&channel);
    assert_eq!((get.hedges, get.hedges_won), (1, 1));
    assert_eq!(channel.measured().budget, Some(99.0));
}

/// RC3: the original answers after its hedge has started; the hedge is cancelled.
#[tokio::test]
async fn rc3_primary_wins_late() {
    let hedged = Latch::closed();
    let fleet = Fleet::start(2, move |arrival| {
        let hedged = hedged.clone();
        async move {
            if arrival.previous() > 0 {
                hedged.open();
                std::future::pending::<()>().await;
            }
            hedged.passed().await;
            arrival.ok()
        }
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
    let log = response.call_log().unwrap();
    assert!(log.hedged() && !log.hedge_won());
    assert_eq!(log.attempts()[1].outcome(), AttemptOutcome::Discarded);
    fleet
        .seen
        .until("the hedge is cancelled", |seen| seen.cancelled() == 1)
        .await;
    let get = get(&channel);
    assert_eq!((get.hedges, get.hedges_won), (1, 0));
}

/// RC5: a fast failure is a matter for retries alone: no hedge is started as well.
#[tokio::test]
async fn rc5_fast_retryable_failure() {
    let fleet = Fleet::start(3, |arrival| async move {
        match arrival.previous() {
            0 => Err(Status::unavailable("restarting")),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(NEVER))
        .retry(Retry::default().base(Duration::from_millis(1)));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    let kinds: Vec<_> = log.attempts().iter().map(|a| a.kind()).collect();
    assert_eq!(kinds, [AttemptKind::Original, AttemptKind::Retry]);
    assert_eq!(
        log.attempts()[0].outcome(),
        AttemptOutcome::Failed(Code::Unavailable)
    );
    // A retry goes rather to another replica.
    assert_ne!(log.attempts()[0].endpoint(), log.attempts()[1].endpoint());
    assert_eq!(fleet.seen.calls(), 2);
}

/// RC6: the original fails while its hedge runs; the call waits for the hedge.
#[tokio::test]
async fn rc6_primary_fails_hedge_running() {
    let hedged = Latch::closed();
    let release = Latch::closed();
    let held = release.clone();
    let fleet = Fleet::start(2, move |arrival| {
        let (hedged, held) = (hedged.clone(), held.clone());
        async move {
            if arrival.previous() == 0 {
                hedged.passed().await;
                return Err(Status::unavailable("original"));
            }
            hedged.open();
            held.passed().await;
            arrival.ok()
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(2);
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("the original has failed", |seen| seen.finished() == 1)
        .await;
    assert!(!call.is_finished(), "the hedge may still answer");
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.get_ref().previous_attempts, 1);
    let log = response.call_log().unwrap();
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    assert_eq!(log.attempts()[0].outcome(), failed);
    assert!(log.hedge_won());
    assert_eq!(fleet.seen.cancelled(), 0);
}

/// RC7: a status that another attempt would only repeat ends the race at once.
#[tokio::test]
async fn rc7_fatal_status() {
    let hedged = Latch::closed();
    let fleet = Fleet::start(2, move |arrival| {
        let hedged = hedged.clone();
        async move {
            if arrival.previous() == 0 {
                hedged.passed().await;
                return Err(Status::invalid_argument("page: -1"));
            }
            hedged.open();
            std::future::pending().await
        }
    })
    .await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let status = client.get(request("1")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "page: -1");
    let log = CallLog::of_status(&status).unwrap();
    let won = AttemptOutcome::Won(Code::InvalidArgument);
    assert_eq!(log.attempts()[0].outcome(), won);
    assert_eq!(log.attempts()[1].outcome(), AttemptOutcome::Discarded);
    fleet
        .seen
        .until("the hedge is cancelled", |seen| seen.cancelled() == 1)
        .await;
}

/// RC8: both fail, and the failure that came last is the call's.
#[tokio::test]
async fn rc8_both_fail() {
    let hedged = Latch::closed();
    let failed = Latch::closed();
    let original = failed.clone();
    let fleet = Fleet::start(2, move |arrival| {
        let (hedged, failed) = (hedged.clone(), failed.clone());
        async move {
            if arrival.previous() == 0 {
                hedged.passed().await;
                return Err(Status::unavailable("original"));
            }
            hedged.open();
            failed.passed().await;
            Err(Status::unavailable("hedge"))
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(2);
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the original's failure is counted", |measured| {
        let in_flight: u32 = measured.endpoints.iter().map(|e| e.in_flight).sum();
        fleet.seen.finished() == 1 && in_flight == 1
    })
    .await;
    original.open();
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "hedge")
    );
    let log = CallLog::of_status(&status).unwrap();
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    assert!(log.attempts().iter().all(|a| a.outcome() == failed));
    assert_eq!(log.attempts().len(), 2);
}

/// RC9, WR5: both answer at once, over and over: each call is counted once, and what was started
/// is either won or discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rc9_both_ready_at_once() {
    let fleet = Fleet::start(2, |arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::immediately()).budget(
        BudgetPolicy::default()
            .ratio(1.0)
            .capacity(1e6)
            .initial(1e6),
    );
    let channel = fleet.channel(builder).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            let mut won = 0;
            for call in 0..250 {
                let id = format!("{task}-{call}");
                let response = client.get(request(&id)).await.unwrap();
                assert_eq!(response.get_ref().id, id);
                let log = response.call_log().unwrap();
                let winners = log
                    .attempts()
                    .iter()
                    .filter(|attempt| matches!(attempt.outcome(), AttemptOutcome::Won(_)));
                assert_eq!(winners.count(), 1, "{log}");
                won += u64::from(log.hedge_won());
            }
            won
        });
    }
    let won: u64 = tasks.join_all().await.into_iter().sum();
    settled(&channel).await;
    let get = get(&channel);
    assert_eq!((get.calls, get.hedges_won), (2_000, won));
    assert_eq!(get.attempts, get.calls + get.hedges);
    assert!(get.hedges > 1_000, "{get:?}");
}

/// RC12, case 4: an error in a response without a body is not success, however early it comes.
#[tokio::test]
async fn rc12_trailers_only_error_is_not_success() {
    let failed = Latch::closed();
    let release = failed.clone();
    let fleet = Fleet::start(2, move |arrival| {
        let failed = failed.clone();
        async move {
            if arrival.previous() > 0 {
                return Err(Status::unavailable("hedge"));
            }
            failed.passed().await;
            arrival.ok()
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(2);
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let call = tokio::spawn(async move { client.get(request("1")).await });
    fleet
        .seen
        .until("the hedge has failed", |seen| seen.finished() == 1)
        .await;
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
    assert!(!response.call_log().unwrap().hedge_won());
}

/// RC13: a status that comes in trailers after no message is seen, retried, and counted.
#[tokio::test]
async fn rc13_status_only_in_trailers() {
    let fleet = Fleet::rewriting(2, Arc::new(in_trailers), |arrival: Arrival| async move {
        match arrival.request.id.as_str() {
            "once" if arrival.previous() > 0 => arrival.ok(),
            _ => Err(Status::unavailable("in trailers")),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(NEVER))
        .retry(Retry::default().base(Duration::ZERO));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(request("once")).await.unwrap();
    let outcomes: Vec<_> = response.call_log().unwrap().attempts().to_vec();
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    assert_eq!(outcomes[0].outcome(), failed);
    assert_eq!(outcomes[1].kind(), AttemptKind::Retry);

    for _ in 0..2 {
        let status = client.get(request("always")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    let breaker = channel.measured().breakers.remove(0);
    assert_eq!(breaker.state, BreakerState::Open, "five in a row");
}

/// RC14: a message that a bad status follows is not handed out as success.
#[tokio::test]
async fn rc14_message_then_bad_status() {
    let bad = |trailers: &mut http::HeaderMap| {
        trailers.insert("grpc-status", http::HeaderValue::from_static("13"));
        trailers.insert("grpc-message", http::HeaderValue::from_static("disk"));
    };
    let rewrite = move |response| with_trailers(response, bad);
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival| async move { arrival.ok() }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let status = client.get(request("1")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "disk"));
    let log = CallLog::of_status(&status).unwrap();
    let won = AttemptOutcome::Won(Code::Internal);
    assert_eq!(log.attempts()[0].outcome(), won);
}

/// Case 4, the variant: a hedge's message and then a failure do not beat the original's OK.
#[tokio::test]
async fn case_4_message_then_failure_in_trailers_does_not_win() {
    let failed = Latch::closed();
    let release = failed.clone();
    let rewrite = |response: http::Response<tonic::body::Body>| {
        if !response.headers().contains_key("x-fail") {
            return response;
        }
        with_trailers(response, |trailers| {
            trailers.insert("grpc-status", http::HeaderValue::from_static("14"));
        })
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), move |arrival: Arrival| {
        let failed = failed.clone();
        async move {
            let mut response = arrival.ok()?;
            if arrival.previous() == 0 {
                failed.passed().await;
            } else {
                response
                    .metadata_mut()
                    .insert("x-fail", "1".parse().unwrap());
            }
            Ok(response)
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(2);
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the hedge has failed", |measured| {
        let in_flight: u32 = measured.endpoints.iter().map(|e| e.in_flight).sum();
        fleet.seen.finished() == 1 && in_flight == 1
    })
    .await;
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
}

/// RC15: headers, message and trailers of an answer come from the same attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rc15_answer_is_not_mixed() {
    let rewrite = |response: http::Response<tonic::body::Body>| {
        let Some(mark) = response.headers().get("x-head").cloned() else {
            return response;
        };
        with_trailers(response, move |trailers| {
            trailers.insert("x-tail", mark.clone());
        })
    };
    let fleet = Fleet::rewriting(3, Arc::new(rewrite), |arrival: Arrival| async move {
        let mut response = arrival.ok()?;
        let mark = arrival.replica.parse().unwrap();
        response.metadata_mut().insert("x-head", mark);
        Ok(response)
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::immediately().max_concurrent(3))
        .budget(
            BudgetPolicy::default()
                .ratio(1.0)
                .capacity(1e6)
                .initial(1e6),
        );
    let channel = fleet.channel(builder).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            for call in 0..250 {
                let id = format!("{task}-{call}");
                let response = client.get(request(&id)).await.unwrap();
                let replica = response.get_ref().replica.as_bytes();
                assert_eq!(response.get_ref().id, id);
                for mark in ["x-head", "x-tail"] {
                    let mut values = response.metadata().get_all(mark).iter();
                    assert_eq!(values.next().unwrap().as_bytes(), replica);
                    assert!(values.next().is_none());
                }
            }
        });
    }
    tasks.join_all().await;
}

/// RC16: an attempt cap is kept, however many hedges a policy allows at once.
#[tokio::test]
async fn rc16_attempt_cap() {
    let fleet = Fleet::start(5, |_| async { Err(Status::unavailable("down")) }).await;
    let builder = fleet
        .builder()
        .hedge(Hedge::immediately().max_concurrent(100))
        .retry(Retry::default().base(Duration::ZERO))
        .max_attempts(4)
        .budget(BudgetPolicy::default().capacity(1e4).initial(1e4))
        .without_breaker();
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    for call in 0..50 {
        let id = call.to_string();
        let status = client.get(request(&id)).await.unwrap_err();
        let log = CallLog::of_status(&status).unwrap();
        assert_eq!(log.attempts().len(), 4, "{log}");
    }
    assert_eq!(fleet.seen.calls(), 200);
}

/// RC18: an older attempt answers after the newer one has failed.
#[tokio::test]
async fn rc18_older_attempt_answers_after_newer_failed() {
    let failed = Latch::closed();
    let release = failed.clone();
    let fleet = Fleet::start(3, move |arrival| {
        let failed = failed.clone();
        async move {
            match arrival.previous() {
                0 => {
                    failed.passed().await;
                    arrival.ok()
                }
                _ => Err(Status::unavailable("hedge")),
            }
        }
    })
    .await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let call = tokio::spawn(async move { client.get(request("1")).await });
    // The first hedge's failure starts the second at once; then the attempts are used up.
    fleet
        .seen
        .until("both hedges have failed", |seen| seen.finished() == 2)
        .await;
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
    let log = response.call_log().unwrap();
    let failed = AttemptOutcome::Failed(Code::Unavailable);
    let outcomes: Vec<_> = log.attempts().iter().map(|a| a.outcome()).collect();
    assert_eq!(outcomes[..2], [AttemptOutcome::Won(Code::Ok), failed]);
}

/// Case 5: an attempt whose headers come and nothing else is beaten; its stream is reset.
#[tokio::test]
async fn case_5_head_then_silence() {
    let reset = Latch::closed();
    let dropped = reset.clone();
    let rewrite = move |response: http::Response<tonic::body::Body>| {
        if !response.headers().contains_key("x-silent") {
            return response;
        }
        let silent = Silent(dropped.clone());
        response.map(|_| tonic::body::Body::new(silent))
    };
    let fleet = Fleet::rewriting(2, Arc::new(rewrite), |arrival: Arrival| async move {
        let mut response = arrival.ok()?;
        if arrival.previous() == 0 || arrival.request.id == "both" {
            response
                .metadata_mut()
                .insert("x-silent", "1".parse().unwrap());
        }
        Ok(response)
    })
    .await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 1);
    tokio::time::timeout(support::PATIENCE, reset.passed())
        .await
        .expect("the silent stream is reset");

    let mut both = tonic::Request::new(request("both"));
    both.set_timeout(Duration::from_millis(200));
    let status = client.get(both).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let log = CallLog::of_status(&status).unwrap();
    assert!(log.duration() >= Duration::from_millis(200), "{log}");
    settled(&channel).await;
}

/// A body that says nothing, and opens its latch when it is dropped.
struct Silent(Latch);

impl http_body::Body for Silent {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        std::task::Poll::Pending
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Case 6: losers are not failures, and do not pull the estimate down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_6_losers_are_not_failures() {
    let fleet = Fleet::start(2, |arrival| async move {
        if arrival.previous() == 0 {
            // Slow but healthy: always beaten.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        arrival.ok()
    })
    .await;
    // A floor that no hedge's own latency reaches.
    let threshold = Duration::from_millis(20);
    let hedge = Hedge::at(0.5)
        .cold_start(threshold)
        .minimum_delay(threshold);
    let builder = fleet
        .builder()
        .hedge(hedge.maximum_delay(threshold))
        .budget(
            BudgetPolicy::default()
                .ratio(1.0)
                .capacity(1e4)
                .initial(1e4),
        );
    let channel = fleet.channel(builder).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut client = ProbeClient::new(channel.clone());
        tasks.spawn(async move {
            for _ in 0..25 {
                let response = client.get(request("1")).await.unwrap();
                assert!(response.call_log().unwrap().hedge_won());
            }
        });
    }
    tasks.join_all().await;
    let measured = channel.measured();
    let breaker = &measured.breakers[0];
    assert_eq!(breaker.state, BreakerState::Closed);
    assert_eq!(breaker.error_rate.unwrap_or_default(), 0.0);
    let get = get(&channel);
    assert_eq!((get.calls, get.hedges, get.hedges_won), (500, 500, 500));
    // Each original had run for at least the threshold when it was cut off.
    assert_eq!(get.samples, 500);
    let [p50, ..] = get.latency.unwrap();
    assert!(
        p50.as_secs_f64() >= 0.98 * threshold.as_secs_f64(),
        "{p50:?}"
    );
}
