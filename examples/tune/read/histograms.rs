//! A log of HDR histograms, one for each interval, as `HistogramLogWriter` writes it.

use std::{collections::BTreeSet, io::BufRead};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogHistogram, IntervalLogIterator, LogEntry},
    },
};

use super::{Lines, Recorded, Source, Unit};
use crate::latencies::{DIGITS, Latencies};

/// How far the quotient of two rounded numbers may be from a power of ten.
const TOLERANCE: f64 = 0.05;

pub(super) fn read(source: &Source, input: impl BufRead) -> Result<Recorded, String> {
    let file = &source.file;
    let mut log = Log {
        sum: Histogram::new(DIGITS).map_err(|error| error.to_string())?,
        intervals: 0,
        tags: BTreeSet::new(),
        greatest: 0.0,
        per_unit: None,
    };
    let mut lines = Lines::new(file, input);
    while let Some((number, line)) = lines.next()? {
        let wrong = |what: String| format!("{file}:{number}: {what}");
        let line = format!("{line}\n");
        for entry in IntervalLogIterator::new(line.as_bytes()) {
            let entry = entry.map_err(|_| wrong("not a line of a histogram log".to_owned()))?;
            if let LogEntry::Interval(interval) = entry {
                log.add(&interval, source.column.as_deref())
                    .map_err(wrong)?;
            }
        }
    }
    let tags = || {
        let tags: Vec<_> = log.tags.iter().map(|tag| format!("{tag:?}")).collect();
        tags.join(", ")
    };
    match &source.column {
        None if log.tags.len() > 1 => {
            let tags = tags();
            return Err(format!(
                "{file}: say --column, a tag, or \"\" for none: {tags}"
            ));
        }
        Some(asked) if log.intervals == 0 => {
            return Err(format!("{file}: {asked:?} is none of its tags: {}", tags()));
        }
        _ => {}
    }
    let unit = match source.unit.or(log.per_unit) {
        Some(unit) => unit,
        None if log.sum.is_empty() => Unit::Ms,
        None => return Err(format!("{file}: its unit does not show; say --unit")),
    };
    let mut latencies = Latencies::new()?;
    for value in log.sum.iter_recorded() {
        let count = value.count_at_value();
        let value = log.sum.median_equivalent(value.value_iterated_to());
        let latency = unit.latency(value as f64, &value.to_string());
        let latency = latency.map_err(|wrong| format!("{file}: {wrong}"))?;
        latencies.add_many(latency, count);
    }
    Ok(Recorded {
        latencies,
        format: format!("an HDR histogram log of {} intervals", log.intervals),
        unit,
    })
}

struct Log {
    /// Of all intervals, in the log's own unit.
    sum: Histogram<u64>,
    intervals: u64,
    /// All that were seen: `""` is none.
    tags: BTreeSet<String>,
    /// Of the maxima so far.
    greatest: f64,
    /// What the log's head tells of the unit.
    per_unit: Option<Unit>,
}

impl Log {
    fn add(
        &mut self,
        interval: &IntervalLogHistogram<'_>,
        asked: Option<&str>,
    ) -> Result<(), String> {
        let tag = interval.tag().map_or("", |tag| tag.as_str());
        self.tags.insert(tag.to_owned());
        if asked.is_some_and(|asked| asked != tag) {
            return Ok(());
        }
        let bytes = STANDARD.decode(interval.encoded_histogram());
        let bytes = bytes.map_err(|error| format!("a histogram that is not base64: {error}"))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("a histogram that is not V2: {error}"))?;
        self.sum
            .add(&histogram)
            .map_err(|error| error.to_string())?;
        self.intervals += 1;
        if interval.max() > self.greatest {
            self.greatest = interval.max();
            self.per_unit = unit_of(histogram.max() as f64 / interval.max());
        }
        Ok(())
    }
}

/// Logs write each interval's maximum in milliseconds beside a histogram of nano- or
/// microseconds, and in seconds beside one of nanoseconds only.
fn unit_of(quotient: f64) -> Option<Unit> {
    let is = |power: f64| (quotient / power - 1.0).abs() < TOLERANCE;
    match () {
        () if is(1e9) || is(1e6) => Some(Unit::Ns),
        () if is(1e3) => Some(Unit::Us),
        () => None,
    }
}
