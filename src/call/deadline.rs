//! `grpc-timeout`: reading a call's deadline, and writing what is left of it to an attempt.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The gRPC wire format allows at most eight digits.
const MAX_VALUE: u64 = 99_999_999;

/// The deadline that the headers give. An unreadable value is none, as tonic has it: it is
/// passed on as it is, and the server decides.
pub(crate) fn read(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let unit = value.chars().next_back()?;
    let digits = value.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount * 3_600),
        'M' => Duration::from_secs(amount * 60),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Writes `left` in the most precise unit that fits eight digits: never more than is left,
/// and never zero, which servers take as "already over".
pub(crate) fn write(headers: &mut HeaderMap, left: Duration) {
    let units: [(u128, char); 6] = [
        (1, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
        (60 * 1_000_000_000, 'M'),
        (3_600 * 1_000_000_000, 'H'),
    ];
    let nanos = left.as_nanos().max(1);
    let (amount, unit) = units
        .into_iter()
        .map(|(size, unit)| (nanos / size, unit))
        .find(|(amount, _)| *amount <= u128::from(MAX_VALUE))
        .unwrap_or((u128::from(MAX_VALUE), 'H'));
    // Digits and a letter are always a valid header value.
    if let Ok(value) = HeaderValue::try_from(format!("{amount}{unit}")) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn reads_every_unit() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(read(&headers(text)), Some(expected), "{text}");
        }
    }

    /// DL9: what cannot be read is no deadline, and no panic.
    #[test]
    fn dl9_unreadable_is_none() {
        for text in [
            "",
            "5",
            "m",
            "-1m",
            "+1m",
            "1.5S",
            "123456789m",
            "1x",
            "٣m",
            " 1m",
        ] {
            let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else {
                continue;
            };
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, value);
            assert_eq!(read(&headers), None, "{text:?}");
        }
    }

    /// DL5: at most eight digits, never zero, never longer than what is left.
    #[test]
    fn dl5_writes_within_the_format() {
        for (left, expected) in [
            (Duration::ZERO, "1n"),
            (Duration::from_nanos(1), "1n"),
            (Duration::from_micros(999), "999000n"),
            (Duration::from_millis(500), "500000u"),
            (Duration::from_secs(99_999_999), "99999999S"),
            (Duration::from_secs(100_000_000), "1666666M"),
            (Duration::from_secs(3_600_000_000), "60000000M"),
            (Duration::MAX, "99999999H"),
        ] {
            let mut headers = HeaderMap::new();
            write(&mut headers, left);
            let text = headers[GRPC_TIMEOUT].to_str().unwrap();
            assert_eq!(text, expected);
            assert!(read(&headers).unwrap() <= left.max(Duration::from_nanos(1)));
        }
    }
}
