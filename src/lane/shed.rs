//! What a call that is shed is answered.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use tonic::Code;

use super::{Named, held::ShedHere};
use crate::call::wire;

/// Names the lane that has shed a call.
pub(crate) const LANE_SHED: HeaderName = HeaderName::from_static("x-lane-shed");

/// The answer of `lane` to a request with these headers, which is to come again after `retry`.
pub(super) fn response(lane: &Named, headers: &HeaderMap, retry: Duration) -> Response<()> {
    let mut response = match grpc_type(headers) {
        Some(content_type) => grpc(lane, retry, content_type),
        None => http(retry),
    };
    response.headers_mut().insert(LANE_SHED, lane.value.clone());
    response.extensions_mut().insert(ShedHere);
    response
}

/// The content type to answer a gRPC call with; `None` if it is none. gRPC-Web's has to come back, or
/// its client looks no further; it too has a status in the head where there is nothing else.
fn grpc_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(CONTENT_TYPE)?;
    let rest = value.as_bytes().strip_prefix(b"application/grpc")?;
    match rest {
        [] | [b'+' | b';', ..] => Some(HeaderValue::from_static("application/grpc")),
        [b'-', b'w', b'e', b'b', ..] => Some(value.clone()),
        _ => None,
    }
}

/// A response that is nothing but a status.
fn grpc(lane: &Named, retry: Duration, content_type: HeaderValue) -> Response<()> {
    let message = format!("the lane {} has no place", lane.name);
    let status = wire::refusal(Code::ResourceExhausted, message, retry);
    let mut response = status.into_http();
    // Rounded up: never sooner than the details say.
    let millis = retry.as_nanos().div_ceil(1_000_000);
    let millis = HeaderValue::from(u32::try_from(millis).unwrap_or(u32::MAX));
    response.headers_mut().insert(wire::PUSHBACK, millis);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn http(retry: Duration) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    // HTTP knows only whole seconds (RFC 9110, 10.2.3).
    let seconds = HeaderValue::from(retry.as_secs() + u64::from(retry.subsec_nanos() > 0));
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}
