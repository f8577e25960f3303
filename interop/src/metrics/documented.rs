//! `docs/observability.md`: its table of metrics, what Prometheus is to call them, and its queries.

use std::{collections::BTreeSet, error::Error, fs};

const DOCUMENT: &str = "docs/observability.md";

/// The queries that the document answers its questions with.
pub(crate) fn queries() -> Result<Vec<String>, Box<dyn Error>> {
    let text = fs::read_to_string(DOCUMENT)?;
    let blocks = text.split("```promql\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    Ok(blocks.flat_map(str::lines).map(str::to_owned).collect())
}

/// One row.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: String,
    unit: String,
    /// Upper bounds, of a histogram.
    pub(crate) bounds: Vec<f64>,
    attributes: Vec<String>,
}

impl Metric {
    /// All, as they are documented.
    pub(crate) fn all() -> Result<Vec<Self>, Box<dyn Error>> {
        let text = fs::read_to_string(DOCUMENT)?;
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            match cells[..] {
                [
                    "",
                    name,
                    kind @ ("counter" | "gauge" | "histogram"),
                    unit,
                    bounds,
                    attributes,
                    _,
                    "",
                ] => Some((name, kind, unit, bounds, attributes)),
                _ => None,
            }
        });
        let metrics = rows.map(|(name, kind, unit, bounds, attributes)| {
            Ok(Self {
                name: bare(name),
                kind: kind.to_owned(),
                unit: bare(unit),
                bounds: numbers(&text, bounds)?,
                attributes: attributes.split(", ").map(bare).collect(),
            })
        });
        metrics.collect()
    }

    /// Its name in Prometheus, by OpenTelemetry's rules: units and `_total` are suffixes.
    pub(crate) fn in_prometheus(&self) -> String {
        let name = underscored(&self.name);
        match (&*self.kind, &*self.unit) {
            ("counter", _) => format!("{name}_total"),
            (_, "s") => format!("{name}_seconds"),
            ("gauge", "1") => format!("{name}_ratio"),
            _ => name,
        }
    }

    /// The labels of its series, its own only.
    pub(crate) fn labels(&self) -> BTreeSet<String> {
        self.attributes.iter().map(|it| underscored(it)).collect()
    }
}

/// The bounds that a line like ``- `latency`: 0, 0.5`` lists for this name.
fn numbers(text: &str, name: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let start = format!("- {name}: ");
    let list = text.lines().find_map(|line| line.strip_prefix(&start));
    let list = list.ok_or_else(|| format!("{DOCUMENT} lists no bounds {name}"))?;
    Ok(list.split(", ").map(str::parse).collect::<Result<_, _>>()?)
}

fn bare(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

fn underscored(name: &str) -> String {
    name.replace(['.', '-'], "_")
}
