//! `grpc-retry-pushback-ms` and RetryInfo: a server's word on further attempts is kept.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Answer, Arrival, Fleet, Latch, ProbeClient, request, settled};
use tonic::{Code, Request, Status};
use tonic_hedge::{AttemptKind, CallLog, Hedge, ResponseExt, Retry};

const NEVER: Duration = Duration::from_secs(3600);

fn unavailable(pushback: &str) -> Answer {
    let mut status = Status::unavailable("later");
    let value = http::HeaderValue::from_str(pushback).unwrap();
    status
        .metadata_mut()
        .as_mut()
        .insert("grpc-retry-pushback-ms", value);
    Err(status)
}

/// Case 11, PB1: what is no delay ends all further attempts, with the server's own status.
#[tokio::test]
async fn case_11_stop_values() {
    let fleet = Fleet::start(4, |arrival: Arrival| async move {
        unavailable(&String::from_utf8(arrival.request.payload).unwrap())
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(NEVER))
        .retry(Retry::default().base(Duration::ZERO))
        .max_attempts(4)
        .without_breaker();
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    for value in ["-1", "abc", "", "2147483648", "1.5", "-9999999999"] {
        let mut message = request(value);
        message.payload = value.into();
        let status = client.get(message).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "later")
        );
        let log = CallLog::of_status(&status).unwrap();
        assert_eq!(log.attempts().len(), 1, "{value:?}: {log}");
        assert_eq!(fleet.seen.of(value).len(), 1, "{value:?}");
    }
}

/// Case 11: a hedge's stop leaves the original alone, and no further hedge starts.
#[tokio::test]
async fn case_11_stop_lets_running_attempts_go_on() {
    let stopped = Latch::closed();
    let release = stopped.clone();
    let fleet = Fleet::start(4, move |arrival: Arrival| {
        let stopped = stopped.clone();
        async move {
            if arrival.previous() > 0 {
                return unavailable("-1");
            }
            stopped.passed().await;
            arrival.ok()
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(4);
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the hedge has failed", |measured| {
        let in_flight: u32 = measured.endpoints.iter().map(|e| e.in_flight).sum();
        fleet.seen.finished() == 1 && in_flight == 1
    })
    .await;
    // Many thresholds later there is still no other.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(fleet.seen.calls(), 2);
    release.open();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.get_ref().previous_attempts, 0);
    assert_eq!(response.call_log().unwrap().attempts().len(), 2);
    assert_eq!(fleet.seen.cancelled(), 0, "the original was left alone");
}

/// Case 11: the stop is sticky: a plain failure afterwards starts nothing.
#[tokio::test]
async fn case_11_stop_is_sticky() {
    let (hedged, stopped) = (Latch::closed(), Latch::closed());
    let release = stopped.clone();
    let fleet = Fleet::start(4, move |arrival: Arrival| {
        let (hedged, stopped) = (hedged.clone(), stopped.clone());
        async move {
            if arrival.previous() == 0 {
                hedged.passed().await;
                return unavailable("-1");
            }
            hedged.open();
            stopped.passed().await;
            Err(Status::unavailable("plain"))
        }
    })
    .await;
    let builder = fleet
        .builder()
        .retry(Retry::default().base(Duration::ZERO))
        .max_attempts(4);
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let call = tokio::spawn(async move { client.get(request("1")).await });
    support::until_measured(&channel, "the original has failed", |measured| {
        let in_flight: u32 = measured.endpoints.iter().map(|e| e.in_flight).sum();
        fleet.seen.finished() == 1 && in_flight == 1
    })
    .await;
    release.open();
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.message(), "plain");
    assert_eq!(CallLog::of_status(&status).unwrap().attempts().len(), 2);
    assert_eq!(fleet.seen.calls(), 2);
}

/// Case 11, PB2: the next attempt starts after the delay that the server gave, not sooner.
#[tokio::test]
async fn case_11_delay_is_kept() {
    let fleet = Fleet::start(4, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => unavailable("150"),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::after(NEVER))
        .retry(Retry::default().base(Duration::ZERO))
        .max_attempts(4);
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let response = client.get(request("1")).await.unwrap();
    let log = response.call_log().unwrap();
    let [first, second] = log.attempts() else {
        panic!("{log}")
    };
    assert_eq!(second.kind(), AttemptKind::Retry);
    let pause = second.start() - first.start() - first.duration();
    assert!(pause >= Duration::from_millis(150), "{log}");
}

/// PB6: a hedge's pushback delays the next hedge; the original goes on.
#[tokio::test]
async fn pb6_hedge_in_flight_gets_pushback() {
    let last = Latch::closed();
    let opened = last.clone();
    let fleet = Fleet::start(4, move |arrival: Arrival| {
        let last = last.clone();
        async move {
            match arrival.previous() {
                0 => std::future::pending().await,
                1 => unavailable("150"),
                _ => {
                    last.open();
                    arrival.ok()
                }
            }
        }
    })
    .await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let response = client.get(request("1")).await.unwrap();
    opened.passed().await;
    let log = response.call_log().unwrap();
    let [_, second, third] = log.attempts() else {
        panic!("{log}")
    };
    assert_eq!(third.kind(), AttemptKind::Hedge);
    let pause = third.start() - second.start() - second.duration();
    assert!(pause >= Duration::from_millis(150), "{log}");
}

/// PB4: a delay past the deadline ends the call now, with the server's status.
#[tokio::test]
async fn pb4_longer_than_the_deadline() {
    let fleet = Fleet::start(2, |_| async { unavailable("2147483647") }).await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let channel = fleet.channel(builder).await;
    let mut client = ProbeClient::new(channel.clone());
    let mut message = Request::new(request("1"));
    message.set_timeout(Duration::from_secs(600));
    let call = tokio::time::timeout(support::PATIENCE, client.get(message));
    let status = call.await.expect("it does not wait").unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "later")
    );
    assert_eq!(fleet.seen.calls(), 1);
    settled(&channel).await;
}

/// PB7: pushback on success says nothing.
#[tokio::test]
async fn pb7_on_ok_ignored() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        let mut response = arrival.ok()?;
        let value = "-1".parse().unwrap();
        response
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", value);
        Ok(response)
    })
    .await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let response = client.get(request("1")).await.unwrap();
    assert_eq!(response.call_log().unwrap().attempts().len(), 1);
}

/// PB8: RESOURCE_EXHAUSTED alone is not repeated; with pushback it is retried.
#[tokio::test]
async fn pb8_resource_exhausted_with_pushback() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() > 0 {
            return arrival.ok();
        }
        let mut status = Status::resource_exhausted("full");
        if arrival.request.id == "pushback" {
            let value = "1".parse().unwrap();
            status
                .metadata_mut()
                .insert("grpc-retry-pushback-ms", value);
        }
        Err(status)
    })
    .await;
    let builder = fleet.builder().hedge(Hedge::after(NEVER));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let status = client.get(request("plain")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(fleet.seen.of("plain").len(), 1);
    let response = client.get(request("pushback")).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 1);
}

/// A method that is not repeatable is not retried, whatever the server says.
#[tokio::test]
async fn pushback_repeats_nothing_that_is_not_repeatable() {
    let fleet = Fleet::start(2, |_| async { unavailable("0") }).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let status = client.put(request("1")).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "later")
    );
    assert_eq!(fleet.seen.calls(), 1);
}
