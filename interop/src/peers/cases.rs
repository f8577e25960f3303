//! The cases: what a hedged channel promises, asked of servers that are not tonic's.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tonic::{Code, Request, Response, Status};
use tonic_hedge::{
    AttemptKind, AttemptOutcome, Builder, CallLog, EndpointState, Hedge, HedgedChannel, ResponseExt,
};

use interop::{
    Outcome, ensure,
    peer::Peer,
    probe::{self, ProbeReply, ProbeRequest, probe_client::ProbeClient},
};

/// All cases, in the order in which they run.
pub(crate) const CASES: &[&str] = &[
    "unary",
    "large_unary",
    "hedge_wins",
    "attempt_headers",
    "non_idempotent_once",
    "status_details",
    "pushback_stops",
    "pushback_delays",
    "deadline",
    "caller_gone",
    "server_streaming",
];

/// Longer than any case: a server that holds its answer for so long never gives it.
const NEVER_MS: u32 = 600_000;

/// When a hedge is due: by then a slow server, too, has told that the original has arrived.
const DELAY: Duration = Duration::from_millis(150);

/// Two servers of one peer.
pub(crate) struct Replicas {
    a: Peer,
    b: Peer,
}

/// A call that was made, and which server it was first sent to.
struct Raced {
    id: String,
    response: Response<ProbeReply>,
    log: CallLog,
}

pub(crate) async fn run(case: &str, replicas: &Replicas) -> Outcome {
    match case {
        "unary" => unary(replicas).await,
        "large_unary" => large_unary(replicas).await,
        "hedge_wins" => hedge_wins(replicas).await,
        "attempt_headers" => attempt_headers(replicas).await,
        "non_idempotent_once" => non_idempotent_once(replicas).await,
        "status_details" => status_details(replicas).await,
        "pushback_stops" => pushback_stops(replicas).await,
        "pushback_delays" => pushback_delays(replicas).await,
        "deadline" => deadline(replicas).await,
        "caller_gone" => caller_gone(replicas).await,
        "server_streaming" => server_streaming(replicas).await,
        _ => Err("listed but not written".into()),
    }
}

/// The answer is the server's, and it came from one attempt.
async fn unary(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::at(0.95)).await?;
    let request = request();
    let response = client.get(request.clone()).await?;
    let reply = response.get_ref();
    ensure!(reply.id == request.id, "{reply:?}");
    ensure!(reply.previous_attempts == 0, "{reply:?}");
    let log = log_of(&response)?;
    ensure!(log.attempts().len() == 1, "{log}");
    ensure!(
        log.attempts()[0]
            .endpoint()
            .ends_with(&port_of(replicas, &reply.replica)?),
        "{log}"
    );
    Ok(())
}

/// Bodies of gRPC's own interop case, raced: bytes of both ways are whole.
async fn large_unary(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::immediately()).await?;
    let mut hedged = 0;
    for _ in 0..10 {
        let response = client
            .get(ProbeRequest {
                payload: vec![1; 271_828],
                response_bytes: 314_159,
                ..request()
            })
            .await?;
        let size = response.get_ref().payload.len();
        ensure!(size == 314_159, "{size}");
        // Where this thread was held up so long that the answer is there first, none is needed.
        hedged += u32::from(response.hedged());
    }
    ensure!(hedged > 0, "{hedged}");
    Ok(())
}

/// The slow server loses, and its own cancellation hook runs.
async fn hedge_wins(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::after(DELAY)).await?;
    let raced = replicas.race(&mut client).await?;
    let (log, id) = (&raced.log, raced.id.as_str());
    ensure!(log.hedge_won(), "{log}");
    ensure!(
        log.attempts()[0].outcome() == AttemptOutcome::Discarded,
        "{log}"
    );
    ensure!(
        log.attempts()[0].endpoint() != log.attempts()[1].endpoint(),
        "{log}"
    );
    let (winner, loser) = replicas.by_name(&raced.response.get_ref().replica)?;
    loser.event("cancelled", id).await?;
    winner.event("finished", id).await?;
    ensure!(
        loser.events("finished", id).is_empty(),
        "the loser finished too"
    );
    Ok(())
}

/// A hedge says that it is one, and has less time left than its original had.
async fn attempt_headers(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::after(DELAY)).await?;
    let raced = replicas.race(&mut client).await?;
    let (winner, loser) = replicas.by_name(&raced.response.get_ref().replica)?;
    let original = loser.event("arrived", &raced.id).await?;
    let hedge = winner.event("arrived", &raced.id).await?;
    ensure!(original.previous_attempts.is_none(), "{original:?}");
    ensure!(hedge.previous_attempts == Some(1), "{hedge:?}");
    let reply = raced.response.get_ref();
    ensure!(reply.previous_attempts == 1, "{reply:?}");
    let (Some(first), Some(second)) = (original.timeout, hedge.timeout) else {
        return Err(format!("no deadline: {original:?}, {hedge:?}").into());
    };
    ensure!(first <= TIMEOUT && !first.is_zero(), "{first:?}");
    // Servers count in milliseconds, from when they look.
    ensure!(
        second < TIMEOUT - DELAY / 2 && !second.is_zero(),
        "{second:?}"
    );
    Ok(())
}

/// What is not declared idempotent reaches one server, once, slow or failing.
async fn non_idempotent_once(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::immediately()).await?;
    let slow = ProbeRequest {
        delay_ms: 200,
        ..request()
    };
    let response = client.put(slow.clone()).await?;
    ensure!(!response.hedged(), "{}", log_of(&response)?);
    let arrivals = replicas.arrivals(&slow.id).await?;
    ensure!(arrivals == 1, "{arrivals}");

    let failing = ProbeRequest {
        status: Code::Unavailable as u32,
        ..request()
    };
    let status = failure(client.put(failing.clone()).await)?;
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let arrivals = replicas.arrivals(&failing.id).await?;
    ensure!(arrivals == 1, "{arrivals}");
    Ok(())
}

/// A status arrives whole: code, message and binary details.
async fn status_details(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::after(DELAY)).await?;
    let request = ProbeRequest {
        status: Code::FailedPrecondition as u32,
        payload: vec![0, 1, 2, 253, 254, 255],
        ..request()
    };
    let status = failure(client.get(request.clone()).await)?;
    ensure!(status.code() == Code::FailedPrecondition, "{status:?}");
    ensure!(
        status.message() == format!("scripted {}", request.id),
        "{status:?}"
    );
    ensure!(
        status.details() == request.payload,
        "{:?}",
        status.details()
    );
    ensure!(CallLog::of_status(&status).is_some(), "{status:?}");
    Ok(())
}

/// Negative pushback ends all further attempts of a call that would have been retried.
async fn pushback_stops(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::on_failure()).await?;
    let unasked = ProbeRequest {
        status: Code::Unavailable as u32,
        ..request()
    };
    let status = failure(client.get(unasked.clone()).await)?;
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let arrivals = replicas.arrivals(&unasked.id).await?;
    ensure!(arrivals > 1, "{arrivals}");

    let stopped = ProbeRequest {
        pushback_ms: Some(-1),
        id: request().id,
        ..unasked
    };
    let status = failure(client.get(stopped.clone()).await)?;
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let arrivals = replicas.arrivals(&stopped.id).await?;
    ensure!(arrivals == 1, "{arrivals}");
    Ok(())
}

/// A pushback is how long the next attempt waits.
async fn pushback_delays(replicas: &Replicas) -> Outcome {
    let pushback = Duration::from_millis(300);
    let mut client = replicas.client(Hedge::on_failure()).await?;
    let request = ProbeRequest {
        status: Code::Unavailable as u32,
        pushback_ms: Some(i32::try_from(pushback.as_millis())?),
        ..request()
    };
    let status = failure(client.get(request).await)?;
    let log = CallLog::of_status(&status).ok_or("no call log")?;
    let [first, second, ..] = log.attempts() else {
        return Err(format!("not retried: {log}").into());
    };
    ensure!(second.kind() == AttemptKind::Retry, "{log}");
    ensure!(
        second.start() >= first.start() + first.duration() + pushback,
        "{log}"
    );
    Ok(())
}

/// The deadline ends the call, and every server that works for it hears of it.
async fn deadline(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::after(DELAY)).await?;
    let message = ProbeRequest {
        delay_ms: NEVER_MS,
        ..request()
    };
    let id = message.id.clone();
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(1));
    let status = failure(client.get(request).await)?;
    ensure!(status.code() == Code::DeadlineExceeded, "{status:?}");
    let log = CallLog::of_status(&status).ok_or("no call log")?;
    ensure!(log.hedged(), "{log}");
    replicas.a.event("cancelled", &id).await?;
    replicas.b.event("cancelled", &id).await?;
    Ok(())
}

/// A caller that goes away cancels both attempts.
async fn caller_gone(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::after(DELAY)).await?;
    let message = ProbeRequest {
        delay_ms: NEVER_MS,
        ..request()
    };
    let id = message.id.clone();
    let call = tokio::spawn(async move { client.get(message).await.map(drop) });
    replicas.a.event("arrived", &id).await?;
    replicas.b.event("arrived", &id).await?;
    call.abort();
    replicas.a.event("cancelled", &id).await?;
    replicas.b.event("cancelled", &id).await?;
    Ok(())
}

/// A stream passes as it is.
async fn server_streaming(replicas: &Replicas) -> Outcome {
    let mut client = replicas.client(Hedge::immediately()).await?;
    let request = ProbeRequest {
        messages: 5,
        ..request()
    };
    let mut replies = client.watch(request.clone()).await?.into_inner();
    let mut count = 0;
    while let Some(reply) = replies.message().await? {
        ensure!(reply.id == request.id, "{reply:?}");
        count += 1;
    }
    ensure!(count == 5, "{count}");
    let arrivals = replicas.arrivals(&request.id).await?;
    ensure!(arrivals == 1, "{arrivals}");
    Ok(())
}

/// The deadline of a raced call.
const TIMEOUT: Duration = Duration::from_secs(50);

impl Replicas {
    pub(crate) async fn start(
        command: &[String],
        descriptors: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let descriptors = descriptors.to_str().ok_or("not a path of text")?;
        let environment = [("INTEROP_DESCRIPTORS", descriptors)];
        let start = |name| Peer::start(name, command, &environment);
        let (a, b) = tokio::try_join!(start("a"), start("b"))?;
        Ok(Self { a, b })
    }

    /// A client whose channel is connected to both.
    async fn client(&self, hedge: Hedge) -> Result<ProbeClient<HedgedChannel>, Box<dyn Error>> {
        let channel = self.builder(hedge).build()?;
        let mut client = ProbeClient::new(channel.clone());
        loop {
            client.put(request()).await?;
            let endpoints = channel.measured().endpoints;
            if endpoints.iter().all(|e| e.state == EndpointState::Ready) {
                return Ok(client);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn builder(&self, hedge: Hedge) -> Builder {
        let uris = [&self.a, &self.b].map(|peer| format!("http://127.0.0.1:{}", peer.port));
        HedgedChannel::builder()
            .endpoints(uris)
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(hedge)
    }

    /// A call whose original went to a server that never answers it.
    async fn race(&self, client: &mut ProbeClient<HedgedChannel>) -> Result<Raced, Box<dyn Error>> {
        // The picker chooses, so each server is the slow one in turn until it is the one chosen.
        for round in 0..200 {
            let message = ProbeRequest {
                delay_ms: NEVER_MS,
                only_replica: [&self.a, &self.b][round % 2].name.to_owned(),
                ..request()
            };
            let id = message.id.clone();
            let mut request = Request::new(message);
            request.set_timeout(TIMEOUT);
            let response = client.get(request).await?;
            let log = log_of(&response)?.clone();
            if log.hedge_won() {
                return Ok(Raced { id, response, log });
            }
        }
        Err("no hedge won in 200 calls".into())
    }

    /// The server of this name, and the other.
    fn by_name(&self, name: &str) -> Result<(&Peer, &Peer), Box<dyn Error>> {
        match name {
            "a" => Ok((&self.a, &self.b)),
            "b" => Ok((&self.b, &self.a)),
            _ => Err(format!("a replica called {name:?}").into()),
        }
    }

    /// How often a call that has ended reached a server.
    async fn arrivals(&self, id: &str) -> Result<usize, Box<dyn Error>> {
        let mut arrivals = 0;
        for peer in [&self.a, &self.b] {
            // A server's output comes later than its answer, but in order: what follows a call
            // that is told is told too.
            let fence = request();
            let uri = format!("http://127.0.0.1:{}", peer.port);
            let channel = HedgedChannel::builder().endpoints([uri]).build()?;
            ProbeClient::new(channel).put(fence.clone()).await?;
            peer.event("finished", &fence.id).await?;
            arrivals += peer.events("arrived", id).len();
        }
        Ok(arrivals)
    }
}

fn port_of(replicas: &Replicas, name: &str) -> Result<String, Box<dyn Error>> {
    Ok(format!(":{}", replicas.by_name(name)?.0.port))
}

/// A request with an id of its own.
fn request() -> ProbeRequest {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Only unique: nothing else is ordered by it.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    ProbeRequest {
        id: format!("call-{id}"),
        ..ProbeRequest::default()
    }
}

fn log_of(response: &Response<ProbeReply>) -> Result<&CallLog, Box<dyn Error>> {
    response.call_log().ok_or_else(|| "no call log".into())
}

fn failure(result: Result<Response<ProbeReply>, Status>) -> Result<Status, Box<dyn Error>> {
    match result {
        Ok(response) => Err(format!("OK instead of a failure: {response:?}").into()),
        Err(status) => Ok(status),
    }
}
