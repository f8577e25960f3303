//! Makes calls, and reads their traces back from a real Jaeger.
//!
//! `interop-jaeger SCENE|all`; `interop/run jaeger` prepares what it needs and calls this.

mod checks;
mod collector;
#[path = "../../../examples/support/otlp.rs"]
mod otlp;
mod programs;
#[path = "../../../examples/support/replica.rs"]
mod replica;
mod scenes;
#[allow(dead_code, reason = "no script here draws a latency")]
#[path = "../../../examples/support/script.rs"]
mod script;
mod stage;
mod trace;
#[path = "../../../examples/support/traced.rs"]
mod traced;

use std::{env, error::Error, path::PathBuf, process::ExitCode, time::Duration};

use interop::Report;
use opentelemetry::global;
use opentelemetry_sdk::propagation::TraceContextPropagator;

use collector::Jaeger;
use scenes::SCENES;
use stage::Stage;

/// A scene that hangs has failed. The quickstart makes its calls for half a minute.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = env::args()
        .nth(1)
        .ok_or("usage: interop-jaeger SCENE|all")?;
    let chosen: Vec<&str> = SCENES
        .iter()
        .copied()
        .filter(|scene| wanted == "all" || wanted == *scene)
        .collect();
    if chosen.is_empty() {
        return Err(format!("no scene {wanted}; there are: {}", SCENES.join(", ")).into());
    }
    let out = PathBuf::from(env::var_os("INTEROP_OUT").ok_or("INTEROP_OUT is not set")?);

    global::set_text_map_propagator(TraceContextPropagator::new());
    let stage = Stage::new(Jaeger::start(&out.join("jaeger/log")).await?).await?;
    let mut report = Report::new("jaeger");
    for scene in &chosen {
        let checks = tokio::time::timeout(PATIENCE, scenes::play(scene, &stage))
            .await
            .unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()));
        match checks {
            Ok(checks) => {
                for (check, outcome) in checks {
                    report.add(&format!("{scene}: {check}"), outcome);
                }
            }
            Err(error) => report.add(scene, Err(error)),
        }
    }
    stage.jaeger.stop().await?;
    Ok(report.close()?)
}
