//! What was measured, as a table or as JSON.

use serde_json::{Value, json};

use crate::spread::Spread;

/// One number.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// How many endpoints, methods or threads.
    pub(crate) size: usize,
    pub(crate) unit: &'static str,
    pub(crate) value: Spread,
    /// Against the smallest size.
    pub(crate) ratio: Option<Spread>,
}

impl Row {
    /// Bytes, which are the same each time.
    pub(crate) fn bytes(name: &'static str, size: usize, bytes: f64) -> Self {
        Self {
            name,
            size,
            unit: "bytes",
            value: Spread::of([bytes]),
            ratio: None,
        }
    }
}

/// Prints all rows.
pub(crate) fn print(rows: &[Row], json: bool) {
    if json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", json!(rows));
        return;
    }
    println!("| what | size | median | quartiles | against the smallest |");
    println!("| --- | ---: | ---: | --- | --- |");
    for Row {
        name,
        size,
        unit,
        value,
        ratio,
    } in rows
    {
        let spread = match *unit {
            "ns" => format!("{:.1} to {:.1}", value.low, value.high),
            _ => String::new(),
        };
        let ratio = ratio.map_or_else(String::new, |ratio| {
            format!(
                "{:.2} ({:.2} to {:.2})",
                ratio.median, ratio.low, ratio.high
            )
        });
        let digits = usize::from(*unit == "ns");
        let median = value.median;
        println!("| {name} | {size} | {median:.digits$} {unit} | {spread} | {ratio} |");
    }
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "size": self.size,
            "unit": self.unit,
            "value": self.value.json(),
            "ratio": self.ratio.map(Spread::json),
        })
    }
}
