//! CPU time of an operation, in rounds.

use crate::{ROUNDS, cpu, report::Row, spread::Spread};

/// One size of what is measured.
pub(crate) struct Size<'a> {
    /// How many endpoints, methods or threads.
    pub(crate) size: usize,
    /// Runs the operation so often.
    pub(crate) run: Box<dyn FnMut(usize) + 'a>,
}

/// The times of one operation at some sizes, against the first of them. Each round runs it
/// `times` times at each size.
pub(crate) fn compare(name: &'static str, times: usize, mut sizes: Vec<Size<'_>>) -> Vec<Row> {
    let mut costs = vec![Vec::new(); sizes.len()];
    for size in &mut sizes {
        (size.run)(times);
    }
    for round in 0..ROUNDS {
        // Who goes first changes, since the first finds other caches than the last.
        for turn in 0..sizes.len() {
            let index = (round + turn) % sizes.len();
            let began = cpu::seconds();
            (sizes[index].run)(times);
            costs[index].push((cpu::seconds() - began) * 1e9 / times as f64);
        }
    }
    let base = costs[0].clone();
    let rows = sizes.iter().zip(costs).map(|(size, costs)| Row {
        name,
        size: size.size,
        unit: "ns",
        ratio: Some(Spread::of_ratios(&costs, &base)),
        value: Spread::of(costs),
    });
    rows.collect()
}
