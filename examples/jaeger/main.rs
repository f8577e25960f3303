//! Traces to look at: hedged, held-back, retried and failed calls, sent to an OTLP collector.
//!
//! ```text
//! interop/run jaeger                              # once: builds a Jaeger
//! interop/jaeger/start                            # in a terminal of its own
//! cargo run --release --example jaeger
//! curl http://127.0.0.1:16686/api/traces/ID
//! ```

mod args;
mod fleet;
#[path = "../support/otlp.rs"]
mod otlp;
#[path = "../support/replica.rs"]
mod replica;
mod scenes;
#[path = "../support/script.rs"]
mod script;
#[path = "../support/traced.rs"]
mod traced;

use std::{error::Error, process::ExitCode};

use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};

use args::Args;
use fleet::Fleet;
use scenes::{Scene, Shop};

#[tokio::main]
async fn main() -> ExitCode {
    let endpoint = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Run { endpoint }) => endpoint,
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match run(&endpoint).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the scenes; says what there is to see once the collector has it.
async fn run(endpoint: &str) -> Result<String, Box<dyn Error>> {
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("shop").build())
        .with_batch_exporter(otlp::exporter(endpoint).await?)
        .build();

    let fleet = Fleet::start(endpoint).await?;
    let shop = Shop::open(&fleet, provider.clone()).await?;
    let mut text = format!("Sent to {endpoint}, as the service shop:\n");
    for scene in Scene::ALL {
        let id = shop.play(scene).await?;
        text += &format!("\n{id}  {}\n  {}\n", scene.title(), scene.look_for());
    }
    otlp::flush(&provider).await?;
    fleet.flush().await?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a collector it says so at once, before any call is made.
    #[tokio::test]
    async fn a_missing_collector_is_named() {
        // A port that was free a moment ago, and that nothing else here asks for.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let endpoint = format!("http://127.0.0.1:{port}");
        let error = run(&endpoint).await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("no OTLP collector at {endpoint}: ")),
            "{error}"
        );
        assert!(error.contains("refused"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_collector_is_named() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let error = run(&endpoint).await.unwrap_err().to_string();
        assert!(error.contains("took no spans"), "{error}");

        let error = run("localhost:4317").await.unwrap_err().to_string();
        assert!(error.contains("not an http:// URL"), "{error}");
    }

    #[test]
    fn arguments() {
        let parse = |args: &[&str]| args::parse(args.iter().map(ToString::to_string));
        let run = |endpoint: &str| {
            let endpoint = endpoint.to_owned();
            Ok(Args::Run { endpoint })
        };
        assert_eq!(parse(&[]), run("http://localhost:4317"));
        assert_eq!(parse(&["--endpoint", "http://c:1"]), run("http://c:1"));
        assert_eq!(parse(&["--help"]), Ok(Args::Help));
        assert!(parse(&["--endpoint"]).is_err());
        assert!(parse(&["--json"]).is_err());
    }
}
