//! Spans to a collector, by OTLP over gRPC.

use std::time::Duration;

use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::{
    error::OTelSdkError,
    trace::{SdkTracerProvider, SpanExporter as _},
};
use tokio::{net::TcpStream, time::timeout};
use tonic::codegen::http::Uri;

/// A collector that is there answers at once; one that is behind a firewall never does.
const PATIENCE: Duration = Duration::from_secs(3);

/// Exports to the collector at `endpoint`.
///
/// # Errors
/// `endpoint` is no http URL, or nothing there takes spans: the text says which and why.
pub(crate) async fn exporter(endpoint: &str) -> Result<SpanExporter, String> {
    let failed = |why: String| format!("no OTLP collector at {endpoint}: {why}");
    reach(endpoint).await.map_err(failed)?;
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(PATIENCE)
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|error| failed(error.to_string()))?;
    // No spans: only whether what listens there would take some.
    let answer = exporter.export(Vec::new()).await;
    answer.map_err(|error| failed(format!("something listens, but took no spans: {error}")))?;
    Ok(exporter)
}

/// Sends what is still held back.
///
/// # Errors
/// The collector took it not.
pub(crate) async fn flush(provider: &SdkTracerProvider) -> Result<(), OTelSdkError> {
    let provider = provider.clone();
    // It waits for the exporter's answer, which arrives by this runtime.
    let flushed = tokio::task::spawn_blocking(move || provider.force_flush()).await;
    flushed.unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())))
}

/// The exporter says no more than that it failed; the socket says why.
async fn reach(endpoint: &str) -> Result<(), String> {
    let uri: Uri = endpoint.parse().map_err(|error| format!("{error}"))?;
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err("not an http:// URL".to_owned());
    };
    let port = uri.port_u16().unwrap_or(80);
    let connecting = TcpStream::connect((host.trim_matches(['[', ']']), port));
    match timeout(PATIENCE, connecting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {PATIENCE:?}")),
    }
}
