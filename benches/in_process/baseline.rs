//! The counts that are committed, and whether new ones rise over them.
//!
//! They are of one compiler and one libc: another may count otherwise, and then they are blessed anew.

use std::{fs, path::PathBuf};

use serde_json::{Map, Value};

use crate::args::Outcome;

/// By how much a count may rise: well over what counts differ by from run to run.
const TOLERANCE: f64 = 0.03;

fn path() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "benches/in_process/baseline.json",
    ]
    .iter()
    .collect()
}

/// Writes `counts` (a number for each kind of count of each case), but leaves cases alone that were not counted.
pub(crate) fn bless(counts: &Map<String, Value>) -> Outcome<()> {
    // Where it is not there yet or broken, it is made anew.
    let mut baseline = read().unwrap_or_default();
    baseline.extend(counts.clone());
    let mut text = serde_json::to_string_pretty(&baseline)?;
    text.push('\n');
    fs::write(path(), text)?;
    Ok(())
}

/// Prints what changed by more than the tolerance, and returns whether nothing rose so.
pub(crate) fn check(counts: &Map<String, Value>) -> Outcome<bool> {
    let baseline = read().map_err(|error| format!("{}: {error}", path().display()))?;
    let mut holds = true;
    for (case, counted) in counts {
        for (what, now) in counted.as_object().into_iter().flatten() {
            let was = baseline.get(case).and_then(|case| case.get(what));
            let (Some(now), Some(was)) = (now.as_f64(), was.and_then(Value::as_f64)) else {
                println!("{case}: its {what} are not in the baseline");
                holds = false;
                continue;
            };
            let change = now / was - 1.0;
            if change.abs() <= TOLERANCE {
                continue;
            }
            holds &= change < 0.0;
            println!(
                "{case}: {now:.0} {what} per call, {was:.0} in the baseline: {:+.1} %",
                change * 100.0
            );
        }
    }
    println!(
        "{}; `cargo bench --bench in_process -- --bless` writes the baseline",
        match holds {
            true => "no count rose by more than 3 %",
            false => "a count rose by more than 3 %, or is new",
        }
    );
    Ok(holds)
}

fn read() -> Outcome<Map<String, Value>> {
    Ok(serde_json::from_str(&fs::read_to_string(path())?)?)
}
