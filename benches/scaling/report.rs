//! What was measured, as a table or as JSON.

use serde_json::{Value, json};

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

/// The middle of some numbers, and the quartiles around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
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

impl Spread {
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<_> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (numbers.len().saturating_sub(1)) as f64 * share;
            numbers.get(index.round() as usize).copied()
        };
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| at(share).unwrap_or(f64::NAN));
        Self { low, median, high }
    }

    fn json(self, digits: i32) -> Value {
        let round = |number: f64| {
            let scale = 10_f64.powi(digits);
            (number * scale).round() / scale
        };
        json!({ "low": round(self.low), "median": round(self.median), "high": round(self.high) })
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
            "value": self.value.json(1),
            "ratio": self.ratio.map(|ratio| ratio.json(3)),
        })
    }
}
