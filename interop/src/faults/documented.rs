//! `docs/faults.md`: its table, how calls may end by it, and the table of this run.

use std::{collections::BTreeSet, error::Error, fmt, fs};

use crate::round::{Calls, Row};

const DOCUMENT: &str = "docs/faults.md";

/// Of the table.
pub(crate) const HEAD: &str = "\
| fault | replicas | hedging | repeatable calls end | failed | arrived per call | p50, p99 ms | others end | failed | healed after s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// What the document says.
pub(crate) struct Document {
    rows: Vec<Vec<String>>,
}

impl Document {
    pub(crate) fn read() -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(DOCUMENT)?;
        let rows = text.lines().map(|line| {
            let cells = line.split('|').map(|cell| cell.trim().to_owned());
            cells.collect()
        });
        Ok(Self {
            rows: rows.collect(),
        })
    }

    /// How repeatable calls may end, and how others may.
    pub(crate) fn ends(&self, row: &Row) -> Result<[BTreeSet<&str>; 2], Box<dyn Error>> {
        let key = [row.fault.name(), row.extent.name(), row.mode.name()];
        let documented = self.rows.iter().find(|cells| {
            cells.len() == HEAD_CELLS && cells[1..4].iter().map(String::as_str).eq(key)
        });
        let cells = documented.ok_or_else(|| format!("{DOCUMENT} has no row {key:?}"))?;
        Ok([4, 8].map(|at| cells[at].split(", ").collect()))
    }
}

/// Ten, and what is before the first and after the last.
const HEAD_CELLS: usize = 12;

/// One line of the table. How calls end is what was seen; the document says what may be.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fault, extent) = (self.fault.name(), self.extent.name());
        write!(f, "| {fault} | {extent} | {} ", self.mode.name())?;
        let calls = &self.repeatable;
        write!(f, "| {} | {} ", ends(calls), failed(calls))?;
        write!(f, "| {:.2} ", calls.amplification())?;
        let millis = |share| calls.told.quantile(share).as_secs_f64() * 1e3;
        write!(f, "| {:.0}, {:.0} ", millis(0.5), millis(0.99))?;
        write!(f, "| {} | {} ", ends(&self.others), failed(&self.others))?;
        match self.healed {
            Some(healed) => write!(f, "| {:.1} |", healed.as_secs_f64()),
            None => f.write_str("| never |"),
        }
    }
}

fn ends(calls: &Calls) -> String {
    let codes: Vec<_> = calls.told.codes.keys().map(String::as_str).collect();
    codes.join(", ")
}

fn failed(calls: &Calls) -> String {
    let share = calls.told.failed() as f64 / calls.told.calls() as f64;
    format!("{:.0} %", 100.0 * share)
}

impl Calls {
    /// How often a call arrived, on average.
    fn amplification(&self) -> f64 {
        self.arrived as f64 / self.told.calls() as f64
    }
}
