//! What a gRPC response says in its headers and trailers: status, pushback, retry details.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use prost::Message;
use tonic::{Code, Status, metadata::MetadataMap};
use tonic_hedge_engine::race::Pushback;

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const GRPC_STATUS_DETAILS: HeaderName =
    HeaderName::from_static("grpc-status-details-bin");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// What is not a printable ASCII character, and the percent sign itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
/// The status of a response that has none that can be believed.
const UNKNOWN: HeaderValue = HeaderValue::from_static("2");
/// gRFC A6: attempts before this one, absent on the first.
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName =
    HeaderName::from_static("grpc-previous-rpc-attempts");
/// gRFC A6: when, and whether, the next attempt may start.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The server's pushback in `trailers`: a negative, unreadable or repeated value stops
/// further attempts.
pub(crate) fn pushback(trailers: &HeaderMap) -> Pushback {
    let mut values = trailers.get_all(PUSHBACK).iter();
    let Some(value) = values.next() else {
        return Pushback::None;
    };
    let millis = value
        .to_str()
        .ok()
        .filter(|_| values.next().is_none())
        .and_then(|text| text.parse::<i32>().ok())
        .and_then(|millis| u64::try_from(millis).ok());
    millis.map_or(Pushback::Stop, |millis| {
        Pushback::After(Duration::from_millis(millis))
    })
}

/// When to come again: by the pushback in `status`, else as the `details` say. `None` if never, or not
/// said.
pub(crate) fn come_again(
    status: &HeaderMap,
    details: impl FnOnce() -> Option<Duration>,
) -> Option<Duration> {
    match pushback(status) {
        Pushback::After(delay) => Some(delay),
        Pushback::Stop => None,
        Pushback::None => details(),
    }
}

/// Takes out what tonic's client stumbles over: it panics on details that are not base64, believes
/// the first of several statuses, and makes UNKNOWN of a status whose message is not UTF-8.
///
/// Returns the status code, if there is one. What cannot be read is UNKNOWN, and so is a status given
/// twice: it must never pass for success.
///
/// Every response comes here twice, with a few headers each: one
/// look at each is less than hashing the three names that are looked for.
pub(crate) fn sanitize(trailers: &mut HeaderMap) -> Option<Code> {
    let (mut code, mut again, mut message, mut has_details) = (None, false, false, false);
    for (name, value) in trailers.iter() {
        match name.as_str() {
            "grpc-status" => {
                again = code.is_some();
                code.get_or_insert_with(|| Code::from_bytes(value.as_bytes()));
            }
            "grpc-message" => message = true,
            "grpc-status-details-bin" => has_details = true,
            _ => {}
        }
    }
    if has_details && details(trailers).is_none() {
        trailers.remove(GRPC_STATUS_DETAILS);
    }
    if again {
        trailers.insert(GRPC_STATUS, UNKNOWN);
        code = Some(Code::Unknown);
    }
    if message && let Some(readable) = readable_message(trailers) {
        trailers.insert(GRPC_MESSAGE, readable);
    }
    code
}

/// The message with what cannot be read replaced, where it is not UTF-8. gRPC over HTTP/2: a status
/// is never lost to its message.
fn readable_message(trailers: &HeaderMap) -> Option<HeaderValue> {
    let decoder = percent_decode(trailers.get(GRPC_MESSAGE)?.as_bytes());
    // Borrowed, and so without a copy, where nothing is encoded.
    if decoder.clone().decode_utf8().is_ok() {
        return None;
    }
    let readable = decoder.decode_utf8_lossy();
    let encoded = utf8_percent_encode(&readable, ENCODED).to_string();
    HeaderValue::from_maybe_shared(Bytes::from(encoded)).ok()
}

/// The decoded `grpc-status-details-bin`, if it is there and readable.
fn details(trailers: &HeaderMap) -> Option<Bytes> {
    let value = trailers.get(GRPC_STATUS_DETAILS)?;
    // tonic's own decoder, so that what passes here passes there.
    let mut map = HeaderMap::with_capacity(1);
    map.insert(GRPC_STATUS_DETAILS, value.clone());
    let map = MetadataMap::from_headers(map);
    map.get_bin(GRPC_STATUS_DETAILS.as_str())?.to_bytes().ok()
}

/// The status in `trailers`, whole: code, message, details and metadata, and the metadata of
/// the response's `head`, merged as tonic's own client merges them.
pub(crate) fn status(code: Code, mut trailers: HeaderMap, head: Option<HeaderMap>) -> Status {
    sanitize(&mut trailers);
    let mut status = match Status::from_header_map(&trailers) {
        Some(status) if status.code() == code => status,
        // A status that was given twice, or that cannot be read.
        Some(status) => Status::with_details_and_metadata(
            code,
            status.message(),
            Bytes::copy_from_slice(status.details()),
            status.metadata().clone(),
        ),
        None => Status::with_metadata(code, "", MetadataMap::from_headers(trailers)),
    };
    if let Some(head) = head {
        status.metadata_mut().as_mut().extend(head);
    }
    status
}

/// `google.rpc.Status`, as far as it is read and written here.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The delay of a `google.rpc.RetryInfo` among the status's details.
pub(crate) fn retry_info(trailers: &HeaderMap) -> Option<Duration> {
    retry_info_in(&details(trailers)?)
}

/// The same, in details that are decoded already.
pub(crate) fn retry_info_in(details: &[u8]) -> Option<Duration> {
    let status = RichStatus::decode(details).ok()?;
    let info = status
        .details
        .iter()
        .find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u32::try_from(delay.nanos)
        .ok()
        .filter(|n| *n < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

/// UNAVAILABLE with a `google.rpc.RetryInfo`: what an open breaker answers.
pub(crate) fn unavailable_until(message: String, delay: Duration) -> Status {
    refusal(Code::Unavailable, message, delay)
}

/// A status with a `google.rpc.RetryInfo`.
pub(crate) fn refusal(code: Code, message: String, delay: Duration) -> Status {
    let info = RetryInfo {
        retry_delay: Some(ProtoDuration {
            seconds: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            // Less than a billion.
            nanos: delay.subsec_nanos() as i32,
        }),
    };
    let rich = RichStatus {
        code: code as i32,
        message: message.clone(),
        details: vec![Any {
            type_url: RETRY_INFO.to_owned(),
            value: info.encode_to_vec(),
        }],
    };
    Status::with_details(code, message, rich.encode_to_vec().into())
}

/// The code of a response that carries no status, by its HTTP status.
///
/// Source: gRPC's "HTTP to gRPC Status Code Mapping".
pub(crate) fn code_of_http(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(name.clone(), value);
        }
        headers
    }

    fn code(headers: &HeaderMap) -> Option<Code> {
        sanitize(&mut headers.clone())
    }

    /// FA9: an unreadable status is UNKNOWN, never success.
    #[test]
    fn fa9_unreadable_status() {
        for text in ["", "abc", "99", "-1", "00", "0 ", "17"] {
            let code = code(&headers(&[(GRPC_STATUS, text)]));
            assert_eq!(code, Some(Code::Unknown), "{text:?}");
        }
        let twice = headers(&[(GRPC_STATUS, "0"), (GRPC_STATUS, "0")]);
        assert_eq!(code(&twice), Some(Code::Unknown));
        assert_eq!(status(Code::Unknown, twice, None).code(), Code::Unknown);
        assert_eq!(code(&headers(&[(GRPC_STATUS, "0")])), Some(Code::Ok));
        assert_eq!(code(&HeaderMap::new()), None);
    }

    /// Case 11: what is not a delay stops.
    #[test]
    fn case_11_pushback_values() {
        for (text, expected) in [
            ("0", Pushback::After(Duration::ZERO)),
            ("150", Pushback::After(Duration::from_millis(150))),
            (
                "2147483647",
                Pushback::After(Duration::from_millis(2_147_483_647)),
            ),
            ("2147483648", Pushback::Stop),
            ("-1", Pushback::Stop),
            ("", Pushback::Stop),
            ("abc", Pushback::Stop),
            ("1.5", Pushback::Stop),
            (" 1", Pushback::Stop),
        ] {
            assert_eq!(
                pushback(&headers(&[(PUSHBACK, text)])),
                expected,
                "{text:?}"
            );
        }
        let twice = headers(&[(PUSHBACK, "1"), (PUSHBACK, "1")]);
        assert_eq!(pushback(&twice), Pushback::Stop);
        assert_eq!(pushback(&HeaderMap::new()), Pushback::None);
    }

    #[test]
    fn retry_info_survives_the_wire() {
        let delay = Duration::from_millis(1_500);
        let status = unavailable_until("open".to_owned(), delay);
        let response: http::Response<()> = status.into_http();
        assert_eq!(retry_info(response.headers()), Some(delay));
    }

    /// FA11.
    #[test]
    fn fa11_a_status_survives_its_message() {
        for (text, expected) in [
            ("gone", "gone"),
            ("50%", "50%"),
            ("caf%C3%A9", "café"),
            ("caf%C3", "caf\u{fffd}"),
            ("%ff%FE, 100%25", "\u{fffd}\u{fffd}, 100%"),
        ] {
            let trailers = headers(&[(GRPC_STATUS, "5"), (GRPC_MESSAGE, text)]);
            let status = status(Code::NotFound, trailers, None);
            assert_eq!(
                (status.code(), status.message()),
                (Code::NotFound, expected)
            );
        }
    }

    #[test]
    fn details_that_are_not_base64_are_dropped() {
        let trailers = headers(&[(GRPC_STATUS, "5"), (GRPC_STATUS_DETAILS, "*not base64*")]);
        let status = status(Code::NotFound, trailers, None);
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.details().is_empty());
    }
}
