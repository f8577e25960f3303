//! Servers that say nothing, or nothing more.

use super::*;

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
async fn fa7_a5_all_silent() {
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
