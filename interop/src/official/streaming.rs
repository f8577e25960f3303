//! Streams of either side, and of both at once.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{stage::Cell, zeros};
use crate::{
    Outcome, ensure,
    grpc_testing::{ResponseParameters, StreamingInputCallRequest, StreamingOutputCallRequest},
};

/// Bodies of the requests, and of the responses.
const REQUESTS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSES: [i32; 4] = [31_415, 9, 2_653, 58_979];

pub(super) async fn client(cell: &Cell<'_>) -> Outcome {
    let requests = REQUESTS.map(|size| StreamingInputCallRequest {
        payload: zeros(size),
        ..StreamingInputCallRequest::default()
    });
    let requests = tokio_stream::iter(requests);
    let response = cell.client().streaming_input_call(requests).await?;
    let sum = response.get_ref().aggregated_payload_size;
    ensure!(sum == 74_922, "{sum}");
    Ok(())
}

pub(super) async fn server(cell: &Cell<'_>) -> Outcome {
    let request = StreamingOutputCallRequest {
        response_parameters: RESPONSES.map(parameters).to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut responses = cell
        .client()
        .streaming_output_call(request)
        .await?
        .into_inner();
    let mut sizes = Vec::new();
    while let Some(response) = responses.message().await? {
        sizes.push(response.payload.unwrap_or_default().body.len() as i32);
    }
    ensure!(sizes == RESPONSES, "{sizes:?}");
    Ok(())
}

/// Each request waits for the response before it: nothing in between holds one back.
pub(super) async fn ping_pong(cell: &Cell<'_>) -> Outcome {
    let (requests, receiver) = mpsc::channel(1);
    let mut client = cell.client();
    requests.send(ping(0)).await?;
    let mut responses = client
        .full_duplex_call(ReceiverStream::new(receiver))
        .await?
        .into_inner();
    for (round, wanted) in RESPONSES.into_iter().enumerate() {
        if round > 0 {
            requests.send(ping(round)).await?;
        }
        let response = responses.message().await?.ok_or("the stream ended early")?;
        let size = response.payload.unwrap_or_default().body.len() as i32;
        ensure!(size == wanted, "{round}: {size}");
    }
    drop(requests);
    ensure!(responses.message().await?.is_none(), "a fifth response");
    Ok(())
}

pub(super) async fn empty(cell: &Cell<'_>) -> Outcome {
    let mut client = cell.client();
    let responses = client.full_duplex_call(tokio_stream::empty()).await?;
    ensure!(
        responses.into_inner().message().await?.is_none(),
        "a response to nothing"
    );
    Ok(())
}

/// The request of a round of `ping_pong`, which asks for one response.
pub(super) fn ping(round: usize) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![parameters(RESPONSES[round])],
        payload: zeros(REQUESTS[round]),
        ..StreamingOutputCallRequest::default()
    }
}

fn parameters(size: i32) -> ResponseParameters {
    ResponseParameters {
        size,
        ..ResponseParameters::default()
    }
}
