//! Reads real .proto files, as they were published, in the way a channel does, and compares which
//! methods may be hedged with what protobuf's own library says of them.
//!
//! `interop-protos CASE|all`; `interop/run protos` fetches and compiles what it reads.

mod case;
mod channel;

use std::{env, error::Error, process::ExitCode};

use interop::{Outcome, Report, ensure};

use case::Case;

/// What is known of the pinned files, so that a comparison of nothing with nothing does not pass:
/// a case, its methods, those that may be hedged by their level, and those by that or an HTTP GET.
const CASES: [(&str, usize, usize, usize); 15] = [
    ("bazel", 18, 0, 5),
    ("buf_registry", 149, 128, 128),
    ("connect_conformance", 6, 1, 1),
    ("deep_imports", 2, 0, 0),
    ("edition_2023", 9, 0, 2),
    ("etcd", 41, 0, 0),
    ("gogoproto", 1, 0, 0),
    ("googleapis_iam_location", 5, 0, 2),
    ("googleapis_longrunning", 5, 0, 2),
    ("googleapis_pubsub", 35, 0, 11),
    ("http_rules", 67, 0, 15),
    ("no_package", 3, 1, 1),
    ("proto2", 3, 0, 0),
    ("proto2_options", 1, 0, 0),
    ("protovalidate", 0, 0, 0),
];

// A channel is made in a runtime, though none of these is called.
#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = env::args().nth(1).ok_or("usage: interop-protos CASE|all")?;
    let chosen = CASES
        .into_iter()
        .filter(|(name, ..)| wanted == "all" || wanted == *name);
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        let names = CASES.map(|(name, ..)| name).join(", ");
        return Err(format!("no case {wanted}; there are: {names}").into());
    }
    let mut report = Report::new("protos");
    for (name, methods, by_level, by_get) in chosen {
        let case = Case::load(name)?;
        report.add(
            &format!("{name} is as it was"),
            known(&case, [methods, by_level, by_get]),
        );
        report.add(&format!("{name} by protoc"), agrees(&case, &case.protoc));
        // protox knows no editions.
        if !case.editions {
            let outcome = case.protox().and_then(|set| agrees(&case, &set));
            report.add(&format!("{name} by protox"), outcome);
        }
    }
    Ok(report.close()?)
}

/// protobuf's library counts as many as are known.
fn known(case: &Case, [methods, by_level, by_get]: [usize; 3]) -> Outcome {
    let count = |trusted| case.methods.iter().filter(|it| it.hedges(trusted)).count();
    ensure!(case.methods.len() == methods, "{}", case.methods.len());
    ensure!(count(false) == by_level, "{}", count(false));
    ensure!(count(true) == by_get, "{}", count(true));
    Ok(())
}

/// A channel with this set hedges what protobuf's library says that it may, and nothing else.
fn agrees(case: &Case, set: &[u8]) -> Outcome {
    for trusted in [false, true] {
        channel::accepts(set, trusted)?;
        for method in &case.methods {
            let refused = channel::refuses_to_hedge(set, trusted, &method.path);
            let expected = match method.hedges(trusted) {
                true => None,
                false if !method.unary => Some("it streams"),
                false => Some("it is not idempotent"),
            };
            match (&refused, expected) {
                (None, None) => {}
                (Some(error), Some(reason)) if error.ends_with(reason) => {}
                _ => {
                    let path = &method.path;
                    return Err(format!(
                        "{path}, GET trusted {trusted}: {refused:?}, not {expected:?}"
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}
