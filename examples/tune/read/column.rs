//! A column of a table: CSV, or with tabs or semicolons.

use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{Recorded, Source, Unit, value};
use crate::latencies::Latencies;

pub(super) fn read(source: &Source, input: impl Read, delimiter: u8) -> Result<Recorded, String> {
    let file = &source.file;
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .from_reader(input);
    let mut record = StringRecord::new();
    let mut next = |record: &mut StringRecord| {
        let read = reader.read_record(record);
        read.map_err(|error| format!("{file}: {error}"))
    };

    let (mut first, mut second) = (StringRecord::new(), StringRecord::new());
    next(&mut first)?;
    next(&mut second)?;
    let column = Column::choose(source.column.as_deref(), &first, &second)
        .map_err(|wrong| format!("{file}: {wrong}"))?;
    let unit = source.unit.or(column.unit()).unwrap_or(Unit::Ms);

    let mut latencies = Latencies::new()?;
    let mut add = |record: &StringRecord| {
        let line = record.position().map_or(0, csv::Position::line);
        let latency = match record.get(column.index) {
            Some(text) => value::latency(text, unit),
            None => Err("there is none".to_owned()),
        };
        let latency =
            latency.map_err(|wrong| format!("{file}:{line}: {}: {wrong}", column.name()))?;
        latencies.add(latency);
        Ok::<_, String>(())
    };
    if column.header.is_none() {
        add(&first)?;
    }
    if !second.is_empty() {
        add(&second)?;
    }
    while next(&mut record)? {
        add(&record)?;
    }
    Ok(Recorded {
        latencies,
        format: format!("a table, {}", column.name()),
        unit,
    })
}

/// How columns of latencies are called, in part.
const NAMES: [&str; 3] = ["latency", "duration", "elapsed"];

struct Column {
    /// From 0.
    index: usize,
    /// What the table calls it.
    header: Option<String>,
}

impl Column {
    /// Finds what is asked for, by name before number; without it, the only column of
    /// numbers, or the only one of them that is called a latency.
    fn choose(
        asked: Option<&str>,
        first: &StringRecord,
        second: &StringRecord,
    ) -> Result<Self, String> {
        let named = |index| Self {
            index,
            header: first.get(index).map(str::to_owned),
        };
        if let Some(asked) = asked {
            if let Some(index) = first.iter().position(|field| field == asked) {
                return Ok(named(index));
            }
            let number = asked.parse::<usize>().ok();
            let index = number.and_then(|number| number.checked_sub(1));
            return match index.and_then(|index| Some((index, first.get(index)?))) {
                Some((index, field)) if value::is_number(field) => Ok(Self {
                    index,
                    header: None,
                }),
                Some((index, _)) => Ok(named(index)),
                None => Err(format!(
                    "{asked:?} is none of its columns: {}",
                    list(first.iter())
                )),
            };
        }
        let has_header = !first.iter().any(value::is_number);
        let candidates = match has_header {
            true => second,
            false => first,
        };
        let candidates = candidates.iter().enumerate();
        let candidates = candidates.filter(|(_, field)| value::is_number(field));
        let candidates: Vec<_> = candidates.map(|(index, _)| index).collect();
        let is_named = |index: &&usize| {
            let name = first.get(**index).unwrap_or_default().to_lowercase();
            has_header && NAMES.iter().any(|it| name.contains(it))
        };
        let mut named_so = candidates.iter().filter(is_named);
        match (candidates.as_slice(), named_so.next(), named_so.next()) {
            ([], ..) => Err("no numbers".to_owned()),
            ([index], ..) | (_, Some(index), None) => Ok(match has_header {
                true => named(*index),
                false => Self {
                    index: *index,
                    header: None,
                },
            }),
            _ => Err(format!(
                "say --column, a name or a number: {}",
                list(first.iter())
            )),
        }
    }

    /// The unit that its name ends with: `latency_us`, `duration (s)`.
    fn unit(&self) -> Option<Unit> {
        let name = self.header.as_deref()?.trim_end_matches([')', ']']);
        let unit = name.rsplit(['_', ' ', '(', '[', '.', '-']).next()?;
        unit.parse().ok().filter(|_| unit.len() < name.len())
    }

    fn name(&self) -> String {
        match &self.header {
            Some(header) => format!("column {header:?}"),
            None => format!("column {}", self.index + 1),
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    names.join(", ")
}
