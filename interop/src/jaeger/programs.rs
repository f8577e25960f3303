//! The examples that export, run as a user runs them.

use std::{env, error::Error, path::PathBuf, process::Output};

use interop::{Outcome, ensure};
use tokio::process::Command;

use crate::{checks, scenes::Checks, stage::Stage, trace::Trace};

const CALL: &str = "Sent.hedge.testing.v1.Probe/Get";
const ATTEMPT: &str = "Attempt.hedge.testing.v1.Probe/Get";

/// Of the quickstart's thousands of calls, one whose hedge won.
pub(crate) async fn quickstart(stage: &Stage) -> Result<Checks, Box<dyn Error>> {
    let output = run(
        "quickstart",
        &["--json", "--otlp", &stage.jaeger.otlp_grpc()],
    )
    .await?;
    succeeded(&output)?;
    let won = [
        ("hedge.attempt.kind", "hedge"),
        ("hedge.attempt.outcome", "won"),
    ];
    let found = stage.jaeger.find("quickstart", ATTEMPT, &won).await?;
    // Its spans were exported in batches: the others may still be under way.
    let root = found.spans.first().ok_or("no span")?;
    let trace = stage.jaeger.trace(&root.trace, 3).await?;
    let outcomes = [
        ("original", "discarded", None),
        ("hedge", "won", Some("OK")),
    ];
    Ok(vec![
        ("overlap", checks::overlap(&trace)),
        ("endpoints", checks::endpoints(&trace)),
        ("seven gates", checks::gates(&trace, None)),
        ("discarded, no error", checks::outcomes(&trace, &outcomes)),
        ("the call is OK", checks::call_ends_as(&trace, "OK")),
    ])
}

/// Every trace that examples/jaeger prints is there, and shows what it says.
pub(crate) async fn example(stage: &Stage) -> Result<Checks, Box<dyn Error>> {
    let output = run("jaeger", &["--endpoint", &stage.jaeger.otlp_grpc()]).await?;
    succeeded(&output)?;
    let text = String::from_utf8(output.stdout)?;
    let printed: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once("  "))
        .filter(|(id, _)| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect();
    let mut checks = Vec::new();
    // Each has the application's span, the call's, and a pair for each attempt.
    for (title, attempts, shows) in [
        ("usual calls", 40, usual as fn(&Trace) -> Outcome),
        ("the hedge wins", 2, hedge_wins),
        ("the original wins", 2, original_wins),
        ("held back: not idempotent", 1, |trace| {
            suppressed(trace, "repeatable")
        }),
        ("held back: sheddable", 1, |trace| {
            suppressed(trace, "not_sheddable")
        }),
        ("held back: no budget", 1, |trace| {
            suppressed(trace, "budget")
        }),
        ("retried", 2, retried),
        ("failed", 3, |trace| {
            checks::call_ends_as(trace, "UNAVAILABLE")
        }),
    ] {
        let calls = if title == "usual calls" { attempts } else { 1 };
        let spans = 1 + calls + 2 * attempts;
        checks.push((title, shown(stage, &printed, title, spans, shows).await));
    }
    let count = printed.len();
    let only = if count == checks.len() {
        Ok(())
    } else {
        Err(format!("{count} traces").into())
    };
    checks.push(("nothing else", only));
    Ok(checks)
}

/// examples/jaeger without a collector: an error that names it, and the exit status of one.
pub(crate) async fn no_collector() -> Result<Checks, Box<dyn Error>> {
    // The port of tcpmux, where nothing listens, and nothing that asks for any port is given it.
    let endpoint = "http://127.0.0.1:1";
    let mut checks = Vec::new();
    for (example, option) in [("jaeger", "--endpoint"), ("quickstart", "--otlp")] {
        let output = run(example, &[option, endpoint]).await?;
        checks.push((example, refused(&output, endpoint)));
    }
    Ok(checks)
}

fn refused(output: &Output, endpoint: &str) -> Outcome {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}", output.status);
    ensure!(output.stdout.is_empty(), "{:?}", output.stdout);
    ensure!(
        error.contains(endpoint) && error.contains("refused"),
        "{error}"
    );
    Ok(())
}

async fn shown(
    stage: &Stage,
    printed: &[(&str, &str)],
    title: &str,
    spans: usize,
    shows: fn(&Trace) -> Outcome,
) -> Outcome {
    let found = printed.iter().find(|(_, printed)| *printed == title);
    let (id, _) = found.ok_or("not printed")?;
    let trace = stage.jaeger.trace(id, spans).await?;
    let root = trace.root()?;
    ensure!(root.name == title && root.service == "shop", "{root:?}");
    shows(&trace)
}

/// Held back for want of samples, then mostly without an event: one that outran the threshold while
/// the machine was busy is hedged, and no less usual.
fn usual(trace: &Trace) -> Outcome {
    let mut calls: Vec<_> = trace
        .spans
        .iter()
        .filter(|span| span.name == CALL)
        .collect();
    calls.sort_by_key(|call| call.start);
    ensure!(calls.len() == 40, "{}", calls.len());
    let (cold, warm) = calls.split_at(20);
    for call in cold {
        let events = call.events("hedge.suppressed");
        ensure!(events.len() == 1, "{call:?}");
        ensure!(events[0].field("hedge.reason") == "samples", "{events:?}");
    }
    let quiet = warm.iter().filter(|call| call.events.is_empty()).count();
    ensure!(quiet >= 10, "{quiet}");
    ensure!(
        calls
            .iter()
            .all(|call| call.tag("hedge.call.outcome") == "ok"),
        "{calls:?}"
    );
    Ok(())
}

fn hedge_wins(trace: &Trace) -> Outcome {
    checks::parentage(trace, 2)?;
    checks::overlap(trace)?;
    checks::gates(trace, None)?;
    checks::outcomes(
        trace,
        &[
            ("original", "discarded", None),
            ("hedge", "won", Some("OK")),
        ],
    )
}

fn original_wins(trace: &Trace) -> Outcome {
    checks::parentage(trace, 2)?;
    checks::overlap(trace)?;
    checks::gates(trace, None)?;
    checks::outcomes(
        trace,
        &[
            ("original", "won", Some("OK")),
            ("hedge", "discarded", None),
        ],
    )
}

fn suppressed(trace: &Trace, gate: &str) -> Outcome {
    checks::parentage(trace, 1)?;
    let events = trace.call()?.events("hedge.suppressed");
    ensure!(events.len() == 1, "{events:?}");
    ensure!(events[0].field("hedge.reason") == gate, "{events:?}");
    checks::outcomes(trace, &[("original", "won", Some("OK"))])
}

fn retried(trace: &Trace) -> Outcome {
    checks::parentage(trace, 2)?;
    checks::one_after_the_other(trace)?;
    checks::outcomes(
        trace,
        &[
            ("original", "failed", Some("UNAVAILABLE")),
            ("retry", "won", Some("OK")),
        ],
    )
}

fn succeeded(output: &Output) -> Outcome {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", output.status);
    Ok(())
}

/// An example as `interop/jaeger/prepare` built it.
async fn run(example: &str, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    let built = env::var_os("INTEROP_BIN").ok_or("INTEROP_BIN is not set")?;
    let program = PathBuf::from(built).join("examples").join(example);
    let output = Command::new(&program)
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await;
    output.map_err(|error| format!("{}: {error}", program.display()).into())
}
