//! docs/observability.md says what is so: its tables are what the SDK's own exporters see of calls
//! that have everything. `interop/run metrics` reads the same table of metrics.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

use opentelemetry::{KeyValue, Value, trace::SpanKind};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    },
    trace::{InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use support::{Answer, Arrival, ProbeClient, ProbeRequest, Replica, probe, request};
use tokio::{net::TcpListener, time::sleep};
use tonic::{Code, Request, Status};
use tonic_hedge::{
    Builder, Criticality, EndpointState, Hedge, HedgedChannel, LanePolicy, Lanes, RequestExt as _,
    WinRate,
};
use tonic_hedge_engine::gate::{Gate, Hold};
use tower::Layer as _;

const MS: Duration = Duration::from_millis(1);

/// Everything that was exported.
struct Exported {
    metrics: InMemoryMetricExporter,
    spans: Vec<SpanData>,
}

#[tokio::test]
async fn tables_are_what_is_exported() {
    let text = document();
    let exported = Exported::of_everything().await;
    assert_eq!(table(&text, "metric", 5), exported.metrics(&text));
    assert_eq!(table(&text, "attribute", 3), exported.attributes());
    assert_eq!(table(&text, "event", 2), exported.events());
}

#[test]
fn all_gates_and_holds_are_there() {
    let text = document();
    let listed: Vec<_> = rows(&text, "gate")
        .iter()
        .map(|cells| cells[0].clone())
        .collect();
    // There is no list of all holds: the compiler says here that one is missing.
    let hold = |hold| match hold {
        Hold::WinRate
        | Hold::Load
        | Hold::Saturation
        | Hold::OtherEndpoint
        | Hold::Lane
        | Hold::Inherited
        | Hold::MaxAttempts
        | Hold::Deadline => hold.name(),
    };
    let holds = [
        Hold::WinRate,
        Hold::Load,
        Hold::Saturation,
        Hold::OtherEndpoint,
        Hold::Lane,
        Hold::Inherited,
        Hold::MaxAttempts,
        Hold::Deadline,
    ];
    let all = Gate::ALL.map(Gate::name).into_iter().chain(holds.map(hold));
    assert_eq!(listed, all.collect::<Vec<_>>());
}

/// What Grafana needs of a dashboard besides queries, which `interop/run metrics` runs.
#[test]
fn the_dashboard_can_be_imported() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/grafana-dashboard.json");
    let dashboard: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(dashboard["id"].is_null());
    assert!(dashboard["uid"].is_string() && dashboard["title"].is_string());
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|it| it["name"].as_str()).collect();
    let expected = ["datasource", "grpc_target", "grpc_method"].map(Some);
    assert_eq!(names, expected);

    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{panel}");
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "overlaps another: {panel}");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].is_string(), "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<_> = targets.iter().map(|it| it["refId"].as_str()).collect();
        assert_eq!(refs.len(), targets.len());
        for part in targets.iter().chain([panel]) {
            assert_eq!(part["datasource"]["uid"], "${datasource}", "{part}");
        }
    }
}

// === impl Exported ===

impl Exported {
    /// Calls that are hedged, held back, retried, replaced and failed.
    async fn of_everything() -> Self {
        let spans = InMemorySpanExporter::default();
        let tracing = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let metrics = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(metrics.clone()).build();
        let metering = Arc::new(SdkMeterProvider::builder().with_reader(reader).build());

        let replicas = [
            Replica::start("a", tail).await,
            Replica::start("b", tail).await,
        ];
        let builder = |uris: Vec<String>| {
            HedgedChannel::builder()
                .endpoints(uris)
                .descriptors(probe::FILE_DESCRIPTOR_SET)
                .hedge(Hedge::after(20 * MS).win_rate(WinRate::at_least(0.2)))
                .tracer_provider(&tracing)
                .meter_provider(metering.clone())
        };
        let mut client = connected(builder(replicas.iter().map(Replica::uri).collect())).await;
        for _ in 0..20 {
            client.get(asked(0, Code::Ok)).await.unwrap();
        }
        client.get(asked(60_000, Code::Ok)).await.unwrap();
        // However slow the machine: a failure with nothing else in flight is retried.
        let failing = Request::new(asked(0, Code::Unavailable)).without_hedging();
        client.get(failing).await.unwrap();
        client.get(asked(0, Code::Internal)).await.unwrap_err();
        client.put(asked(0, Code::Ok)).await.unwrap();
        let prefetch = Request::new(asked(300, Code::Ok));
        let prefetch = prefetch.criticality(Criticality::Sheddable);
        client.get(prefetch).await.unwrap();

        let refuser = refuser().await;
        let channel = builder(vec![replicas[0].uri(), refuser]).build().unwrap();
        let mut other = ProbeClient::new(channel.clone());
        let replaced = || {
            let measured = channel.measured();
            measured.methods.iter().any(|it| it.replacements > 0)
        };
        // Half of the first attempts meet the refuser.
        for _ in 0..1_000 {
            if replaced() {
                break;
            }
            other.get(asked(0, Code::Ok)).await.unwrap();
        }

        let policy = LanePolicy::default();
        let lanes = Lanes::builder()
            .lane("only", policy.minimum(1).maximum(1))
            .meter_provider(metering.clone())
            .build()
            .unwrap();
        let mut admitted = ProbeClient::new(lanes.client_layer().layer(channel));
        admitted.get(asked(0, Code::Ok)).await.unwrap();

        metering.force_flush().unwrap();
        Self {
            metrics,
            spans: spans.get_finished_spans().unwrap(),
        }
    }

    /// By name: type, unit, buckets, attributes.
    fn metrics(&self, text: &str) -> BTreeMap<String, Vec<String>> {
        let exported = self.metrics.get_finished_metrics().unwrap();
        let scopes = exported.iter().flat_map(|it| it.scope_metrics());
        let metrics = scopes.flat_map(|scope| scope.metrics()).map(|metric| {
            let (kind, bounds, keys) = match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) if sum.is_monotonic() => (
                    "counter",
                    vec![],
                    keys(sum.data_points().map(|it| it.attributes())),
                ),
                AggregatedMetrics::F64(MetricData::Gauge(gauge)) => (
                    "gauge",
                    vec![],
                    keys(gauge.data_points().map(|it| it.attributes())),
                ),
                AggregatedMetrics::U64(MetricData::Histogram(histogram)) => {
                    let points = || histogram.data_points();
                    let bounds = points().next().unwrap().bounds().collect();
                    (
                        "histogram",
                        bounds,
                        keys(points().map(|it| it.attributes())),
                    )
                }
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    let points = || histogram.data_points();
                    let bounds = points().next().unwrap().bounds().collect();
                    (
                        "histogram",
                        bounds,
                        keys(points().map(|it| it.attributes())),
                    )
                }
                data => panic!("{}: {data:?}", metric.name()),
            };
            let about = vec![
                kind.to_owned(),
                metric.unit().to_owned(),
                named(text, &bounds),
                keys,
            ];
            (metric.name().to_owned(), about)
        });
        metrics.collect()
    }

    /// Attributes of spans by name: type, and which spans have them.
    fn attributes(&self) -> BTreeMap<String, Vec<String>> {
        let mut found = BTreeMap::<_, BTreeSet<_>>::new();
        for span in &self.spans {
            let on = match span.span_kind {
                SpanKind::Internal => "call",
                _ => "attempt",
            };
            for KeyValue { key, value, .. } in &span.attributes {
                let kind = match value {
                    Value::Bool(_) => "bool",
                    Value::I64(_) => "int",
                    Value::String(_) => "string",
                    other => panic!("{key}: {other:?}"),
                };
                found.entry((key.to_string(), kind)).or_default().insert(on);
            }
        }
        let found = found.into_iter().map(|((key, kind), on)| {
            let on = match on.len() {
                1 => on.first().unwrap().to_string(),
                _ => "both".to_owned(),
            };
            (key, vec![kind.to_owned(), on])
        });
        found.collect()
    }

    /// Events by name: their attributes.
    fn events(&self) -> BTreeMap<String, Vec<String>> {
        let mut found = BTreeMap::<String, BTreeSet<String>>::new();
        for event in self.spans.iter().flat_map(|span| &span.events.events) {
            let keys = event.attributes.iter().map(|it| it.key.to_string());
            found
                .entry(event.name.to_string())
                .or_default()
                .extend(keys);
        }
        let found = found.into_iter();
        found
            .map(|(name, keys)| (name, vec![joined(keys)]))
            .collect()
    }
}

// === Calls ===

/// Holds an original for `delay_ms`, and then ends it with `status`. A further attempt is answered
/// at once.
async fn tail(arrival: Arrival) -> Answer {
    if arrival.metadata.contains_key("grpc-previous-rpc-attempts") {
        return arrival.ok();
    }
    sleep(MS * arrival.request.delay_ms).await;
    match Code::from(arrival.request.status as i32) {
        Code::Ok => arrival.ok(),
        code => Err(Status::new(code, "as asked")),
    }
}

fn asked(delay_ms: u32, code: Code) -> ProbeRequest {
    ProbeRequest {
        delay_ms,
        status: code as i32 as u32,
        ..request("asked")
    }
}

/// A client whose channel is connected to all endpoints: only then a hedge has somewhere to go.
async fn connected(builder: Builder) -> ProbeClient<HedgedChannel> {
    let channel = builder.build().unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let ready = || {
        let endpoints = channel.measured().endpoints;
        endpoints.iter().all(|it| it.state == EndpointState::Ready)
    };
    while !ready() {
        client.get(asked(0, Code::Ok)).await.unwrap();
    }
    client
}

/// The URI of a server that refuses each stream before it looks at it.
async fn refuser() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(connection).await.unwrap();
                while let Some(Ok((_, mut stream))) = connection.accept().await {
                    stream.send_reset(h2::Reason::REFUSED_STREAM);
                }
            });
        }
    });
    uri
}

// === The document ===

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/observability.md");
    fs::read_to_string(path).unwrap()
}

/// The rows of the table whose first column has this title: their cells, without quotes.
fn rows(text: &str, title: &str) -> Vec<Vec<String>> {
    let head = format!("| {title} |");
    let lines = text.lines().skip_while(|line| !line.starts_with(&head));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    let rows = lines.map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    });
    rows.collect()
}

/// The first so many columns of that table, by the first; lists are in order.
fn table(text: &str, title: &str, columns: usize) -> BTreeMap<String, Vec<String>> {
    let rows = rows(text, title).into_iter().map(|cells| {
        let mut cells = cells.into_iter().take(columns);
        let name = cells.next().unwrap();
        let sorted = |cell: String| joined(cell.split(", ").map(str::to_owned));
        (name, cells.map(sorted).collect())
    });
    rows.collect()
}

/// The name under which these bounds are listed; nothing for none.
fn named(text: &str, bounds: &[f64]) -> String {
    if bounds.is_empty() {
        return String::new();
    }
    let lists = text.lines().filter_map(|line| {
        let (name, list) = line.strip_prefix("- `")?.split_once("`: ")?;
        let list: Result<Vec<f64>, _> = list.split(", ").map(str::parse).collect();
        Some((name, list.ok()?))
    });
    let mut names = lists.filter(|(_, list)| list == bounds);
    names
        .next()
        .map_or("not listed", |(name, _)| name)
        .to_owned()
}

fn keys<'a>(points: impl Iterator<Item = impl Iterator<Item = &'a KeyValue>>) -> String {
    joined(points.flatten().map(|it| it.key.to_string()))
}

fn joined(list: impl IntoIterator<Item = String>) -> String {
    let list: BTreeSet<_> = list.into_iter().collect();
    Vec::from_iter(list).join(", ")
}
