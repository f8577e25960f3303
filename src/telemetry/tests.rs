//! Spans and events as an exporter sees them. The global propagator is set by every test, to the
//! same value; no test sets a global provider, so that `quiet` finds none.

mod context;
mod quiet;

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    KeyValue, SpanId, Value as Attribute, global,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData},
};
use tonic::Code;
use tonic_hedge_engine::gate::{
    BreakerReading, BreakerState, Gate, Hold, Reading, Reason, Report, Snapshot, Value,
};

use super::{
    AttemptEnd, AttemptInfo,
    spans::{AttemptSpan, CallSpan, Spans},
};
use crate::log::AttemptKind;

const METHOD: &str = "demo.v1.Kv/Get";
const CALL: &str = "Sent.demo.v1.Kv/Get";
const ATTEMPT: &str = "Attempt.demo.v1.Kv/Get";

/// A provider that is nobody else's, and what it exports.
struct Exported {
    provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
}

impl Exported {
    fn new() -> Self {
        Self::sampled(Sampler::AlwaysOn)
    }

    fn sampled(sampler: Sampler) -> Self {
        global::set_text_map_propagator(TraceContextPropagator::new());
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .with_sampler(sampler)
            .build();
        Self { provider, exporter }
    }

    fn spans_to(&self) -> Spans {
        let mut spans = Spans::default();
        spans.set_tracer_provider(&self.provider);
        spans
    }

    fn start_call(&self) -> CallSpan {
        self.spans_to().start_call(METHOD, Duration::ZERO)
    }

    /// What has ended so far, in the order of ends.
    fn spans(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    fn span(&self, name: &str) -> SpanData {
        let mut spans = self.spans();
        spans.retain(|span| span.name == name);
        assert_eq!(spans.len(), 1, "{name}");
        spans.remove(0)
    }
}

fn info(number: u32, kind: AttemptKind) -> AttemptInfo<'static> {
    AttemptInfo {
        number,
        previous: number,
        kind,
        address: ["10.0.0.1", "10.0.0.2", "10.0.0.3"][number as usize],
        port: Some(50051),
        endpoint: ["a", "b", "c"][number as usize],
    }
}

fn attempt(call: &CallSpan, number: u32, kind: AttemptKind) -> AttemptSpan {
    call.start_attempt(info(number, kind), &mut HeaderMap::new())
}

fn find<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Attribute> {
    let found = attributes.iter().find(|kv| kv.key.as_str() == key);
    found.map(|kv| &kv.value)
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    find(attributes, key).map_or("-".into(), |value| value.as_str().into_owned())
}

fn id(span: &SpanData) -> SpanId {
    span.span_context.span_id()
}

fn by_number(spans: &[SpanData], number: i64) -> &SpanData {
    let is = |span: &&SpanData| {
        find(&span.attributes, "hedge.attempt.number") == Some(&Attribute::I64(number))
    };
    spans.iter().find(is).unwrap()
}

#[test]
fn te1_one_call_span_and_one_per_attempt() {
    let exported = Exported::new();
    let mut call = exported.start_call();
    assert!(call.is_recording());
    let mut original = attempt(&call, 0, AttemptKind::Original);
    let mut replacement = attempt(&call, 1, AttemptKind::Replacement);
    let mut hedge = attempt(&call, 2, AttemptKind::Hedge);
    original.end(AttemptEnd::Failed(Code::Unavailable));
    hedge.end(AttemptEnd::Won(Code::Ok));
    replacement.end(AttemptEnd::Discarded);
    call.finish(Code::Ok);
    drop((original, hedge, replacement, call));

    let spans = exported.spans();
    assert_eq!(spans.len(), 4, "each span is exported once");
    let call = exported.span(CALL);
    assert_eq!(call.span_kind, SpanKind::Internal);
    assert_eq!(call.parent_span_id, SpanId::INVALID);
    assert_eq!(call.status, Status::Unset);
    assert_eq!(text(&call.attributes, "rpc.system.name"), "grpc");
    assert_eq!(text(&call.attributes, "rpc.method"), METHOD);
    assert_eq!(text(&call.attributes, "rpc.response.status_code"), "OK");
    assert_eq!(text(&call.attributes, "hedge.call.outcome"), "ok");
    let scope = &call.instrumentation_scope;
    assert_eq!(scope.name(), "tonic-hedge");
    assert_eq!(scope.version(), Some(env!("CARGO_PKG_VERSION")));

    let rows = [
        (
            0,
            "10.0.0.1",
            "a",
            "original",
            false,
            "failed",
            "UNAVAILABLE",
        ),
        (1, "10.0.0.2", "b", "replacement", true, "discarded", "-"),
        (2, "10.0.0.3", "c", "hedge", false, "won", "OK"),
    ];
    for (number, address, endpoint, kind, transparent, outcome, code) in rows {
        let span = by_number(&spans, number);
        assert_eq!(span.name, ATTEMPT);
        assert_eq!(span.span_kind, SpanKind::Client);
        assert_eq!(span.parent_span_id, id(&call), "siblings under the call");
        assert_eq!(span.span_context.trace_id(), call.span_context.trace_id());
        let at = |key| find(&span.attributes, key).unwrap();
        assert_eq!(at("rpc.system.name"), &"grpc".into());
        assert_eq!(at("rpc.method"), &METHOD.into());
        assert_eq!(at("server.address"), &address.into());
        assert_eq!(at("server.port"), &Attribute::I64(50051));
        assert_eq!(at("hedge.attempt.endpoint"), &endpoint.into());
        assert_eq!(at("previous-rpc-attempts"), &Attribute::I64(number));
        assert_eq!(at("transparent-retry"), &Attribute::Bool(transparent));
        assert_eq!(at("hedge.attempt.kind"), &kind.into());
        assert_eq!(at("hedge.attempt.outcome"), &outcome.into());
        assert_eq!(text(&span.attributes, "rpc.response.status_code"), code);
        let failed = outcome == "failed";
        let error = if failed { code } else { "-" };
        assert_eq!(text(&span.attributes, "error.type"), error);
        let status = if failed {
            Status::error(code)
        } else {
            Status::Unset
        };
        assert_eq!(span.status, status, "a discarded attempt is no error");
    }
}

#[test]
fn an_error_is_the_calls_and_the_winners() {
    let exported = Exported::new();
    let mut call = exported.start_call();
    let mut winner = attempt(&call, 0, AttemptKind::Original);
    winner.end(AttemptEnd::Won(Code::NotFound));
    let mut loser = attempt(&call, 1, AttemptKind::Hedge);
    call.finish(Code::NotFound);
    // A detached attempt has no result that anybody waits for.
    loser.end(AttemptEnd::Lost);

    let call = exported.span(CALL);
    let spans = exported.spans();
    for span in [&call, by_number(&spans, 0)] {
        assert_eq!(text(&span.attributes, "error.type"), "NOT_FOUND");
        assert_eq!(span.status, Status::error("NOT_FOUND"));
    }
    assert_eq!(text(&call.attributes, "hedge.call.outcome"), "error");
    let loser = by_number(&spans, 1);
    assert_eq!(text(&loser.attributes, "hedge.attempt.outcome"), "lost");
    assert_eq!(text(&loser.attributes, "error.type"), "-");
    assert_eq!(loser.status, Status::Unset);
}

#[test]
fn te2_dropped_call_leaves_no_span_open() {
    let exported = Exported::new();
    let call = exported.start_call();
    let original = attempt(&call, 0, AttemptKind::Original);
    let kept = attempt(&call, 1, AttemptKind::Hedge);
    drop(call);
    drop(original);

    let call = exported.span(CALL);
    assert_eq!(text(&call.attributes, "hedge.call.outcome"), "cancelled");
    assert_eq!(text(&call.attributes, "rpc.response.status_code"), "-");
    assert_eq!(call.status, Status::Unset);
    let spans = exported.spans();
    let original = by_number(&spans, 0);
    assert_eq!(
        text(&original.attributes, "hedge.attempt.outcome"),
        "discarded"
    );
    assert_eq!(original.status, Status::Unset);
    assert_eq!(spans.len(), 2);
    drop(kept);
    assert_eq!(exported.spans().len(), 3);
}

#[test]
fn gates_and_holds_are_typed_events() {
    let exported = Exported::new();
    let mut call = exported.start_call();
    let mut report = Report::of(&Snapshot {
        configured: true,
        repeatable: Ok("idempotent"),
        breaker: Some(BreakerReading {
            state: BreakerState::Closed,
            calls: 5,
            failures: 0,
            error_rate: None,
            baseline: None,
            trip_point: 0.5,
            hedging_trip_point: 0.5,
        }),
        suppress_at: 0.5,
        samples: 7,
        minimum_samples: Some(20),
        budget: Some(1.5),
        criticality: "critical",
        sheddable: false,
    });
    let lag = Reading::new(
        true,
        Duration::from_micros(1_500),
        Duration::from_millis(20),
    );
    report.holds.push((Hold::Saturation, lag));
    let none = Reading::new(false, Value::None, true);
    report.holds.push((Hold::OtherEndpoint, none));
    call.gates(&report);
    call.finish(Code::Ok);

    let events = exported.span(CALL).events.events;
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let value = |key: &str| find(&event.attributes, &format!("{}.{key}", event.name));
            (
                event.name.as_ref(),
                value("number").cloned(),
                value("name").unwrap().clone(),
                value("holds").unwrap().clone(),
                value("observed").unwrap().clone(),
                value("limit").unwrap().clone(),
            )
        })
        .collect();
    let row = |name, number: Option<i64>, what: &'static str, holds: bool, observed, limit| {
        let number = number.map(Attribute::I64);
        (name, number, what.into(), holds.into(), observed, limit)
    };
    let gate = |number, what, holds, observed: Attribute, limit: Attribute| {
        row("hedge.gate", Some(number), what, holds, observed, limit)
    };
    let hold = |what, holds, observed: Attribute, limit: Attribute| {
        row("hedge.hold", None, what, holds, observed, limit)
    };
    assert_eq!(
        rows,
        [
            gate(1, "hedge_configured", true, true.into(), true.into()),
            gate(2, "repeatable", true, "idempotent".into(), true.into()),
            gate(3, "breaker_closed", true, "closed".into(), "closed".into()),
            gate(4, "error_rate", true, "none".into(), 0.25.into()),
            gate(5, "samples", false, 7.into(), 20.into()),
            gate(6, "budget", true, 1.5.into(), 1.0.into()),
            gate(
                7,
                "not_sheddable",
                true,
                "critical".into(),
                "sheddable".into()
            ),
            hold("saturation", true, 1.5.into(), 20.0.into()),
            hold("other_endpoint", false, "none".into(), true.into()),
        ]
    );
}

#[test]
fn the_four_hedge_events_carry_the_threshold() {
    let exported = Exported::new();
    let mut call = exported.start_call();
    let threshold = Some(Duration::from_micros(40_500));
    call.started(threshold, 1);
    call.won(threshold, 1);
    call.discarded(threshold, 2);
    call.suppressed(Reason::Gate(Gate::Budget), threshold);
    call.suppressed(Reason::Hold(Hold::WinRate), None);
    call.finish(Code::Ok);
    call.started(threshold, 3);

    let span = exported.span(CALL);
    let rows: Vec<_> = span
        .events
        .iter()
        .map(|event| {
            let value = |key| find(&event.attributes, key).cloned();
            (
                event.name.as_ref(),
                value("hedge.threshold"),
                value("hedge.attempt.number")
                    .or(value("hedge.reason"))
                    .unwrap(),
            )
        })
        .collect();
    let ms = Some(Attribute::F64(40.5));
    assert_eq!(
        rows,
        [
            ("hedge.started", ms.clone(), 1.into()),
            ("hedge.won", ms.clone(), 1.into()),
            ("hedge.discarded", ms.clone(), 2.into()),
            ("hedge.suppressed", ms, "budget".into()),
            ("hedge.suppressed", None, "win_rate".into()),
        ]
    );
}

#[test]
fn te6_no_header_is_recorded() {
    let exported = Exported::new();
    let telemetry = exported.spans_to();
    let mut call = telemetry.start_call(METHOD, Duration::ZERO);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer hunter2"));
    headers.insert("cookie", HeaderValue::from_static("hunter2"));
    drop(call.start_attempt(info(0, AttemptKind::Original), &mut headers));
    call.finish(Code::Unauthenticated);
    let spans = exported.spans();
    assert_eq!(spans.len(), 2);
    assert!(!format!("{spans:?} {telemetry:?}").contains("hunter2"));
}

#[test]
fn te9_parallel_attempts_have_ids_of_their_own() {
    let exported = Exported::new();
    let telemetry = exported.spans_to();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..50 {
                    let mut call = telemetry.start_call(METHOD, Duration::ZERO);
                    let attempts = [0, 1, 2].map(|n| attempt(&call, n, AttemptKind::Hedge));
                    drop(attempts);
                    call.finish(Code::Ok);
                }
            });
        }
    });
    let spans = exported.spans();
    let mut ids: Vec<_> = spans.iter().map(|span| id(span).to_bytes()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4 * 50 * 4);
    let mut numbers: Vec<_> = spans
        .iter()
        .filter(|span| span.name == ATTEMPT)
        .map(|span| {
            (
                span.parent_span_id.to_bytes(),
                text(&span.attributes, "hedge.attempt.number"),
            )
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4 * 50 * 3);
}
