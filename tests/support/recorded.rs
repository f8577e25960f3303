//! What counters and histograms have recorded, read back from the SDK's own exporter.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter,
    data::{AggregatedMetrics, MetricData},
};

/// One metric with one set of attributes.
pub struct Recorded {
    pub name: String,
    pub attributes: Vec<KeyValue>,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The sum of what was added, or of numbers in a histogram.
    Sum(u64),
    /// How many times were recorded.
    Times(u64),
}

/// All of them; the gauges are looked at elsewhere.
pub fn recorded(exporter: &InMemoryMetricExporter) -> Vec<Recorded> {
    let mut all = Vec::new();
    let exported = exporter.get_finished_metrics().unwrap();
    let scopes = exported.iter().flat_map(|it| it.scope_metrics());
    for metric in scopes.flat_map(|scope| scope.metrics()) {
        let mut add = |attributes: Vec<KeyValue>, what| {
            let name = metric.name().to_owned();
            all.push(Recorded {
                name,
                attributes,
                what,
            });
        };
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                for point in sum.data_points() {
                    add(
                        point.attributes().cloned().collect(),
                        What::Sum(point.value()),
                    );
                }
            }
            AggregatedMetrics::U64(MetricData::Histogram(histogram)) => {
                for point in histogram.data_points() {
                    add(
                        point.attributes().cloned().collect(),
                        What::Sum(point.sum()),
                    );
                }
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                for point in histogram.data_points() {
                    add(
                        point.attributes().cloned().collect(),
                        What::Times(point.count()),
                    );
                }
            }
            _ => {}
        }
    }
    all
}
