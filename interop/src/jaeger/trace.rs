//! A trace as Jaeger's query API gives it.

use std::{collections::HashMap, error::Error};

use serde_json::Value;

/// The prefixes of the library's spans.
const CALL: &str = "Sent.";
const ATTEMPT: &str = "Attempt.";

pub(crate) struct Trace {
    pub(crate) spans: Vec<Span>,
}

#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) service: String,
    /// In microseconds.
    pub(crate) start: u64,
    pub(crate) end: u64,
    tags: HashMap<String, Value>,
    /// The service's own.
    resource: HashMap<String, Value>,
    /// In the order in which they happened.
    pub(crate) events: Vec<Event>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    fields: HashMap<String, Value>,
}

impl Trace {
    pub(crate) fn read(trace: &Value) -> Result<Self, Box<dyn Error>> {
        let spans = trace["spans"].as_array().ok_or("a trace without spans")?;
        let spans: Result<_, _> = spans
            .iter()
            .map(|span| Span::read(span, &trace["processes"]))
            .collect();
        Ok(Self { spans: spans? })
    }

    /// The span that is no other's child.
    pub(crate) fn root(&self) -> Result<&Span, Box<dyn Error>> {
        let mut roots = self.spans.iter().filter(|span| span.parent.is_none());
        match (roots.next(), roots.next()) {
            (Some(root), None) => Ok(root),
            _ => Err("not one root".into()),
        }
    }

    /// The span of the one call in this trace.
    pub(crate) fn call(&self) -> Result<&Span, Box<dyn Error>> {
        let mut calls = self.spans.iter().filter(|span| span.name.starts_with(CALL));
        match (calls.next(), calls.next()) {
            (Some(call), None) => Ok(call),
            _ => Err("not one call".into()),
        }
    }

    /// The attempts, by their numbers.
    pub(crate) fn attempts(&self) -> Vec<&Span> {
        let mut attempts: Vec<_> = self
            .spans
            .iter()
            .filter(|span| span.name.starts_with(ATTEMPT))
            .collect();
        attempts.sort_by_key(|span| span.tag("hedge.attempt.number").as_u64());
        attempts
    }

    /// The original and the hedge of a call that has these and no other attempts.
    pub(crate) fn pair(&self) -> Result<[&Span; 2], Box<dyn Error>> {
        let attempts = self.attempts();
        let count = attempts.len();
        attempts
            .try_into()
            .map_err(|_| format!("{count} attempts").into())
    }

    pub(crate) fn children(&self, of: &Span) -> Vec<&Span> {
        let children = self.spans.iter();
        children
            .filter(|span| span.parent.as_deref() == Some(&of.id))
            .collect()
    }
}

impl Span {
    fn read(span: &Value, processes: &Value) -> Result<Self, Box<dyn Error>> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("no text");
        let process = &processes[span["processID"].as_str().ok_or("no process")?];
        let start = span["startTime"].as_u64().ok_or("no start")?;
        let logs = span["logs"].as_array().map_or(&[][..], Vec::as_slice);
        let mut events: Vec<_> = logs
            .iter()
            .map(|log| {
                let fields = named(&log["fields"]);
                let name = fields.get("event").and_then(Value::as_str);
                let event = Event {
                    name: name.unwrap_or_default().to_owned(),
                    fields,
                };
                (log["timestamp"].as_u64(), event)
            })
            .collect();
        // Stable: of one microsecond in the order in which they were exported.
        events.sort_by_key(|(at, _)| *at);
        let reference = &span["references"][0];
        Ok(Self {
            trace: text(&span["traceID"])?,
            id: text(&span["spanID"])?,
            parent: match reference["refType"].as_str() {
                Some("CHILD_OF") => Some(text(&reference["spanID"])?),
                _ => None,
            },
            name: text(&span["operationName"])?,
            service: text(&process["serviceName"])?,
            start,
            end: start + span["duration"].as_u64().ok_or("no duration")?,
            tags: named(&span["tags"]),
            resource: named(&process["tags"]),
            events: events.into_iter().map(|(_, event)| event).collect(),
        })
    }

    /// Null where there is none.
    pub(crate) fn tag(&self, key: &str) -> &Value {
        self.tags.get(key).unwrap_or(&Value::Null)
    }

    /// Of the service that made it; null where there is none.
    pub(crate) fn resource(&self, key: &str) -> &Value {
        self.resource.get(key).unwrap_or(&Value::Null)
    }

    /// Whether Jaeger shows it as an error, by any of its signs.
    pub(crate) fn is_error(&self) -> bool {
        self.tag("error") == true
            || self.tag("otel.status_code") == "ERROR"
            || !self.tag("error.type").is_null()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<&Event> {
        self.events.iter().filter(|e| e.name == name).collect()
    }
}

impl Event {
    /// Null where there is none.
    pub(crate) fn field(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }
}

/// Jaeger's list of keys and values. Its integers and booleans are such, not texts.
fn named(list: &Value) -> HashMap<String, Value> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    list.iter()
        .filter_map(|entry| Some((entry["key"].as_str()?.to_owned(), entry["value"].clone())))
        .collect()
}
