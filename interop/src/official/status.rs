//! Statuses that a server was told to answer with, and those of what it does not know.

use tonic::{Code, Response, Status};
use tonic_hedge::CallLog;

use super::stage::{Cell, log_of};
use crate::{
    Outcome, ensure,
    grpc_testing::{
        EchoStatus, Empty, SimpleRequest, StreamingOutputCallRequest,
        unimplemented_service_client::UnimplementedServiceClient,
    },
};

const MESSAGE: &str = "test status message";

/// What a header may not hold as it is.
const SPECIAL: &str =
    "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";

pub(super) async fn code_and_message(cell: &Cell<'_>) -> Outcome {
    unary(cell, MESSAGE).await?;
    let request = StreamingOutputCallRequest {
        response_status: echo(MESSAGE),
        ..StreamingOutputCallRequest::default()
    };
    // The status may be there before the stream of responses is.
    let status = match cell
        .client()
        .full_duplex_call(tokio_stream::once(request))
        .await
    {
        Err(status) => status,
        Ok(responses) => match responses.into_inner().message().await {
            Err(status) => status,
            Ok(response) => return Err(format!("{response:?} instead of a failure").into()),
        },
    };
    ensure!(status.code() == Code::Unknown, "{status:?}");
    ensure!(status.message() == MESSAGE, "{status:?}");
    Ok(())
}

pub(super) async fn special_message(cell: &Cell<'_>) -> Outcome {
    unary(cell, SPECIAL).await
}

pub(super) async fn unimplemented_method(cell: &Cell<'_>) -> Outcome {
    cell.raced(async |client| {
        let result = client.unimplemented_call(Empty {}).await;
        failure(&result, Code::Unimplemented, None)
    })
    .await
}

pub(super) async fn unimplemented_service(cell: &Cell<'_>) -> Outcome {
    let client = UnimplementedServiceClient::new(cell.witness.clone());
    cell.raced(async |_| {
        let result = client.clone().unimplemented_call(Empty {}).await;
        failure(&result, Code::Unimplemented, None)
    })
    .await
}

async fn unary(cell: &Cell<'_>, message: &str) -> Outcome {
    cell.raced(async |client| {
        let request = SimpleRequest {
            response_status: echo(message),
            ..SimpleRequest::default()
        };
        failure(
            &client.unary_call(request).await,
            Code::Unknown,
            Some(message),
        )
    })
    .await
}

fn echo(message: &str) -> Option<EchoStatus> {
    Some(EchoStatus {
        code: Code::Unknown as i32,
        message: message.to_owned(),
    })
}

/// The log of a call that has failed so.
pub(super) fn failure<T>(
    result: &Result<Response<T>, Status>,
    code: Code,
    message: Option<&str>,
) -> Result<CallLog, Box<dyn std::error::Error>> {
    let Err(status) = result else {
        return Err("OK instead of a failure".into());
    };
    ensure!(status.code() == code, "{status:?}");
    ensure!(
        message.is_none_or(|message| status.message() == message),
        "{status:?}"
    );
    log_of(result)
}
