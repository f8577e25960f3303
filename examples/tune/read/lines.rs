//! One latency a line.

use std::io::BufRead;

use super::{Lines, Recorded, Source, Unit, value};
use crate::latencies::Latencies;

pub(super) fn read(source: &Source, input: impl BufRead) -> Result<Recorded, String> {
    let unit = source.unit.unwrap_or(Unit::Ms);
    let mut latencies = Latencies::new()?;
    let mut lines = Lines::new(&source.file, input);
    while let Some((number, line)) = lines.next()? {
        // Also behind a value.
        let text = line.split('#').next().unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        match value::latency(text, unit) {
            Ok(latency) => latencies.add(latency),
            Err(wrong) => return Err(format!("{}:{number}: {wrong}", source.file)),
        }
    }
    Ok(Recorded {
        latencies,
        format: "one latency a line".to_owned(),
        unit,
    })
}
