//! How often a channel could not connect, by its own documented log line.

use std::{collections::HashMap, fmt};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// By endpoint.
static FAILED: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

/// Starts to count, in this process.
///
/// # Errors
/// Somebody else reads the logs already.
pub fn count() -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Dials)
}

/// How often a connection to `endpoint` (`host:port`) failed so far.
pub fn failed(endpoint: &str) -> usize {
    let failed = FAILED.lock();
    failed
        .as_ref()
        .and_then(|failed| failed.get(endpoint).copied())
        .unwrap_or_default()
}

struct Dials;

impl Subscriber for Dials {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("tonic_hedge")
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        if said.message == "not connected" {
            let mut failed = FAILED.lock();
            let failed = failed.get_or_insert_default();
            *failed.entry(said.endpoint).or_default() += 1;
        }
    }

    // Only events are read.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Said {
    message: String,
    endpoint: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "endpoint" => self.endpoint = format!("{value:?}"),
            _ => {}
        }
    }
}
