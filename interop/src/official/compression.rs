//! Messages that are compressed, and such that are not, in one call or in two.
//!
//! A server checks by a message's own flag what it was sent; here [`Witness`] reads the flag.

use std::{
    error::Error,
    io::Write as _,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tonic::{Code, Status, body::Body, codec::CompressionEncoding::Gzip};
use tower::Service;

use super::{
    LARGE, Lacking, large_request,
    stage::{Cell, log_of},
    status::failure,
    witness::Witness,
    zeros,
};
use crate::{
    Outcome, ensure,
    grpc_testing::{
        BoolValue, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
        StreamingOutputCallRequest, test_service_client::TestServiceClient,
    },
};

const YES: Option<BoolValue> = Some(BoolValue { value: true });
const NO: Option<BoolValue> = Some(BoolValue { value: false });

pub(super) async fn client_unary(cell: &Cell<'_>) -> Outcome {
    let expecting = |expect_compressed| SimpleRequest {
        expect_compressed,
        ..large_request()
    };
    // Does the server look at all?
    let result = cell.client().unary_call(expecting(YES)).await;
    failure(&result, Code::InvalidArgument, None)?;
    for compressed in [true, false] {
        cell.raced(async |client| {
            let mut client = client.clone().accept_compressed(Gzip);
            if compressed {
                client = client.send_compressed(Gzip);
            }
            let request = expecting(if compressed { YES } else { NO });
            let response = client.unary_call(request).await?;
            whole(response.get_ref())?;
            log_of(&response)
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn server_unary(cell: &Cell<'_>) -> Outcome {
    for compressed in [true, false] {
        cell.raced(async |client| {
            let mut client = client.clone().accept_compressed(Gzip);
            let request = SimpleRequest {
                response_compressed: if compressed { YES } else { NO },
                ..large_request()
            };
            let response = client.unary_call(request).await.map_err(lacking)?;
            whole(response.get_ref())?;
            let seen = cell.witness.last();
            ensure!(seen.compressed == [compressed], "{seen:?}");
            log_of(&response)
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn client_streaming(cell: &Cell<'_>) -> Outcome {
    let request = |expect_compressed, size| StreamingInputCallRequest {
        payload: zeros(size),
        expect_compressed,
    };
    let uncompressed = tokio_stream::once(request(YES, 27_182));
    let result = cell.client().streaming_input_call(uncompressed).await;
    let status = result.map(drop).err().ok_or("OK instead of a failure")?;
    ensure!(status.code() == Code::InvalidArgument, "{status:?}");

    let mixed = tokio_stream::iter([request(YES, 27_182), request(NO, 45_904)]);
    let response = TestServiceClient::new(FirstCompressed(cell.witness.clone()))
        .accept_compressed(Gzip)
        .streaming_input_call(mixed)
        .await?;
    let sum = response.get_ref().aggregated_payload_size;
    ensure!(sum == 73_086, "{sum}");
    Ok(())
}

pub(super) async fn server_streaming(cell: &Cell<'_>) -> Outcome {
    let parameters = [(YES, 31_415), (NO, 92_653)].map(|(compressed, size)| ResponseParameters {
        size,
        compressed,
        ..ResponseParameters::default()
    });
    let request = StreamingOutputCallRequest {
        response_parameters: parameters.to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut client = cell.client().accept_compressed(Gzip);
    let responses = client.streaming_output_call(request).await;
    let mut responses = responses.map_err(lacking)?.into_inner();
    let mut sizes = Vec::new();
    while let Some(response) = responses.message().await.map_err(lacking)? {
        sizes.push(response.payload.unwrap_or_default().body.len());
    }
    ensure!(sizes == [31_415, 92_653], "{sizes:?}");
    let seen = cell.witness.last();
    ensure!(seen.compressed == [true, false], "{seen:?}");
    Ok(())
}

/// A server whose gRPC compresses nothing says so.
fn lacking(status: Status) -> Box<dyn Error> {
    match status.code() {
        Code::Unimplemented => Lacking(status.message().to_owned()).into(),
        _ => status.into(),
    }
}

fn whole(response: &SimpleResponse) -> Outcome {
    let body = response.payload.clone().unwrap_or_default().body;
    ensure!(body == vec![0; LARGE.1 as usize], "{}", body.len());
    Ok(())
}

/// Compresses the first message of a request and no other, which a tonic client cannot: it
/// compresses all or none.
#[derive(Clone)]
struct FirstCompressed(Witness);

impl Service<Request<Body>> for FirstCompressed {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut channel = self.0.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let messages = body.collect().await?.to_bytes();
            let messages =
                first_compressed(messages).map_err(|error| Status::internal(error.to_string()))?;
            let gzip = HeaderValue::from_static("gzip");
            head.headers.insert("grpc-encoding", gzip);
            channel
                .call(Request::from_parts(head, Body::new(Full::new(messages))))
                .await
        })
    }
}

/// `messages` are whole, each behind a byte of flags and four of its length.
fn first_compressed(mut messages: Bytes) -> Result<Bytes, std::io::Error> {
    let prefix = messages.split_to(5);
    let length = prefix[1..]
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&messages.split_to(length))?;
    let compressed = encoder.finish()?;
    let mut all = BytesMut::new();
    all.put_u8(1);
    all.put_u32(compressed.len() as u32);
    all.extend_from_slice(&compressed);
    all.extend_from_slice(&messages);
    Ok(all.freeze())
}
