//! Why the channel did what it did: the log of a hedged call, and the gates of one held back.

use std::{error::Error, fmt::Write as _};

use opentelemetry_sdk::trace::InMemorySpanExporter;
use tonic_hedge::{CallLog, Criticality, HedgedChannel, RequestExt as _};

use crate::{
    replica::probe::{ProbeRequest, probe_client::ProbeClient},
    report::Side,
};

/// The log of one call that a hedge saved. Every response carries its own.
pub(crate) fn hedged_call(side: &Side) -> String {
    match side.logs.iter().find(|log| log.hedge_won()) {
        Some(log) => format!("\nA hedged call:\n  {log}\n"),
        None => "\nNo hedge won.\n".to_owned(),
    }
}

/// Makes a call that outruns the threshold but is not worth a hedge, and reads from its span
/// what each of the gates said.
pub(crate) async fn held_back_call(
    channel: HedgedChannel,
    spans: &InMemorySpanExporter,
) -> Result<String, Box<dyn Error>> {
    let request = ProbeRequest {
        id: "held back".to_owned(),
        delay_ms: 300,
        ..ProbeRequest::default()
    };
    let request = tonic::Request::new(request).criticality(Criticality::Sheddable);
    let response = ProbeClient::new(channel).get(request).await?;
    let log = response.extensions().get::<CallLog>();

    let mut text = String::from("\nA slow call that was held back:\n");
    if let Some(log) = log {
        writeln!(text, "  {log}")?;
    }
    for span in spans.get_finished_spans()? {
        for event in span.events {
            let attribute = |name: &str| {
                let found = event
                    .attributes
                    .iter()
                    .find(|attribute| attribute.key.as_str().ends_with(name));
                found.map_or_else(String::new, |attribute| attribute.value.to_string())
            };
            let kind = match &*event.name {
                "hedge.gate" => format!("gate {}", attribute(".number")),
                "hedge.hold" => "hold  ".to_owned(),
                _ => continue,
            };
            let verdict = match attribute(".holds").as_str() {
                "true" => "holds",
                _ => "DOES NOT HOLD",
            };
            writeln!(
                text,
                "  {kind} {:<17}{verdict:<14} observed: {}, limit: {}",
                attribute(".name"),
                attribute(".observed"),
                attribute(".limit"),
            )?;
        }
    }
    Ok(text)
}
