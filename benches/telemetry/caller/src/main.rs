//! Makes calls that are never slow enough to be hedged, and says what they cost.
//!
//! `telemetry-caller MODE`: serves in a thread of its own, whose time is not counted; then, for each
//! number on a line of its input, makes that many calls and prints the nanoseconds of CPU per call.
//! `telemetry-caller MODE CALLS`: makes that many, one at a time, and ends, for a profiler.

#[path = "../../../support/at_once.rs"]
mod at_once;

use std::{error::Error, net::SocketAddr, sync::mpsc, thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    task::JoinSet,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Status, transport::Server};
use tonic_hedge::{Builder, Hedge, HedgedChannel};

use at_once::{
    AtOnce,
    probe::{self, ProbeRequest, probe_client::ProbeClient, probe_server::ProbeServer},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const IN_FLIGHT: usize = 16;

/// So that counts are the same from run to run, within a few parts in a thousand.
const COUNTED_IN_FLIGHT: usize = 1;

/// Connections, buffers that grow, the first samples.
const WARM_UP: usize = 500;

/// A threshold that no call here reaches.
const NEVER: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let calls: Option<usize> = arguments.next().map(|calls| calls.parse()).transpose()?;
    let server = serve()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let builder = HedgedChannel::builder()
            .endpoints([format!("http://{server}")])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::at(0.95).minimum_delay(NEVER));
        let client = ProbeClient::new(listened_to(builder, &mode)?.build()?);
        drive(&client, WARM_UP, IN_FLIGHT).await?;
        if let Some(calls) = calls {
            return drive(&client, calls, COUNTED_IN_FLIGHT).await;
        }
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        println!("ready");
        while let Some(line) = lines.next_line().await? {
            let calls: usize = line.parse()?;
            let before = cpu_nanos();
            drive(&client, calls, IN_FLIGHT).await?;
            println!("{}", (cpu_nanos() - before) / calls as f64);
        }
        Ok(())
    })
}

/// Who listens to the channel.
fn listened_to(builder: Builder, mode: &str) -> Outcome<Builder> {
    match mode {
        "silent" => Ok(builder),
        #[cfg(feature = "telemetry")]
        _ => listeners::add(builder, mode).ok_or_else(|| format!("no mode {mode}").into()),
        #[cfg(not(feature = "telemetry"))]
        _ => Err(format!("no mode {mode} without the feature").into()),
    }
}

#[cfg(feature = "telemetry")]
mod listeners {
    use std::time::Duration;

    use opentelemetry::Context;
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider},
        trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor},
    };
    use tonic_hedge::Builder;

    pub(super) fn add(builder: Builder, mode: &str) -> Option<Builder> {
        Some(match mode {
            "unsampled" => builder.tracer_provider(&spans(Sampler::AlwaysOff)),
            "sampled" => builder.tracer_provider(&spans(Sampler::AlwaysOn)),
            "metrics" => {
                // It collects once a minute, on a thread of its own.
                let reader = PeriodicReader::builder(InMemoryMetricExporter::default()).build();
                let metering = SdkMeterProvider::builder().with_reader(reader).build();
                builder.meter_provider(std::sync::Arc::new(metering))
            }
            _ => return None,
        })
    }

    fn spans(sampler: Sampler) -> SdkTracerProvider {
        SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_span_processor(Nowhere)
            .build()
    }

    /// What exporting costs is not asked here.
    #[derive(Debug)]
    struct Nowhere;

    impl SpanProcessor for Nowhere {
        fn on_start(&self, _: &mut Span, _: &Context) {}
        fn on_end(&self, _: SpanData) {}
        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }
        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }
}

/// A closed loop.
async fn drive(client: &ProbeClient<HedgedChannel>, calls: usize, in_flight: usize) -> Outcome<()> {
    let mut callers = JoinSet::new();
    for caller in 0..in_flight {
        let mut client = client.clone();
        callers.spawn(async move {
            for _ in (caller..calls).step_by(in_flight) {
                client.get(ProbeRequest::default()).await?;
            }
            Ok::<_, Status>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

/// The CPU time of this thread, user and system.
fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Serves in a thread of its own.
fn serve() -> Outcome<SocketAddr> {
    let (ready, address) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let _gone = ready.send(listener.local_addr()?);
            Server::builder()
                .add_service(ProbeServer::new(AtOnce::default()))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        })
    });
    Ok(address.recv()?)
}
