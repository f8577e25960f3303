//! What the library logs, kept for a test to look at.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::{fmt::Write as _, sync::Arc};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    subscriber::{DefaultGuard, set_default},
};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt as _},
    registry,
};

#[derive(Clone, Debug)]
pub struct Line {
    pub level: Level,
    /// The message, then `field=value` for each field.
    pub text: String,
}

/// All lines of this crate on this thread, from now on.
pub struct Logged {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

impl Logged {
    pub fn here() -> Self {
        let lines = Arc::default();
        let keep = Keep(Arc::clone(&lines));
        Self {
            lines,
            _guard: set_default(registry().with(keep)),
        }
    }

    pub fn all(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }

    /// The lines with this message.
    pub fn of(&self, message: &str) -> Vec<Line> {
        let mut lines = self.all();
        lines.retain(|line| line.text.contains(message));
        lines
    }
}

struct Keep(Arc<Mutex<Vec<Line>>>);

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("tonic_hedge") {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let line = Line {
            level: *event.metadata().level(),
            text: format!("{}{}", text.message, text.fields),
        };
        self.0.lock().push(line);
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap(),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}
