//! Grafana's dashboard, asked as Grafana asks.

use std::{error::Error, fs};

use interop::{Outcome, ensure};
use serde_json::Value;

use crate::prometheus::{Prometheus, Series, Time};

const DASHBOARD: &str = "docs/grafana-dashboard.json";

/// What Grafana puts in place of its own variables, at our scrape interval.
const OWN: [(&str, &str); 2] = [("$__rate_interval", "4s"), ("$__range", "30s")];

/// Each query of each panel, and of each variable, over the time of the traffic.
pub(crate) async fn checks(
    prometheus: &Prometheus,
    time: (Time, Time),
) -> Result<Vec<(String, Outcome)>, Box<dyn Error>> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(DASHBOARD)?)?;
    let mut checks = Vec::new();
    let mut chosen = Vec::new();
    for variable in items(&dashboard["templating"]["list"]) {
        if variable["type"] != "query" {
            continue;
        }
        let name = text(&variable["name"])?;
        let outcome = match values(prometheus, variable, &chosen).await {
            Ok(values) => {
                chosen.push((format!("${name}"), values));
                Ok(())
            }
            Err(error) => Err(error),
        };
        checks.push((format!("dashboard: ${name}"), outcome));
    }
    for panel in items(&dashboard["panels"]) {
        let title = text(&panel["title"])?;
        for target in items(&panel["targets"]) {
            let name = format!("dashboard: {title}, {}", text(&target["refId"])?);
            let query = replaced(text(&target["expr"])?, &chosen);
            let outcome = match target["instant"] == true {
                true => found(&query, &prometheus.instant(&query, time.1).await, |it| {
                    !it.is_nan()
                }),
                false => found(&query, &prometheus.range(&query, time).await, |series| {
                    series.iter().any(|it| !it.is_nan())
                }),
            };
            checks.push((name, outcome));
        }
    }
    Ok(checks)
}

/// What a variable stands for with All chosen: each of its values.
async fn values(
    prometheus: &Prometheus,
    variable: &Value,
    chosen: &[(String, String)],
) -> Result<String, Box<dyn Error>> {
    ensure!(variable["includeAll"] == true, "{variable}");
    ensure!(variable["allValue"].is_null(), "{variable}");
    let query = replaced(text(&variable["query"]["query"])?, chosen);
    let inner = query.strip_prefix("label_values(");
    let inner = inner.and_then(|rest| rest.strip_suffix(')'));
    let (selector, label) = inner
        .and_then(|inner| inner.rsplit_once(", "))
        .ok_or_else(|| format!("{query} is no label_values"))?;
    let values = prometheus.label_values(label, selector).await?;
    ensure!(!values.is_empty(), "{query}");
    // In a text of PromQL a backslash is two.
    let values = values.iter().map(|value| value.replace('.', r"\\."));
    Ok(format!("({})", values.collect::<Vec<_>>().join("|")))
}

fn found<T>(
    query: &str,
    answer: &Result<Vec<Series<T>>, Box<dyn Error>>,
    is_there: impl Fn(&T) -> bool,
) -> Outcome {
    match answer {
        Ok(series) if series.iter().any(|(_, values)| is_there(values)) => Ok(()),
        Ok(series) => Err(format!("{} series without a number: {query}", series.len()).into()),
        Err(error) => Err(format!("{query}: {error}").into()),
    }
}

fn replaced(query: &str, chosen: &[(String, String)]) -> String {
    let mut query = query.to_owned();
    for (variable, value) in OWN {
        query = query.replace(variable, value);
    }
    for (variable, value) in chosen {
        query = query.replace(variable, value);
    }
    query
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Result<&str, Box<dyn Error>> {
    value
        .as_str()
        .ok_or_else(|| format!("{value} is no text").into())
}
