//! What a gateway has learnt, in a file from one life to the next: limits of lanes, and thresholds.

use std::{fs, io, path::Path, time::Duration};

use serde_json::{Value, json};
use tonic_hedge::{Builder, Lanes};

use crate::gateway::Gateway;

/// What is older says little of a region's speed, and nothing of how much there is to do.
const MOST_AGE: Duration = Duration::from_secs(600);

/// As it was read; empty without a file, or where it is none of ours.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    channel: Value,
    lanes: Value,
}

impl Memory {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read(path).unwrap_or_default();
        let mut value: Value = serde_json::from_slice(&text).unwrap_or_default();
        let mut part = |name| value.get_mut(name).map(Value::take).unwrap_or_default();
        Self {
            channel: part("channel"),
            lanes: part("lanes"),
        }
    }

    pub(crate) fn write(gateway: &Gateway, path: &Path) -> io::Result<()> {
        let learned = json!({
            "channel": gateway.channel.learned(),
            "lanes": gateway.lanes.as_ref().map(Lanes::learned),
        });
        // Whole or not at all: a file that is cut off is of no use to the next.
        let new = path.with_extension("new");
        fs::write(&new, learned.to_string())?;
        fs::rename(new, path)
    }

    pub(crate) fn of_channel(&self, builder: Builder) -> Builder {
        match serde_json::from_value(self.channel.clone()) {
            Ok(learned) => builder.resume(learned, MOST_AGE),
            Err(_) => builder,
        }
    }

    pub(crate) fn of_lanes(&self, lanes: &Lanes) {
        if let Ok(learned) = serde_json::from_value(self.lanes.clone()) {
            lanes.resume_from(&learned, MOST_AGE);
        }
    }
}
