//! Servers that drain, die and come back, while calls go on.

use std::time::Duration;

use interop::{
    Mode, Outcome, dials, ensure,
    peer::Peer,
    probe::{ProbeReply, ProbeRequest},
};
use tokio::{task::JoinHandle, time::Instant};
use tonic::{Code, Response, Status};
use tonic_hedge::{Builder, EndpointState, MethodPolicy};

use super::{
    Failed,
    load::{Load, Made},
    replicas::{Client, NEVER_MS, ROUNDS, Replicas, catch_up, log_of, request},
};

/// How long a server works at a call that it is to finish while it drains.
const FINISHES_MS: u32 = 1_000;

/// Between two calls that are to be held: a server in Python has a thread for each of them.
const BETWEEN: Duration = Duration::from_millis(40);

/// Calls before and after an event: every caller has made some.
const SOME: usize = 20;

/// The shortest first pause of a channel that cannot connect; the next ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

type Call = JoinHandle<Result<Response<ProbeReply>, Status>>;

/// A server that drains (GOAWAY) finishes what it has; all else goes to the other one. No call
/// fails, and none that is not repeatable arrives twice.
pub(super) async fn goaway(mode: Mode, replicas: &mut Replicas) -> Outcome {
    // What grpcio says while it drains: see `turned_away`.
    let policy = MethodPolicy::new().retryable_codes([Code::Cancelled]);
    let tolerant = |builder: Builder| builder.method("hedge.testing.v1.Probe/Get", policy);
    let client = replicas.client_with(mode, tolerant).await?;
    let (put, held) = at_a(replicas, &client, false, FINISHES_MS).await?;
    let mut load = Load::start(&client, mode);
    load.more(SOME).await?;
    replicas.a.tell("drain").await?;

    let response = held.await?.map_err(|status| causes(&status))?;
    ensure!(response.get_ref().replica == "a", "{response:?}");
    replicas.a.event("drained", "").await?;
    load.more(SOME).await?;
    let made = load.stop().await;
    all_ok(&made, |made| !turned_away(made))?;
    let endpoints = client.channel.measured().endpoints;
    let ready = endpoints.iter().filter(|e| e.state == EndpointState::Ready);
    ensure!(ready.count() == 1, "{endpoints:?}");

    // What the drained server saw was told before it said that it was done.
    catch_up(&replicas.b).await?;
    let puts = made.iter().filter(|made| !made.repeatable);
    for put in puts {
        let arrivals = arrivals(&[&replicas.a, &replicas.b], &put.id);
        let expected = usize::from(!turned_away(put));
        ensure!(arrivals == expected, "{}: {arrivals}", put.id);
    }
    let arrivals = arrivals(&[&replicas.a, &replicas.b], &put);
    ensure!(arrivals == 1, "{put}: {arrivals}");
    replicas.restart_a().await
}

/// A server that dies in mid-call: the other answers what is repeatable; what is not may have been
/// processed, so it ends with UNAVAILABLE and is not sent again.
pub(super) async fn killed_connection(mode: Mode, replicas: &mut Replicas) -> Outcome {
    let client = replicas.client(mode).await?;
    let (get, repeatable) = at_a(replicas, &client, true, NEVER_MS).await?;
    // Of a channel that has nothing under way at `a`, or it would take `b` by preference.
    let idle = replicas.client(mode).await?;
    let (put, other) = at_a(replicas, &idle, false, NEVER_MS).await?;
    if mode != Mode::Off {
        // Its hedge is on its way.
        replicas.b.event("arrived", &get).await?;
    }
    replicas.a.kill().await?;

    let response = repeatable.await??;
    ensure!(response.get_ref().replica == "b", "{response:?}");
    let log = log_of(&response)?;
    ensure!(log.hedged() == (mode != Mode::Off), "{log}");

    let Err(status) = other.await? else {
        return Err("a call that its server took along has an answer".into());
    };
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    let log = log_of(&status)?;
    ensure!(log.attempts().len() == 1, "{log}");
    catch_up(&replicas.b).await?;
    let arrivals = arrivals(&[&replicas.a, &replicas.b], &put);
    ensure!(arrivals == 1, "{arrivals}");
    replicas.restart_a().await
}

/// A server that dies and comes back at the same address serves again. Meanwhile it is dialled
/// with growing pauses, and no repeatable call fails.
pub(super) async fn restarted(mode: Mode, replicas: &mut Replicas) -> Outcome {
    let client = replicas.client(mode).await?;
    let mut load = Load::start(&client, mode);
    load.more(SOME).await?;
    let address = format!("127.0.0.1:{}", replicas.a.port);
    let dials_before = dials::failed(&address);
    replicas.a.kill().await?;
    let down = Instant::now();
    let before = replicas.a.events_of("arrived");
    load.more(SOME).await?;

    replicas.restart_a().await?;
    replicas.a.any("arrived", "call-").await?;
    let down = down.elapsed();
    let dials = dials::failed(&address) - dials_before;
    load.more(SOME).await?;
    let made = load.stop().await;

    all_ok(&made, |made| made.repeatable)?;
    catch_up(&replicas.a).await?;
    catch_up(&replicas.b).await?;
    for put in made.iter().filter(|made| !made.repeatable) {
        let died = before.iter().filter(|event| event.id == put.id).count();
        let arrivals = died + arrivals(&[&replicas.a, &replicas.b], &put.id);
        match &put.result {
            Ok(_) => ensure!(arrivals == 1, "{}: {arrivals}", put.id),
            Err(status) => {
                ensure!(status.code() == Code::Unavailable, "{status:?}");
                ensure!(arrivals <= 1, "{}: {arrivals}", put.id);
            }
        }
    }
    // n pauses take at least 2^n - 1 of the first one. It is dialled once before them all.
    let doubled = (down.div_duration_f64(FIRST_PAUSE) + 1.0).log2();
    let most = doubled as usize + 1;
    ensure!(dials >= 1, "it was never seen to be down");
    ensure!(dials <= most, "{dials} dials in {down:?}, of {most}");
    Ok(())
}

/// A call that `a` holds for so long, and its id.
async fn at_a(
    replicas: &Replicas,
    client: &Client,
    repeatable: bool,
    held_ms: u32,
) -> Result<(String, Call), Failed> {
    // The picker takes the one with less to do, so those at `b` stay there meanwhile.
    let mut elsewhere: Vec<Call> = Vec::new();
    for _ in 0..ROUNDS {
        let message = ProbeRequest {
            delay_ms: held_ms,
            only_replica: "a".to_owned(),
            // A hedge leaves `a` the time to die first.
            slow_replica: "b".to_owned(),
            slow_ms: FINISHES_MS,
            ..request()
        };
        let id = message.id.clone();
        let mut probe = client.probe.clone();
        let call = tokio::spawn(async move {
            match repeatable {
                true => probe.get(message).await,
                false => probe.put(message).await,
            }
        });
        if replicas.arrival(&id).await?.name == "a" {
            elsewhere.iter().for_each(Call::abort);
            return Ok((id, call));
        }
        elsewhere.push(call);
        tokio::time::sleep(BETWEEN).await;
    }
    Err("the picker never chose a".into())
}

/// A status and what caused it, down to the transport.
fn causes(status: &Status) -> String {
    let mut text = status.to_string();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        text.push_str(&format!(" <- {error}"));
        source = error.source();
    }
    text
}

/// Whether the server itself has refused the call, as grpcio does with what comes between its
/// `stop` and its GOAWAY. It reaches no handler; but CANCELLED does not say so, and by itself is
/// an answer, which a user may list as retryable for a method that is repeatable.
fn turned_away(made: &Made) -> bool {
    // A status that this side makes up has no headers.
    let by_server = |status: &Status| status.metadata().contains_key("content-type");
    !made.repeatable
        && matches!(&made.result, Err(status) if status.code() == Code::Cancelled && by_server(status))
}

fn all_ok(made: &[Made], which: impl Fn(&Made) -> bool) -> Outcome {
    for made in made.iter().filter(|made| which(made)) {
        if let Err(status) = &made.result {
            let method = if made.repeatable { "Get" } else { "Put" };
            return Err(format!("{method} {} failed: {status:?}", made.id).into());
        }
    }
    Ok(())
}

fn arrivals(peers: &[&Peer], id: &str) -> usize {
    let of = |peer: &&Peer| peer.events("arrived", id).len();
    peers.iter().map(of).sum()
}
