//! A table in columns: the first to the left, the others to the right.

use std::fmt;

pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self(vec![head.into_iter().map(Into::into).collect()])
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for row in &self.0 {
            for (column, cell) in row.iter().enumerate() {
                match column {
                    0 => write!(out, "{cell:<0$}", width(column))?,
                    _ => write!(out, "  {cell:>0$}", width(column))?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
