//! What must hold of a trace.

use interop::{Outcome, ensure};
use serde_json::{Value, json};

use crate::trace::{Span, Trace};

/// In the order of their numbers.
const GATES: [&str; 7] = [
    "hedge_configured",
    "repeatable",
    "breaker_closed",
    "error_rate",
    "samples",
    "budget",
    "not_sheddable",
];

/// Under the application's span one call, and under the call so many attempts: siblings.
pub(crate) fn parentage(trace: &Trace, attempts: usize) -> Outcome {
    let (root, call) = (trace.root()?, trace.call()?);
    ensure!(call.parent.as_deref() == Some(&root.id), "{call:?}");
    ensure!(call.tag("span.kind") == "internal", "{call:?}");
    let under = trace.children(call);
    ensure!(under.len() == attempts, "{}", under.len());
    let all = trace.attempts();
    ensure!(all.len() == attempts, "{}", all.len());
    for (number, attempt) in all.into_iter().enumerate() {
        ensure!(attempt.parent.as_deref() == Some(&call.id), "{attempt:?}");
        ensure!(attempt.tag("span.kind") == "client", "{attempt:?}");
        let name = attempt.name.replacen("Attempt.", "Sent.", 1);
        ensure!(name == call.name, "{name}");
        ensure!(attempt.tag("hedge.attempt.number") == number, "{attempt:?}");
        ensure!(
            attempt.tag("previous-rpc-attempts") == number,
            "{attempt:?}"
        );
        ensure!(call.start <= attempt.start, "{attempt:?}");
    }
    Ok(())
}

/// The second attempt ran while the first did.
pub(crate) fn overlap(trace: &Trace) -> Outcome {
    let [original, hedge] = trace.pair()?;
    ensure!(original.start < hedge.start, "{original:?}, {hedge:?}");
    ensure!(hedge.start < original.end, "{original:?}, {hedge:?}");
    Ok(())
}

/// The second attempt began when the first had ended.
pub(crate) fn one_after_the_other(trace: &Trace) -> Outcome {
    let [first, second] = trace.pair()?;
    ensure!(first.end <= second.start, "{first:?}, {second:?}");
    Ok(())
}

/// No two attempts went to one endpoint.
pub(crate) fn endpoints(trace: &Trace) -> Outcome {
    let mut ports = Vec::new();
    for attempt in trace.attempts() {
        let (address, port) = (attempt.tag("server.address"), attempt.tag("server.port"));
        ensure!(address == "127.0.0.1", "{attempt:?}");
        ensure!(port.is_u64(), "{attempt:?}");
        let endpoint = format!("127.0.0.1:{port}");
        ensure!(
            attempt.tag("hedge.attempt.endpoint") == &endpoint,
            "{attempt:?}"
        );
        ensure!(!ports.contains(port), "{attempt:?}");
        ports.push(port.clone());
    }
    Ok(())
}

/// What became of each attempt: kind, outcome, and the code where it has one. Failures are errors,
/// a discarded attempt is none.
pub(crate) fn outcomes(trace: &Trace, expected: &[(&str, &str, Option<&str>)]) -> Outcome {
    let attempts = trace.attempts();
    ensure!(attempts.len() == expected.len(), "{}", attempts.len());
    for (attempt, (kind, outcome, code)) in attempts.into_iter().zip(expected) {
        ensure!(attempt.tag("hedge.attempt.kind") == *kind, "{attempt:?}");
        ensure!(
            attempt.tag("hedge.attempt.outcome") == *outcome,
            "{attempt:?}"
        );
        ensure!(attempt.tag("transparent-retry") == false, "{attempt:?}");
        ends_as(attempt, *code)?;
    }
    Ok(())
}

/// How the call ended: `OK`, or a code that is an error.
pub(crate) fn call_ends_as(trace: &Trace, code: &str) -> Outcome {
    let call = trace.call()?;
    let outcome = if code == "OK" { "ok" } else { "error" };
    ensure!(call.tag("hedge.call.outcome") == outcome, "{call:?}");
    ends_as(call, Some(code))
}

/// Every gate once, in order, with what it saw; all hold except this one.
pub(crate) fn gates(trace: &Trace, shut: Option<&str>) -> Outcome {
    let events = trace.call()?.events("hedge.gate");
    ensure!(events.len() == GATES.len(), "{events:?}");
    for (index, (event, name)) in events.into_iter().zip(GATES).enumerate() {
        ensure!(event.field("hedge.gate.number") == index + 1, "{event:?}");
        ensure!(event.field("hedge.gate.name") == name, "{event:?}");
        ensure!(
            event.field("hedge.gate.holds") == (shut != Some(name)),
            "{event:?}"
        );
        ensure!(!event.field("hedge.gate.observed").is_null(), "{event:?}");
        ensure!(!event.field("hedge.gate.limit").is_null(), "{event:?}");
    }
    Ok(())
}

/// The hedge events other than the gates and the holds, in order: each with the number of its
/// attempt or its reason, and the threshold in milliseconds, if there was one.
pub(crate) fn hedge_events(
    trace: &Trace,
    expected: &[(&str, Value)],
    threshold: Option<f64>,
) -> Outcome {
    let call = trace.call()?;
    let events: Vec<_> = call
        .events
        .iter()
        .filter(|e| !["hedge.gate", "hedge.hold"].contains(&&*e.name))
        .collect();
    let names: Vec<_> = events.iter().map(|event| &*event.name).collect();
    let wanted: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
    ensure!(names == wanted, "{events:?}");
    for (event, (name, about)) in events.into_iter().zip(expected) {
        let key = match *name {
            "hedge.suppressed" => "hedge.reason",
            _ => "hedge.attempt.number",
        };
        ensure!(event.field(key) == about, "{event:?}");
        let observed = event.field("hedge.threshold").as_f64();
        ensure!(observed == threshold, "{event:?}");
    }
    Ok(())
}

/// Each attempt's server hangs under that attempt, and under no other: `service` names the server
/// that listens on a port.
pub(crate) fn servers(trace: &Trace, service: impl Fn(u64) -> String) -> Outcome {
    let mut count = 0;
    for attempt in trace.attempts() {
        let under = trace.children(attempt);
        ensure!(under.len() == 1, "{under:?} under {attempt:?}");
        ensure!(under[0].tag("span.kind") == "server", "{under:?}");
        let port = attempt.tag("server.port").as_u64().ok_or("no port")?;
        ensure!(
            under[0].service == service(port),
            "{under:?} under {attempt:?}"
        );
        count += 1;
    }
    let servers = trace
        .spans
        .iter()
        .filter(|s| s.tag("span.kind") == "server");
    let servers = servers.count();
    ensure!(servers == count, "{servers} servers of {count} attempts");
    Ok(())
}

fn ends_as(span: &Span, code: Option<&str>) -> Outcome {
    let expected = code.map_or(Value::Null, Value::from);
    ensure!(span.tag("rpc.system.name") == "grpc", "{span:?}");
    ensure!(span.tag("rpc.method").is_string(), "{span:?}");
    ensure!(
        span.tag("rpc.response.status_code") == &expected,
        "{span:?}"
    );
    match code {
        None | Some("OK") => {
            ensure!(!span.is_error(), "{span:?}");
            ensure!(span.tag("otel.status_code").is_null(), "{span:?}");
        }
        Some(_) => {
            ensure!(span.tag("error") == true, "{span:?}");
            ensure!(span.tag("otel.status_code") == "ERROR", "{span:?}");
            ensure!(span.tag("error.type") == &expected, "{span:?}");
            ensure!(
                span.tag("otel.status_description") == &json!(code),
                "{span:?}"
            );
        }
    }
    Ok(())
}
