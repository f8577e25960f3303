//! What is printed of the counts.

use serde_json::{Map, Value, json};

use crate::{Counts, case::Case, table::Table, thousands::thousands};

/// Each count, and what it is over that of the case's base.
pub(crate) fn table(counted: &[(Case, Counts)]) -> Table {
    let mut table = Table::new([
        "per call",
        "instructions",
        "own",
        "allocations",
        "own",
        "bytes",
        "own",
    ]);
    for (case, counts) in counted {
        let own = own(counted, *case);
        let of_own = |count: fn(&Counts) -> f64, decimals: usize| match &own {
            Some(own) if decimals == 0 => thousands(count(own)),
            Some(own) => format!("{:.decimals$}", count(own)),
            None => String::new(),
        };
        table.row([
            case.name().to_owned(),
            thousands(counts.instructions),
            of_own(|it| it.instructions, 0),
            format!("{:.2}", counts.allocations),
            of_own(|it| it.allocations, 2),
            thousands(counts.bytes),
            of_own(|it| it.bytes, 0),
        ]);
    }
    table
}

pub(crate) fn json(counted: &[(Case, Counts)]) -> Value {
    let case = |(case, counts): &(Case, Counts)| {
        let mut value = value(counts);
        value["own"] = own(counted, *case).map_or(Value::Null, |own| self::value(&own));
        (case.name().to_owned(), value)
    };
    Value::Object(counted.iter().map(case).collect())
}

/// What goes into the baseline.
pub(crate) fn counts(counted: &[(Case, Counts)]) -> Map<String, Value> {
    let case = |(case, counts): &(Case, Counts)| (case.name().to_owned(), value(counts));
    counted.iter().map(case).collect()
}

fn own(counted: &[(Case, Counts)], case: Case) -> Option<Counts> {
    let of = |wanted: Case| counted.iter().find(|(case, _)| *case == wanted);
    let (counts, base) = (of(case)?.1, of(case.base())?.1);
    (case != case.base()).then(|| counts.minus(base))
}

fn value(counts: &Counts) -> Value {
    json!({
        "instructions": counts.instructions.round(),
        "allocations": (counts.allocations * 100.0).round() / 100.0,
        "bytes": counts.bytes.round(),
    })
}
