//! Reads a file of recorded latencies: one a line, a column of a table, or a log of HDR histograms.
//!
//! The content says which. Files are read as a stream: their size does not matter.

mod column;
mod histograms;
mod lines;
mod value;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
};

use crate::latencies::Latencies;

pub(crate) use value::Unit;

/// What of the file is looked at to recognise it: some lines of any table, or a log's head.
const HEAD: u64 = 64 * 1024;

/// A longer line is none of a text: this bounds what is held of a file without line ends. A
/// compressed histogram of five digits stays below it.
const LONGEST_LINE: usize = 1024 * 1024;

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// A path, or `-` for the standard input.
    pub(crate) file: String,
    /// A column's name or number from 1; of a log, a tag.
    pub(crate) column: Option<String>,
    /// Of numbers without one.
    pub(crate) unit: Option<Unit>,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) latencies: Latencies,
    /// The format that was recognised, for people.
    pub(crate) format: String,
    /// Of numbers without one.
    pub(crate) unit: Unit,
}

/// Reads it all; an error names the file, the line, the value and the bound.
pub(crate) fn read(source: &Source) -> Result<Recorded, String> {
    let input: Box<dyn Read> = match source.file.as_str() {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(|error| format!("{path}: {error}"))?),
    };
    read_from(source, input)
}

/// The same from any reader.
pub(crate) fn read_from(source: &Source, mut input: impl Read) -> Result<Recorded, String> {
    let name = &source.file;
    let mut head = Vec::new();
    let looked_at = input.by_ref().take(HEAD).read_to_end(&mut head);
    looked_at.map_err(|error| format!("{name}: {error}"))?;
    // A byte order mark is no part of the first value.
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).to_vec();
    let format = Format::of(&String::from_utf8_lossy(&text), source.column.is_some());
    let input = BufReader::new(Cursor::new(text).chain(input));
    let recorded = match format {
        Format::Histograms => histograms::read(source, input),
        Format::Column { delimiter } => column::read(source, input, delimiter),
        Format::Lines => lines::read(source, input),
    }?;
    match recorded.latencies.count() {
        0 => Err(format!("{name}: no numbers")),
        count if count < Latencies::LEAST => Err(format!(
            "{name}: the number of values, {count}, is not at least {}",
            Latencies::LEAST
        )),
        _ => Ok(recorded),
    }
}

/// How latencies are written down.
#[derive(Debug, PartialEq, Eq)]
enum Format {
    Lines,
    Column { delimiter: u8 },
    Histograms,
}

impl Format {
    /// Recognises the first lines of a file.
    fn of(head: &str, column: bool) -> Self {
        let is_log = |line: &str| {
            line.starts_with("#[")
                || line.starts_with("\"StartTimestamp\"")
                || line
                    .rsplit(',')
                    .next()
                    .is_some_and(|it| it.starts_with("HIST"))
        };
        let mut lines = head.lines().map(str::trim).filter(|line| !line.is_empty());
        if lines.clone().next().is_some_and(is_log) {
            return Self::Histograms;
        }
        let mut lines = lines.by_ref().filter(|line| !line.starts_with('#'));
        let first = lines.next().unwrap_or_default();
        if is_log(first) {
            return Self::Histograms;
        }
        let delimiter = [b'\t', b';', b','];
        let delimiter = delimiter
            .into_iter()
            .find(|&it| first.contains(char::from(it)));
        // A table of one column is known by its header: a name, and a number below it.
        let is_name = |text: &str| {
            text.starts_with(|it: char| it.is_alphabetic() || it == '_') && !value::is_number(text)
        };
        let header = is_name(first) && lines.next().is_some_and(value::is_number);
        match delimiter {
            Some(delimiter) => Self::Column { delimiter },
            None if column || header || first.starts_with('"') => Self::Column { delimiter: b',' },
            None => Self::Lines,
        }
    }
}

/// The lines of a text, by their numbers, without those that are blank.
struct Lines<'a, R> {
    file: &'a str,
    input: R,
    number: u64,
    line: Vec<u8>,
}

impl<'a, R: BufRead> Lines<'a, R> {
    fn new(file: &'a str, input: R) -> Self {
        Self {
            file,
            input,
            number: 0,
            line: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Option<(u64, &str)>, String> {
        let file = self.file;
        loop {
            self.line.clear();
            self.number += 1;
            let number = self.number;
            let mut input = self.input.by_ref().take(LONGEST_LINE as u64);
            let read = input.read_until(b'\n', &mut self.line);
            match read.map_err(|error| format!("{file}: {error}"))? {
                0 => return Ok(None),
                LONGEST_LINE => {
                    return Err(format!("{file}:{number}: longer than {LONGEST_LINE} bytes"));
                }
                _ if self.line.trim_ascii().is_empty() => {}
                _ => break,
            }
        }
        let number = self.number;
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some((number, line.trim()))),
            Err(_) => Err(format!("{file}:{number}: not UTF-8")),
        }
    }
}

#[cfg(test)]
mod tests;
