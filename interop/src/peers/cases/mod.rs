//! The cases: what a hedged channel promises, asked of servers that are not tonic's.
//!
//! - `race`: who is raced, who wins, and what an attempt says of itself.
//! - `status`: failures, their details, and the server's pushback.
//! - `cancel`: who hears that a call is over.
//! - `loss`: servers that drain, die and come back.

mod cancel;
mod load;
mod loss;
mod race;
mod replicas;
mod status;

use std::{error::Error, path::Path, time::Duration};

use interop::{Mode, Outcome, Report};

use self::replicas::Replicas;

/// All cases, in the order in which they run.
pub(crate) const CASES: &[&str] = &[
    "hedge_wins",
    "slow_replica",
    "attempt_headers",
    "non_idempotent_once",
    "status_details",
    "resource_exhausted",
    "pushback_stops",
    "pushback_unreadable",
    "pushback_delays",
    "deadline",
    "caller_gone",
    "goaway",
    "killed_connection",
    "restarted",
];

/// A case that hangs has failed: each takes seconds, most of them for a server's start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays those cases, each in every mode, with servers that `command` starts.
pub(crate) async fn play(
    cases: &[&str],
    report: &mut Report,
    command: &[String],
    descriptors: &Path,
) {
    let mut replicas = None;
    for case in cases {
        for mode in Mode::ALL {
            if let Some(reason) = impossible(case, mode) {
                report.impossible(case, mode, reason);
                continue;
            }
            let outcome = cell(case, mode, &mut replicas, command, descriptors).await;
            // What a failed case left behind is nobody else's.
            if outcome.is_err() {
                replicas = None;
            }
            report.add_in(case, mode, outcome);
        }
    }
}

/// One case in one mode, with the servers that are there already or with new ones.
async fn cell(
    case: &str,
    mode: Mode,
    replicas: &mut Option<Replicas>,
    command: &[String],
    descriptors: &Path,
) -> Outcome {
    let replicas = match replicas {
        Some(replicas) => replicas,
        None => replicas.insert(Replicas::start(command, descriptors).await?),
    };
    tokio::time::timeout(PATIENCE, run(case, mode, replicas))
        .await
        .unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()))
}

/// Why a case has no meaning in a mode.
fn impossible(case: &str, mode: Mode) -> Option<&'static str> {
    match (case, mode) {
        ("hedge_wins" | "slow_replica", Mode::Off) => Some("nothing is raced without a policy"),
        _ => None,
    }
}

async fn run(case: &str, mode: Mode, replicas: &mut Replicas) -> Outcome {
    match case {
        "hedge_wins" => race::hedge_wins(mode, replicas).await,
        "slow_replica" => race::slow_replica(mode, replicas).await,
        "attempt_headers" => race::attempt_headers(mode, replicas).await,
        "non_idempotent_once" => race::non_idempotent_once(mode, replicas).await,
        "status_details" => status::status_details(mode, replicas).await,
        "resource_exhausted" => status::resource_exhausted(mode, replicas).await,
        "pushback_stops" => status::pushback_stops(mode, replicas).await,
        "pushback_unreadable" => status::pushback_unreadable(mode, replicas).await,
        "pushback_delays" => status::pushback_delays(mode, replicas).await,
        "deadline" => cancel::deadline(mode, replicas).await,
        "caller_gone" => cancel::caller_gone(mode, replicas).await,
        "goaway" => loss::goaway(mode, replicas).await,
        "killed_connection" => loss::killed_connection(mode, replicas).await,
        "restarted" => loss::restarted(mode, replicas).await,
        _ => Err("listed but not written".into()),
    }
}

/// What every case may fail with.
type Failed = Box<dyn Error>;
