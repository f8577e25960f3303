//! gRPC's official interop cases, each in each mode, through a `HedgedChannel`.
//!
//! Names, messages and checks of the cases are those of gRPC's interop test descriptions. Left out
//! are those that need a cloud's credentials, or a load balancer.

mod cancel;
mod compression;
mod metadata;
mod relay;
mod soak;
mod stage;
mod status;
mod streaming;
mod unary;
mod witness;

use std::{error::Error, fmt, time::Duration};

use crate::{
    Mode, Outcome, Report,
    grpc_testing::{Payload, SimpleRequest},
};
use stage::Stage;

/// All cases, in the order in which they run.
pub const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "very_large_request",
    "cacheable_unary",
    "client_compressed_unary",
    "server_compressed_unary",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "client_streaming",
    "client_compressed_streaming",
    "server_streaming",
    "server_compressed_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "rpc_soak",
    "channel_soak",
];

/// A case that hangs has failed; in one mode it takes a second at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a large request and of its response.
const LARGE: (usize, i32) = (271_828, 314_159);

/// Runs these cases in all modes, against two replicas that `command` starts.
///
/// They are started once: a case leaves nothing behind in a server, and a virtual machine takes
/// seconds to start.
pub async fn run(
    cases: &[&str],
    command: &[String],
    environment: &[(&str, &str)],
    report: &mut Report,
) {
    if cases.is_empty() {
        return;
    }
    let stage = match Stage::start(command, environment).await {
        Ok(stage) => stage,
        Err(error) => {
            report.add("official cases", Err(error));
            return;
        }
    };
    for case in cases {
        for mode in Mode::ALL {
            if let Some(reason) = impossible(case) {
                report.impossible(case, mode, reason);
                continue;
            }
            let outcome = tokio::time::timeout(PATIENCE, play(case, &stage, mode))
                .await
                .unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()));
            match outcome {
                Err(error) if error.is::<Lacking>() => {
                    report.impossible(case, mode, &error.to_string());
                }
                outcome => report.add_in(case, mode, outcome),
            }
        }
    }
}

/// What a peer's gRPC cannot do, in its own words: with them and UNIMPLEMENTED it answered a case.
#[derive(Debug)]
struct Lacking(String);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Lacking {}

/// Why no peer can play a case.
fn impossible(case: &str) -> Option<&'static str> {
    match case {
        "cacheable_unary" => {
            Some("needs a caching HTTP proxy, and calls by GET, which tonic has not")
        }
        _ => None,
    }
}

async fn play(case: &str, stage: &Stage, mode: Mode) -> Outcome {
    if case == "channel_soak" {
        return soak::channels(stage, mode).await;
    }
    let cell = stage.cell(mode).await?;
    match case {
        "empty_unary" => unary::empty(&cell).await,
        "large_unary" => unary::large(&cell).await,
        "very_large_request" => unary::very_large(&cell, stage).await,
        "client_compressed_unary" => compression::client_unary(&cell).await,
        "server_compressed_unary" => compression::server_unary(&cell).await,
        "custom_metadata" => metadata::custom(&cell).await,
        "status_code_and_message" => status::code_and_message(&cell).await,
        "special_status_message" => status::special_message(&cell).await,
        "unimplemented_method" => status::unimplemented_method(&cell).await,
        "unimplemented_service" => status::unimplemented_service(&cell).await,
        "client_streaming" => streaming::client(&cell).await,
        "client_compressed_streaming" => compression::client_streaming(&cell).await,
        "server_streaming" => streaming::server(&cell).await,
        "server_compressed_streaming" => compression::server_streaming(&cell).await,
        "ping_pong" => streaming::ping_pong(&cell).await,
        "empty_stream" => streaming::empty(&cell).await,
        "cancel_after_begin" => cancel::after_begin(&cell).await,
        "cancel_after_first_response" => cancel::after_first_response(&cell).await,
        "timeout_on_sleeping_server" => cancel::timeout(&cell).await,
        "rpc_soak" => soak::calls(&cell).await,
        _ => Err("listed but not written".into()),
    }?;
    cell.settled().await
}

/// This many zeros.
fn zeros(length: usize) -> Option<Payload> {
    Some(Payload {
        body: vec![0; length],
    })
}

/// The request of `large_unary`.
fn large_request() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE.1,
        payload: zeros(LARGE.0),
        ..SimpleRequest::default()
    }
}
