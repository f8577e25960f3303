//! What is printed of times and counts.

use serde_json::{Value, json};

use crate::{
    case::Case,
    counts::Counts,
    table::Table,
    thousands::thousands,
    times::{Compared, Load},
};

pub(crate) fn times_table(load: Load, compared: &[Compared]) -> String {
    let rounds = compared.first().map_or(0, |first| first.rounds);
    let mut table = Table::new([
        "",
        "CPU us",
        "ratio (quartiles)",
        "calls/s",
        "ratio (quartiles)",
        "p50 us",
        "over plain",
        "p99 us",
        "over plain",
    ]);
    for it in compared {
        let own = |text: String| match it.case {
            Case::Plain => String::new(),
            _ => text,
        };
        table.row([
            it.case.name().to_owned(),
            format!("{:.1}", it.cost.cpu),
            own(it.cpu_ratio.to_string()),
            thousands(it.cost.throughput),
            own(it.throughput_ratio.to_string()),
            format!("{:.0}", it.cost.p50),
            own(format!("{:.1}", it.p50_over)),
            format!("{:.0}", it.cost.p99),
            own(format!("{:.1}", it.p99_over)),
        ]);
    }
    format!(
        "{} in flight, {} bytes each way, {rounds} rounds\n{table}",
        load.in_flight,
        thousands(load.bytes as f64)
    )
}

pub(crate) fn times_json(load: Load, compared: &[Compared]) -> Value {
    let case = |it: &Compared| {
        let costs = json!({
            "cpu_us_per_call": it.cost.cpu,
            "calls_per_second": it.cost.throughput,
            "p50_us": it.cost.p50,
            "p99_us": it.cost.p99,
            "cpu_ratio": it.cpu_ratio.json(),
            "throughput_ratio": it.throughput_ratio.json(),
            "p50_over_plain_us": it.p50_over.json(),
            "p99_over_plain_us": it.p99_over.json(),
        });
        (it.case.name().to_owned(), costs)
    };
    json!({
        "in_flight": load.in_flight,
        "bytes": load.bytes,
        "rounds": compared.first().map_or(0, |first| first.rounds),
        "cases": Value::Object(compared.iter().map(case).collect()),
    })
}

pub(crate) fn counts_table(counted: &[(Case, Counts)]) -> String {
    let mut table = Table::new(["", "instructions", "ratio", "allocations", "bytes"]);
    let plain = counted.first().map_or(f64::NAN, |(_, it)| it.instructions);
    for (case, counts) in counted {
        table.row([
            case.name().to_owned(),
            thousands(counts.instructions),
            format!("{:.3}", counts.instructions / plain),
            format!("{:.2}", counts.allocated.blocks),
            thousands(counts.allocated.bytes),
        ]);
    }
    format!("the client's, per call: 1 in flight, 3 endpoints, empty messages\n{table}")
}

pub(crate) fn counts_json(counted: &[(Case, Counts)]) -> Value {
    let plain = counted.first().map_or(f64::NAN, |(_, it)| it.instructions);
    let case = |(case, counts): &(Case, Counts)| {
        let counts = json!({
            "instructions": counts.instructions.round(),
            "instructions_ratio": counts.instructions / plain,
            "allocations": (counts.allocated.blocks * 100.0).round() / 100.0,
            "bytes": counts.allocated.bytes.round(),
        });
        (case.name().to_owned(), counts)
    };
    Value::Object(counted.iter().map(case).collect())
}
