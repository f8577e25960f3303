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
    let mut response = match is_grpc(headers) {
        true => grpc(lane, retry),
        false => http(retry),
    };
    response.headers_mut().insert(LANE_SHED, lane.value.clone());
    response.extensions_mut().insert(ShedHere);
    response
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// A response that is nothing but a status.
fn grpc(lane: &Named, retry: Duration) -> Response<()> {
    let message = format!("the lane {} has no place", lane.name);
    let status = wire::refusal(Code::ResourceExhausted, message, retry);
    let mut response = status.into_http();
    // Rounded up: never sooner than the details say.
    let millis = retry.as_nanos().div_ceil(1_000_000);
    let millis = HeaderValue::from(u32::try_from(millis).unwrap_or(u32::MAX));
    response.headers_mut().insert(wire::PUSHBACK, millis);
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
