//! What must hold of each row.

use std::time::Duration;

use crate::{
    caller::{CALLS, DEADLINE, OTHERS, WARM_UP, budget},
    documented::Document,
    fault::{Extent, Fault},
    round::Row,
};
use interop::{Mode, Outcome, ensure};

/// How late a call may end on a machine that is busy with other things.
const LATE: Duration = Duration::from_secs(5);

/// The ways in which a call may fail here: that of a broken connection, and that of time.
const FAILURES: [&str; 2] = ["UNAVAILABLE", "DEADLINE_EXCEEDED"];

pub(crate) fn holds(row: &Row, document: &Document) -> Outcome {
    let may = document.ends(row)?;
    for (calls, may) in [&row.repeatable, &row.others].into_iter().zip(may) {
        let codes = &calls.told.codes;
        for code in codes.keys().map(String::as_str) {
            ensure!(code == "OK" || FAILURES.contains(&code), "{codes:?}");
            ensure!(may.contains(code), "{codes:?}, documented: {may:?}");
        }
        let slowest = calls.told.quantile(1.0);
        ensure!(slowest < DEADLINE + LATE, "{slowest:?}");
        ensure!(calls.arrived <= calls.told.sent, "{calls:?}");
    }
    if !may_fail(row) {
        let codes = &row.repeatable.told.codes;
        ensure!(row.repeatable.told.failed() == 0, "{codes:?}");
    }
    let others = &row.others;
    ensure!(others.most_arrived <= 1, "{}", others.most_arrived);
    ensure!(others.told.most_sent <= 1, "{}", others.told.most_sent);

    let budget = budget(row.mode);
    let funded = budget.initial + budget.ratio * f64::from(WARM_UP + CALLS + OTHERS);
    let extra = match row.fault {
        // Connections end again and again: of the attempts in the log many never left, and had their
        // tokens back. The log does not tell which; the replicas tell what arrived.
        Fault::SlowClose => row.repeatable.arrived.saturating_sub(u64::from(CALLS)),
        _ => row.repeatable.told.extra,
    };
    ensure!(extra as f64 <= funded, "{extra} of {funded}");
    match row.mode {
        Mode::Off => ensure!(row.repeatable.told.hedges == 0, "{row:?}"),
        // Else it would be luck that no call has met the fault.
        Mode::On if row.fault.is_silent() => ensure!(row.repeatable.told.hedges > 0, "{row:?}"),
        Mode::Forced if row.extent == Extent::One => {
            ensure!(row.repeatable.told.hedges > 0, "{row:?}");
        }
        _ => {}
    }
    ensure!(row.healed.is_some(), "it is not healed");
    Ok(())
}

/// Whether a repeatable call may fail: where there is no good replica, or where only a hedge would
/// have asked one.
fn may_fail(row: &Row) -> bool {
    row.extent == Extent::All || row.mode == Mode::Off && row.fault.is_silent()
}
