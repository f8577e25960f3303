//! Numbers for people.

use std::time::Duration;

/// A time to three digits, in the unit that suits it: `43.1 ms`, `340 us`, `1.2 s`.
pub(crate) fn ms(time: Duration) -> String {
    let (number, unit) = parts(time);
    format!("{} {unit}", short(&number))
}

/// The same for a column of them: `43.0 ms`.
pub(crate) fn ms_aligned(time: Duration) -> String {
    let (number, unit) = parts(time);
    format!("{number} {unit}")
}

fn parts(time: Duration) -> (String, &'static str) {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        _ if seconds >= 1.0 => (seconds, "s"),
        _ if seconds >= 1e-3 => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "us"),
    };
    (three_digits(number), unit)
}

/// A share: `12 %`, `0.8 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", short(&format!("{:.1}", 1e2 * share)))
}

/// The same for a column of them: `12.0 %`.
pub(crate) fn percent_aligned(share: f64) -> String {
    format!("{:.1} %", 1e2 * share)
}

/// A quantile: `p50`, `p99.9`.
pub(crate) fn pth(quantile: f64) -> String {
    format!("p{}", (quantile * 1e6).round() / 1e4)
}

fn three_digits(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

/// Without zeros that say nothing.
fn short(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// A count: `2,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
