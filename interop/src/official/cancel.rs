//! Streams that their caller or their deadline ends.
//!
//! In Rust a call is cancelled by dropping it, so no status is left to look at: that it is over is
//! asked of the server.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use super::{stage::Cell, streaming::ping, zeros};
use crate::{
    Outcome, ensure,
    grpc_testing::{StreamingInputCallRequest, StreamingOutputCallRequest},
};

/// Once the headers are out, before there is a message.
pub(super) async fn after_begin(cell: &Cell<'_>) -> Outcome {
    let mut client = cell.client();
    let requests = tokio_stream::pending::<StreamingInputCallRequest>();
    let call = tokio::spawn(async move { client.streaming_input_call(requests).await.map(drop) });
    while cell.witness.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let id = cell.witness.last().id;
    cell.event("arrived", &id).await?;
    call.abort();
    cell.event("cancelled", &id).await
}

pub(super) async fn after_first_response(cell: &Cell<'_>) -> Outcome {
    let (requests, receiver) = mpsc::channel(1);
    requests.send(ping(0)).await?;
    let mut responses = cell
        .client()
        .full_duplex_call(ReceiverStream::new(receiver))
        .await?
        .into_inner();
    ensure!(responses.message().await?.is_some(), "no response");
    // The requests' side stays open: it is not their end that the server sees.
    drop(responses);
    cell.event("cancelled", &cell.witness.last().id).await?;
    drop(requests);
    Ok(())
}

/// The server waits for a request that does not come; the deadline does.
pub(super) async fn timeout(cell: &Cell<'_>) -> Outcome {
    let (requests, receiver) = mpsc::channel(1);
    requests
        .send(StreamingOutputCallRequest {
            payload: zeros(27_182),
            ..StreamingOutputCallRequest::default()
        })
        .await?;
    let mut request = Request::new(ReceiverStream::new(receiver));
    request.set_timeout(Duration::from_millis(1));
    let status = match cell.client().full_duplex_call(request).await {
        Err(status) => status,
        Ok(responses) => match responses.into_inner().message().await {
            Err(status) => status,
            Ok(response) => return Err(format!("{response:?} after the deadline").into()),
        },
    };
    drop(requests);
    ensure!(status.code() == Code::DeadlineExceeded, "{status:?}");
    Ok(())
}
