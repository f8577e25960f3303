//! Runs everything, and prints it as a table or as JSON.

use serde_json::{Value, json};

use crate::{
    Outcome,
    args::Measure,
    case::Case,
    instructions,
    rounds::{self, Compared, Spread},
    server::Servers,
};

/// Calls in flight: a moderately busy client, and a busy one.
const IN_FLIGHT: [usize; 2] = [16, 64];

/// One call at a time: the counts are then the same from run to run, within a few parts in a
/// thousand.
const COUNTED_IN_FLIGHT: usize = 1;

pub(crate) fn all(measure: &Measure) -> Outcome<()> {
    let servers = Servers::start()?;
    let mut json = json!({ "in_flight": {}, "instructions_per_call": Value::Null });

    for in_flight in IN_FLIGHT.into_iter().filter(|_| measure.times) {
        let compared = rounds::compare(&servers.addrs, measure.rounds, in_flight)?;
        if !measure.json {
            print_times(in_flight, measure.rounds, &compared);
        }
        json["in_flight"][in_flight.to_string()] = compared
            .iter()
            .map(|case| (case.case.name().to_owned(), times(case)))
            .collect();
    }

    let counted = [
        ("instructions_per_call", "the client's", &*servers.addrs),
        (
            "instructions_per_call_in_process",
            "client's and immediate service's",
            &[],
        ),
    ];
    for (key, whose, servers) in counted {
        let counts: Outcome<Option<Vec<f64>>> = Case::ALL
            .into_iter()
            .map(|case| instructions::per_call(case, servers, COUNTED_IN_FLIGHT))
            .collect();
        let counts = counts?;
        if !measure.json {
            print_counts(whose, counts.as_deref());
        }
        if let Some(counts) = counts {
            json[key] = Case::ALL
                .into_iter()
                .zip(counts)
                .map(|(case, count)| (case.name().to_owned(), Value::from(count.round())))
                .collect();
        }
    }
    if measure.json {
        println!("{json}");
    }
    Ok(())
}

fn print_times(in_flight: usize, rounds: usize, compared: &[Compared]) {
    println!("{in_flight} calls in flight, {rounds} rounds: median (quartiles)");
    println!("            CPU/call   ratio                    calls/s   ratio");
    for case in compared {
        println!(
            "{:>9} {:>8.1} us   {}   {:>7.0}   {}",
            case.case.name(),
            case.cpu,
            spread(case.cpu_ratio),
            case.throughput,
            spread(case.throughput_ratio),
        );
    }
    println!();
}

fn spread(Spread { low, median, high }: Spread) -> String {
    format!("{median:.3} ({low:.3} to {high:.3})")
}

fn print_counts(whose: &str, counts: Option<&[f64]>) {
    let Some(counts) = counts else {
        println!("valgrind is not installed: no instruction counts");
        return;
    };
    println!("one call in flight: {whose} instructions per call (callgrind)");
    for (case, count) in Case::ALL.into_iter().zip(counts) {
        let ratio = count / counts[0];
        println!("{:>9} {count:>8.0}   {ratio:.3}", case.name());
    }
}

fn times(case: &Compared) -> Value {
    let spread =
        |Spread { low, median, high }| json!({ "low": low, "median": median, "high": high });
    json!({
        "cpu_us_per_call": case.cpu,
        "calls_per_second": case.throughput,
        "cpu_ratio": spread(case.cpu_ratio),
        "throughput_ratio": spread(case.throughput_ratio),
    })
}
