//! A caller's metadata comes back, as headers and as trailers.

use tonic::{Request, metadata::MetadataValue};

use super::{
    large_request,
    stage::{Cell, log_of},
    witness::Seen,
    zeros,
};
use crate::{
    Outcome, ensure,
    grpc_testing::{ResponseParameters, StreamingOutputCallRequest},
};

const INITIAL: (&str, &str) = ("x-grpc-test-echo-initial", "test_initial_metadata_value");
const TRAILING: (&str, &[u8]) = ("x-grpc-test-echo-trailing-bin", &[0xab, 0xab, 0xab]);

pub(super) async fn custom(cell: &Cell<'_>) -> Outcome {
    cell.raced(async |client| {
        let response = client.unary_call(with_metadata(large_request())).await?;
        let size = response
            .get_ref()
            .payload
            .clone()
            .unwrap_or_default()
            .body
            .len();
        ensure!(size == super::LARGE.1 as usize, "{size}");
        echoed(&cell.witness.last())?;
        log_of(&response)
    })
    .await?;

    let message = StreamingOutputCallRequest {
        response_parameters: vec![ResponseParameters {
            size: super::LARGE.1,
            ..ResponseParameters::default()
        }],
        payload: zeros(super::LARGE.0),
        ..StreamingOutputCallRequest::default()
    };
    let request = with_metadata(tokio_stream::once(message));
    let mut responses = cell.client().full_duplex_call(request).await?.into_inner();
    let response = responses.message().await?.ok_or("no response")?;
    let size = response.payload.unwrap_or_default().body.len();
    ensure!(size == super::LARGE.1 as usize, "{size}");
    ensure!(responses.message().await?.is_none(), "a second response");
    echoed(&cell.witness.last())
}

fn with_metadata<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert(INITIAL.0, MetadataValue::from_static(INITIAL.1));
    metadata.insert_bin(TRAILING.0, MetadataValue::from_bytes(TRAILING.1));
    request
}

/// The one in the headers, the other in the trailers.
fn echoed(seen: &Seen) -> Outcome {
    let headers = seen.headers.as_ref().ok_or("no headers")?;
    ensure!(
        headers.get(INITIAL.0).is_some_and(|v| v == INITIAL.1),
        "{headers:?}"
    );
    let trailers = seen.trailers.clone().ok_or("no trailers")?;
    let trailers = tonic::metadata::MetadataMap::from_headers(trailers);
    let trailing = trailers.get_bin(TRAILING.0);
    let trailing = trailing
        .ok_or_else(|| format!("{trailers:?}"))?
        .to_bytes()?;
    ensure!(trailing == TRAILING.1, "{trailing:?}");
    Ok(())
}
