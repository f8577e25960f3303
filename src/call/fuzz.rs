//! What must hold of header values whatever they are: the bodies of the fuzz targets in `fuzz/`.
//!
//! A line of the input is a value, since no header value has a line feed in it. Each rule is
//! written a second time here, in another way than where it is kept.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::{Code, Status};
use tonic_hedge_engine::race::{Pushback, Verdict};

use super::{Codes, classify, deadline, wire};

/// `grpc-timeout`: reading it, and writing what is left. The bytes are a header's values, and a
/// number of nanoseconds too.
pub fn timeout(input: &[u8]) {
    let headers = values(&deadline::GRPC_TIMEOUT, input);
    let read = deadline::read(&headers);
    let first = headers.get(deadline::GRPC_TIMEOUT);
    assert_eq!(read, first.and_then(|value| timeout_of(value.as_bytes())));

    if let Some(left) = read {
        written(left);
    }
    let mut number = [0; 12];
    let len = input.len().min(number.len());
    number[..len].copy_from_slice(&input[..len]);
    let [a, b, c, d, e, f, g, h, i, j, k, l] = number;
    let nanos = u32::from_le_bytes([i, j, k, l]) % 1_000_000_000;
    written(Duration::new(
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        nanos,
    ));
}

/// The rule for reading: one to eight digits and a unit.
fn timeout_of(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let nanos: u128 = match unit {
        b'n' => 1,
        b'u' => 1_000,
        b'm' => 1_000_000,
        b'S' => 1_000_000_000,
        b'M' => 60_000_000_000,
        b'H' => 3_600_000_000_000,
        _ => return None,
    };
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    if !all_digits || !(1..=8).contains(&digits.len()) {
        return None;
    }
    let amount = digits
        .iter()
        .fold(0, |sum: u128, digit| sum * 10 + u128::from(digit - b'0'));
    let seconds = u64::try_from(amount * nanos / 1_000_000_000).ok()?;
    let rest = u32::try_from(amount * nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

/// What is written for `left` is within the format, is not zero, and is not longer than `left`.
fn written(left: Duration) {
    let mut headers = HeaderMap::new();
    // It takes the place of the caller's own.
    headers.append(deadline::GRPC_TIMEOUT, HeaderValue::from_static("1H"));
    headers.append(deadline::GRPC_TIMEOUT, HeaderValue::from_static("2H"));
    deadline::write(&mut headers, left);
    let all: Vec<_> = headers.get_all(deadline::GRPC_TIMEOUT).iter().collect();
    let [value] = all[..] else {
        panic!("{left:?}: {all:?}");
    };
    let Some(again) = timeout_of(value.as_bytes()) else {
        panic!("{left:?}: {value:?} is not in the format");
    };
    assert_eq!(deadline::read(&headers), Some(again));
    let least = Duration::from_nanos(1);
    assert!(
        again >= least && again <= left.max(least),
        "{left:?}: {value:?}"
    );
    // The worst is between two units: 100,000,000 ns are 100,000 us. All hours are near the longest.
    let longest = Duration::from_secs(99_999_999 * 3_600);
    let lost = left.min(longest).saturating_sub(again);
    assert!(
        lost <= left.min(longest) / 100_000,
        "{left:?}: {value:?} loses {lost:?}"
    );
}

/// `grpc-retry-pushback-ms`: only one readable value that is not negative is a delay, and
/// anything else but silence stops (case 11).
pub fn pushback(input: &[u8]) {
    let trailers = values(&wire::PUSHBACK, input);
    let all: Vec<_> = trailers.get_all(wire::PUSHBACK).iter().collect();
    let expected = match all[..] {
        [] => Pushback::None,
        [value] => millis_of(value.as_bytes()).map_or(Pushback::Stop, Pushback::After),
        _ => Pushback::Stop,
    };
    assert_eq!(wire::pushback(&trailers), expected);
}

/// A number of an `int32` that is not negative, with a sign or without.
fn millis_of(value: &[u8]) -> Option<Duration> {
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    let fits = number <= 2_147_483_647 && !(negative && number > 0);
    fits.then(|| Duration::from_millis(number))
}

/// `grpc-status`: OK comes from one `0` alone, and what cannot be read is UNKNOWN.
pub fn status(input: &[u8]) {
    let headers = values(&wire::GRPC_STATUS, input);
    let code = wire::sanitize(&mut headers.clone());
    assert_eq!(code, code_of(&headers));
    if let Some(code) = code {
        let whole = wire::status(code, headers.clone(), None);
        assert_eq!(whole.code(), code);
    }
    let mut sane = headers;
    wire::sanitize(&mut sane);
    assert_eq!(Status::from_header_map(&sane).map(|it| it.code()), code);
}

fn code_of(headers: &HeaderMap) -> Option<Code> {
    let all: Vec<_> = headers.get_all(wire::GRPC_STATUS).iter().collect();
    match all[..] {
        [] => None,
        [value] => {
            let known = (0..=16).find(|code: &i32| code.to_string().as_bytes() == value.as_bytes());
            Some(known.map_or(Code::Unknown, Code::from_i32))
        }
        _ => Some(Code::Unknown),
    }
}

/// Whole trailers, a `name: value` a line; what stands before an empty line is the head of the
/// response. None of it panics, and neither does tonic's client with what is left of it.
pub fn trailers(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let before: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let after: Vec<_> = lines.collect();
    let (head, trailers) = match after[..] {
        [] => (HeaderMap::new(), headers(&before)),
        _ => (headers(&before), headers(&after)),
    };

    let code = wire::sanitize(&mut trailers.clone());
    assert_eq!(code, code_of(&trailers));
    let mut sane = trailers.clone();
    wire::sanitize(&mut sane);
    assert_eq!(Status::from_header_map(&sane).map(|it| it.code()), code);
    let mut again = sane.clone();
    wire::sanitize(&mut again);
    assert_eq!(again, sane);
    // A pushback outlives it, and so do details that can be read.
    assert_eq!(wire::pushback(&sane), wire::pushback(&trailers));
    assert_eq!(wire::retry_info(&sane), wire::retry_info(&trailers));

    if let Some(delay) = wire::retry_info(&trailers) {
        let open = wire::unavailable_until("open".to_owned(), delay).into_http::<()>();
        assert_eq!(wire::retry_info(open.headers()), Some(delay));
    }
    let Some(code) = code else {
        return;
    };
    verdict(code, &trailers);
    let status = wire::status(code, trailers, Some(head.clone()));
    assert_eq!(status.code(), code);
    for (name, value) in &head {
        let kept = status.metadata().as_ref().get_all(name);
        assert!(kept.iter().any(|it| it == value), "{name:?}");
    }
}

/// OK is an answer, and so is any code that nobody lists but two; a pushback is never lost.
fn verdict(code: Code, trailers: &HeaderMap) {
    let said = wire::pushback(trailers);
    let by_default = matches!(code, Code::Unavailable | Code::ResourceExhausted);
    for (listed, fails) in [
        (Codes::default(), by_default),
        ([code].into_iter().collect(), true),
        (Codes::exactly([code]), true),
        (Codes::exactly([]), false),
    ] {
        let failure = code != Code::Ok && fails;
        match classify::status(code, trailers, listed) {
            Verdict::Answer => assert!(!failure, "{code:?}"),
            Verdict::Failure(pushback) => {
                assert!(failure, "{code:?}");
                assert!(said == Pushback::None || pushback == said, "{code:?}");
            }
            Verdict::Unsent(_) => panic!("{code:?}: a status is from a server"),
        }
    }
}

/// A header with each line of `input` that is a value at all; no line, no value.
fn values(name: &HeaderName, input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !input.is_empty() {
        let lines = input.split(|byte| *byte == b'\n');
        for value in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
            headers.append(name.clone(), value);
        }
    }
    headers
}

fn headers(lines: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let value = line[colon + 1..].trim_ascii_start();
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(value),
        ) {
            headers.append(name, value);
        }
    }
    headers
}
