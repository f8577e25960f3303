//! Compares this crate's verdicts on service configs with grpc-java's.
//!
//! `interop-service-config CASE|all`; `interop/run service-config` prepares what it needs and calls this.
//! `interop/service-config/configs.json` has the configs, what is to become of each, and why where
//! grpc-java is to differ.

use std::{
    env,
    error::Error,
    io::Write as _,
    process::{Command, ExitCode, Stdio},
};

use interop::{Outcome, Report, ensure};
use serde_json::Value;
use tonic_hedge::HedgedChannel;

const CONFIGS: &str = include_str!("../../service-config/configs.json");

/// Prints grpc-java's verdict on each line.
const VERDICTS: &str = "interop/service-config/verdicts";

/// One config of the file.
struct Case {
    name: String,
    /// The config's text.
    text: String,
    accepted: bool,
    /// Why grpc-java is to say otherwise.
    differs: Option<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = env::args()
        .nth(1)
        .ok_or("usage: interop-service-config CASE|all")?;
    let mut cases = cases()?;
    cases.retain(|case| wanted == "all" || wanted == case.name);
    if cases.is_empty() {
        return Err(format!("no case {wanted}").into());
    }
    let verdicts = verdicts(&cases)?;
    let mut report = Report::new("service-config");
    for (case, verdict) in cases.iter().zip(&verdicts) {
        report.add(&case.name, check(case, verdict));
        if let Some(reason) = &case.differs {
            println!("    grpc-java differs: {reason}");
        }
    }
    Ok(report.close()?)
}

fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let configs: Vec<Value> = serde_json::from_str(CONFIGS)?;
    let case = |config: &Value| {
        let text = |field: &str| Some(config.get(field)?.as_str()?.to_owned());
        Some(Case {
            name: text("case")?,
            // Either what is no JSON, or could not be written as it is; or a config as it is.
            text: match config.get("config") {
                Some(json) => json.to_string(),
                None => text("text")?,
            },
            accepted: config.get("accepted")?.as_bool()?,
            differs: text("differs"),
        })
    };
    configs
        .iter()
        .map(|config| case(config).ok_or_else(|| format!("{config} is no case").into()))
        .collect()
}

/// grpc-java's, in the order of the cases.
fn verdicts(cases: &[Case]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut java = Command::new(VERDICTS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = String::new();
    for case in cases {
        lines.push_str(&serde_json::to_string(&case.text)?);
        lines.push('\n');
    }
    let mut input = java.stdin.take().ok_or("no standard input")?;
    // It answers while it reads, and its answers wait in a pipe of their own.
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = java.wait_with_output()?;
    writing.join().map_err(|_| "the writer panicked")??;
    let verdicts: Vec<_> = String::from_utf8(output.stdout)?
        .lines()
        .map(str::to_owned)
        .collect();
    ensure!(output.status.success(), "{}", output.status);
    ensure!(verdicts.len() == cases.len(), "{} verdicts", verdicts.len());
    Ok(verdicts)
}

fn check(case: &Case, java: &str) -> Outcome {
    let built = HedgedChannel::builder()
        .endpoints(["http://127.0.0.1:1"])
        .service_config(&case.text)
        .build();
    let ours = match &built {
        Ok(_) => "accepted".to_owned(),
        Err(error) => format!("refused: {error}"),
    };
    ensure!(built.is_ok() == case.accepted, "{ours}: {}", case.text);
    let java_accepts = java == "accepted";
    let agrees = java_accepts == case.accepted;
    ensure!(
        agrees == case.differs.is_none(),
        "{ours}, by grpc-java {java}: {}",
        case.text
    );
    Ok(())
}
