//! The same slow service twice: through tonic's `Channel`, then through a `HedgedChannel`.
//!
//! Three replicas run in this process. Each attempt takes 20 to 44 ms in nine cases of ten, and 250 to
//! 580 ms in the tenth, whichever replica it goes to. 2,000 calls, 32 at a time:
//!
//! ```text
//! cargo run --release --example quickstart
//! ```

mod args;
mod explain;
mod load;
#[path = "../support/otlp.rs"]
mod otlp;
mod replica;
mod report;

use std::{error::Error, process::ExitCode};

use opentelemetry_sdk::{
    Resource,
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{Hedge, HedgedChannel};

use args::{Args, Options, Output};
use load::Run;
use replica::{Replica, probe};
use report::Side;

/// Calls of each side: enough for twenty beyond the p99.
const CALLS: u64 = 2_000;

/// Calls in flight: the next one starts when one has ended.
const AT_ONCE: usize = 32;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match args::parse(std::env::args().skip(1)) {
        Ok(Args::Run(options)) => options,
        Ok(Args::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            return ExitCode::from(2);
        }
    };
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // Any OpenTelemetry SDK would do. This one keeps the spans, to show one below.
    let spans = InMemorySpanExporter::default();
    let mut provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
    if let Some(collector) = &options.otlp {
        provider = provider
            .with_resource(Resource::builder().with_service_name("quickstart").build())
            .with_batch_exporter(otlp::exporter(collector).await?);
    }
    let provider = provider.build();
    let replicas = Replica::start_three().await?;

    let run = Run::new("plain", CALLS, AT_ONCE);
    let plain = run.drive(plain(&replicas)?).await;
    let plain = Side::new(plain, replica::take_counts(&replicas).await);

    let channel = hedged(&replicas, &provider)?;
    let run = Run::new("hedged", CALLS, AT_ONCE);
    let hedged = run.drive(channel.clone()).await;
    let hedged = Side::new(hedged, replica::take_counts(&replicas).await);

    match options.output {
        Output::Json => println!("{}", report::json(&plain, &hedged, &channel.measured())),
        Output::Text => {
            print!("{}", report::table(&plain, &hedged));
            print!("{}", explain::hedged_call(&hedged));
            spans.reset();
            print!("{}", explain::held_back_call(channel, &spans).await?);
        }
    }
    if options.otlp.is_some() {
        otlp::flush(&provider).await?;
    }
    Ok(())
}

/// tonic's own channel over all replicas.
fn plain(replicas: &[Replica]) -> Result<Channel, Box<dyn Error>> {
    let endpoints: Result<Vec<_>, _> = replicas
        .iter()
        .map(|replica| Endpoint::from_shared(replica.uri()))
        .collect();
    Ok(Channel::balance_list(endpoints?.into_iter()))
}

/// The same with hedging.
///
/// The quantile lies within the fast calls. At 0.95 the threshold would be the latency of a slow
/// call, and at 0.9, the edge between the two, anything.
///
/// About one call in a hundred draws slow twice, which is just beyond the p99 with this seed. Where
/// that matters, `max_concurrent(3)` lets a third attempt join.
fn hedged(
    replicas: &[Replica],
    provider: &SdkTracerProvider,
) -> Result<HedgedChannel, Box<dyn Error>> {
    let channel = HedgedChannel::builder()
        .endpoints(replicas.iter().map(Replica::uri))
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::at(0.85))
        .tracer_provider(provider)
        .build()?;
    Ok(channel)
}
