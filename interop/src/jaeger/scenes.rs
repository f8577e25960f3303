//! Calls on a stage, and what Jaeger has to show of each.

use std::{error::Error, future::pending, sync::Arc, time::Duration};

use interop::{Outcome, ensure, peer::Peer};
use serde_json::json;
use tokio::sync::Notify;
use tonic::{Code, Request, Response, Status};
use tonic_hedge::{BudgetPolicy, Criticality, Hedge, RequestExt as _, ResponseExt as _};

use crate::{
    checks, programs,
    script::probe::{ProbeReply, ProbeRequest},
    stage::{CALL, Stage, connected},
    trace::Trace,
};

/// All scenes, in the order in which they are played.
pub(crate) const SCENES: &[&str] = &[
    "hedge_wins",
    "original_wins",
    "not_idempotent",
    "sheddable",
    "no_budget",
    "retried",
    "failed",
    "python",
    "quickstart",
    "example",
    "no_collector",
];

/// What was looked at in a scene.
pub(crate) type Checks = Vec<(&'static str, Outcome)>;
type Played = Result<Checks, Box<dyn Error>>;

/// When a hedge is due. Short, since nothing fails if an answer takes longer on a busy machine.
const DELAY: Duration = Duration::from_millis(20);
const DELAY_MS: f64 = 20.0;

/// A server that holds its answer for so long never gives it.
const NEVER_MS: u32 = 600_000;

pub(crate) async fn play(scene: &str, stage: &Stage) -> Played {
    match scene {
        "hedge_wins" => hedge_wins(stage).await,
        "original_wins" => original_wins(stage).await,
        "not_idempotent" => not_idempotent(stage).await,
        "sheddable" => sheddable(stage).await,
        "no_budget" => no_budget(stage).await,
        "retried" => retried(stage).await,
        "failed" => failed(stage).await,
        "python" => python(stage).await,
        "quickstart" => programs::quickstart(stage).await,
        "example" => programs::example(stage).await,
        "no_collector" => programs::no_collector().await,
        _ => Err("listed but not written".into()),
    }
}

async fn hedge_wins(stage: &Stage) -> Played {
    let fleet = stage
        .fleet(async |arrival| match arrival.before {
            0 => pending().await,
            _ => Ok(()),
        })
        .await?;
    let builder = stage.builder(fleet.uris()).hedge(Hedge::after(DELAY));
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("hedge wins", client.get(request())).await;
    response?;
    let trace = stage.trace(&id, 6).await?;
    let mut checks = hedged(&trace);
    checks.push((
        "server spans",
        checks::servers(&trace, |port| fleet.service(port)),
    ));
    Ok(checks)
}

async fn original_wins(stage: &Stage) -> Played {
    let hedge_arrived = Arc::new(Notify::new());
    let fleet = stage
        .fleet(move |arrival| {
            let hedge_arrived = Arc::clone(&hedge_arrived);
            async move {
                if arrival.before > 0 {
                    hedge_arrived.notify_one();
                    pending::<()>().await;
                }
                hedge_arrived.notified().await;
                Ok(())
            }
        })
        .await?;
    let builder = stage.builder(fleet.uris()).hedge(Hedge::after(DELAY));
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("original wins", client.get(request())).await;
    response?;
    let trace = stage.trace(&id, 6).await?;
    let events = [("hedge.started", json!(1)), ("hedge.discarded", json!(1))];
    let outcomes = [
        ("original", "won", Some("OK")),
        ("hedge", "discarded", None),
    ];
    Ok(vec![
        ("parentage", checks::parentage(&trace, 2)),
        ("overlap", checks::overlap(&trace)),
        ("seven gates", checks::gates(&trace, None)),
        (
            "hedge events",
            checks::hedge_events(&trace, &events, Some(DELAY_MS)),
        ),
        ("discarded, no error", checks::outcomes(&trace, &outcomes)),
        ("the call is OK", checks::call_ends_as(&trace, "OK")),
        (
            "server spans",
            checks::servers(&trace, |port| fleet.service(port)),
        ),
    ])
}

async fn not_idempotent(stage: &Stage) -> Played {
    let fleet = stage.fleet(async |_| Ok(())).await?;
    let builder = stage.builder(fleet.uris()).hedge(Hedge::immediately());
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("not idempotent", client.put(request())).await;
    response?;
    let trace = stage.trace(&id, 4).await?;
    Ok(held_back(&trace, "repeatable", None))
}

async fn sheddable(stage: &Stage) -> Played {
    let fleet = stage.fleet(async |_| slow().await).await?;
    let builder = stage.builder(fleet.uris()).hedge(Hedge::after(DELAY));
    let mut client = connected(builder).await?;
    let request = request().criticality(Criticality::Sheddable);
    let (id, response) = stage.traced("sheddable", client.get(request)).await;
    response?;
    let trace = stage.trace(&id, 4).await?;
    Ok(held_back(&trace, "not_sheddable", Some(DELAY_MS)))
}

async fn no_budget(stage: &Stage) -> Played {
    let fleet = stage.fleet(async |_| slow().await).await?;
    let builder = stage
        .builder(fleet.uris())
        .hedge(Hedge::after(DELAY))
        .budget(BudgetPolicy::default().initial(0.0).ratio(0.0));
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("no budget", client.get(request())).await;
    response?;
    let trace = stage.trace(&id, 4).await?;
    Ok(held_back(&trace, "budget", Some(DELAY_MS)))
}

async fn retried(stage: &Stage) -> Played {
    let fleet = stage
        .fleet(async |arrival| match arrival.before {
            0 => Err(Status::unavailable("restarting")),
            _ => Ok(()),
        })
        .await?;
    let builder = stage.builder(fleet.uris()).hedge(Hedge::on_failure());
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("retried", client.get(request())).await;
    response?;
    let trace = stage.trace(&id, 6).await?;
    let outcomes = [
        ("original", "failed", Some("UNAVAILABLE")),
        ("retry", "won", Some("OK")),
    ];
    Ok(vec![
        ("parentage", checks::parentage(&trace, 2)),
        ("one after the other", checks::one_after_the_other(&trace)),
        ("failed, then OK", checks::outcomes(&trace, &outcomes)),
        ("the call is OK", checks::call_ends_as(&trace, "OK")),
        (
            "server spans",
            checks::servers(&trace, |port| fleet.service(port)),
        ),
    ])
}

/// A failure after as many attempts as it may have, and an answer that is an error.
async fn failed(stage: &Stage) -> Played {
    let fleet = stage
        .fleet(async |_| Err(Status::unavailable("restarting")))
        .await?;
    let builder = stage.builder(fleet.uris()).max_attempts(2);
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("failed", client.get(request())).await;
    ends_with(response, Code::Unavailable)?;
    let trace = stage.trace(&id, 6).await?;

    let fleet = stage
        .fleet(async |_| Err(Status::not_found("nothing here")))
        .await?;
    let builder = stage.builder(fleet.uris());
    let mut client = connected(builder).await?;
    let (id, response) = stage.traced("not found", client.get(request())).await;
    ends_with(response, Code::NotFound)?;
    let answered = stage.trace(&id, 4).await?;

    let outcomes = [
        ("original", "failed", Some("UNAVAILABLE")),
        ("retry", "failed", Some("UNAVAILABLE")),
    ];
    let answer = [("original", "won", Some("NOT_FOUND"))];
    Ok(vec![
        ("parentage", checks::parentage(&trace, 2)),
        ("every attempt failed", checks::outcomes(&trace, &outcomes)),
        (
            "so did the call",
            checks::call_ends_as(&trace, "UNAVAILABLE"),
        ),
        (
            "NOT_FOUND: the attempt",
            checks::outcomes(&answered, &answer),
        ),
        (
            "NOT_FOUND: the call",
            checks::call_ends_as(&answered, "NOT_FOUND"),
        ),
    ])
}

/// Two servers in Python, instrumented by OpenTelemetry's own package for grpcio.
async fn python(stage: &Stage) -> Played {
    let command = ["interop/python/serve".to_owned()];
    let start = async |name: &'static str, service: &str| {
        let endpoint = stage.jaeger.otlp_http();
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_SERVICE_NAME", service),
        ];
        Peer::start(name, &command, &environment).await
    };
    let (a, b) = tokio::try_join!(start("a", "python-a"), start("b", "python-b"))?;
    let uris = [&a, &b].map(|peer| format!("http://127.0.0.1:{}", peer.port));
    let builder = stage.builder(uris).hedge(Hedge::after(DELAY));
    let mut client = connected(builder).await?;
    // The picker chooses, so each server is the slow one in turn until it is the one chosen.
    for round in 0..200 {
        let request = ProbeRequest {
            id: "python".to_owned(),
            delay_ms: NEVER_MS,
            only_replica: [&a, &b][round % 2].name.to_owned(),
            ..ProbeRequest::default()
        };
        let (id, response) = stage.traced("python", client.get(request)).await;
        if !response?.call_log().is_some_and(|log| log.hedge_won()) {
            continue;
        }
        let trace = stage.trace(&id, 6).await?;
        let mut checks = hedged(&trace);
        let service = |port| match port == u64::from(a.port) {
            true => "python-a".to_owned(),
            false => "python-b".to_owned(),
        };
        checks.push(("server spans", checks::servers(&trace, service)));
        checks.push(("from another language", from_python(&trace)));
        return Ok(checks);
    }
    Err("no hedge won in 200 calls".into())
}

/// What holds of every call whose hedge won, 20 ms after its original.
fn hedged(trace: &Trace) -> Checks {
    let outcomes = [
        ("original", "discarded", None),
        ("hedge", "won", Some("OK")),
    ];
    let events = [
        ("hedge.started", json!(1)),
        ("hedge.discarded", json!(0)),
        ("hedge.won", json!(1)),
    ];
    vec![
        ("parentage", checks::parentage(trace, 2)),
        ("overlap", checks::overlap(trace)),
        ("endpoints", checks::endpoints(trace)),
        ("seven gates", checks::gates(trace, None)),
        (
            "hedge events",
            checks::hedge_events(trace, &events, Some(DELAY_MS)),
        ),
        ("discarded, no error", checks::outcomes(trace, &outcomes)),
        ("the call is OK", checks::call_ends_as(trace, "OK")),
    ]
}

/// What holds of every call that this gate alone kept from hedging.
fn held_back(trace: &Trace, gate: &'static str, threshold: Option<f64>) -> Checks {
    let events = [("hedge.suppressed", json!(gate))];
    let outcomes = [("original", "won", Some("OK"))];
    vec![
        ("parentage", checks::parentage(trace, 1)),
        ("the gate is shut", checks::gates(trace, Some(gate))),
        (
            "suppressed",
            checks::hedge_events(trace, &events, threshold),
        ),
        ("one attempt", checks::outcomes(trace, &outcomes)),
    ]
}

fn from_python(trace: &Trace) -> Outcome {
    for server in trace
        .spans
        .iter()
        .filter(|s| s.tag("span.kind") == "server")
    {
        let language = server.resource("telemetry.sdk.language");
        ensure!(language == "python", "{server:?}");
    }
    Ok(())
}

/// Slower than the threshold: it is passed by ten times.
async fn slow() -> Result<(), Status> {
    tokio::time::sleep(DELAY * 10).await;
    Ok(())
}

fn request() -> Request<ProbeRequest> {
    Request::new(ProbeRequest {
        id: CALL.to_string(),
        ..ProbeRequest::default()
    })
}

fn ends_with(response: Result<Response<ProbeReply>, Status>, code: Code) -> Outcome {
    match response {
        Err(status) if status.code() == code => Ok(()),
        other => Err(format!("{other:?} instead of {code:?}").into()),
    }
}
