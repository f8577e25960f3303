//! Requests and responses of every size.

use super::{
    LARGE, large_request,
    stage::{Cell, Stage, log_of},
    zeros,
};
use crate::{
    Outcome, ensure,
    grpc_testing::{Empty, SimpleRequest},
};

/// Of very_large_request, in grpc-java's own tests.
const VERY_LARGE: (usize, i32) = (10 << 20, 10);

/// A message of no bytes, both ways.
pub(super) async fn empty(cell: &Cell<'_>) -> Outcome {
    cell.raced(async |client| {
        let response = client.empty_call(Empty {}).await?;
        let seen = cell.witness.last();
        ensure!(seen.compressed == [false], "{seen:?}");
        log_of(&response)
    })
    .await
}

pub(super) async fn large(cell: &Cell<'_>) -> Outcome {
    cell.raced(async |client| {
        let response = client.unary_call(large_request()).await?;
        let body = response.get_ref().payload.clone().unwrap_or_default().body;
        ensure!(body == vec![0; LARGE.1 as usize], "{}", body.len());
        log_of(&response)
    })
    .await
}

/// More than is kept for a second attempt has one; where all of it is kept, it is raced.
pub(super) async fn very_large(cell: &Cell<'_>, stage: &Stage) -> Outcome {
    let request = SimpleRequest {
        response_size: VERY_LARGE.1,
        payload: zeros(VERY_LARGE.0),
        ..SimpleRequest::default()
    };
    let answer = vec![0; VERY_LARGE.1 as usize];

    let response = cell.client().unary_call(request.clone()).await?;
    let body = response.get_ref().payload.clone().unwrap_or_default().body;
    ensure!(body == answer, "{body:?}");
    let log = log_of(&response)?;
    ensure!(log.attempts().len() == 1, "{log}");

    let kept = VERY_LARGE.0 + LARGE.0;
    let cell = stage.cell_of(cell.mode, |b| b.buffer_limit(kept)).await?;
    cell.raced(async |client| {
        let response = client.unary_call(request.clone()).await?;
        let body = response.get_ref().payload.clone().unwrap_or_default().body;
        ensure!(body == answer, "{body:?}");
        log_of(&response)
    })
    .await?;
    cell.settled().await
}
