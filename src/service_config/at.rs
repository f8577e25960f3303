//! A value of the JSON with the path to it, so that whatever is wrong with it can be named.

use std::{fmt, time::Duration};

use serde_json::{Map, Value};
use tonic::Code;

/// A service config is refused: where, and why.
#[derive(Debug)]
pub(crate) struct ServiceConfigError {
    path: String,
    why: String,
}

/// A value, and where it stands, like `methodConfig[1].name[0]`.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    path: String,
    value: &'a Value,
}

type Result<T> = std::result::Result<T, ServiceConfigError>;

/// The longest `google.protobuf.Duration`, in seconds: about 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;

impl ServiceConfigError {
    pub(super) fn new(path: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for ServiceConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.why),
            path => write!(f, "{path}: {}", self.why),
        }
    }
}

impl std::error::Error for ServiceConfigError {}

impl<'a> At<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    /// This value violates `bound`.
    pub(super) fn is_not(&self, bound: &str) -> ServiceConfigError {
        self.wrong(format_args!("{} is not {bound}", self.value))
    }

    pub(super) fn wrong(&self, why: impl fmt::Display) -> ServiceConfigError {
        ServiceConfigError::new(self.path.clone(), why)
    }

    /// An object's field, if it is there. A `null` is there.
    pub(super) fn field(&self, name: &str) -> Result<Option<At<'a>>> {
        let value = self.object()?.get(name);
        Ok(value.map(|value| At {
            path: self.path_of(name),
            value,
        }))
    }

    pub(super) fn required(&self, name: &str) -> Result<At<'a>> {
        self.field(name)?
            .ok_or_else(|| ServiceConfigError::new(self.path_of(name), "is missing"))
    }

    fn path_of(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>> {
        self.value
            .as_object()
            .ok_or_else(|| self.is_not("an object"))
    }

    pub(super) fn items(&self) -> Result<impl Iterator<Item = At<'a>>> {
        let items = self.value.as_array().ok_or_else(|| self.is_not("a list"))?;
        let path = self.path.clone();
        Ok(items.iter().enumerate().map(move |(index, value)| At {
            path: format!("{path}[{index}]"),
            value,
        }))
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.is_not("a string"))
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        self.value
            .as_bool()
            .ok_or_else(|| self.is_not("true or false"))
    }

    /// A finite number, or its text: protobuf's JSON form has both.
    pub(super) fn number(&self) -> Result<f64> {
        let number = match self.value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.is_not("a number"))
    }

    /// A 32-bit integer, or its text. A number may have a point, where only zeros follow.
    pub(super) fn integer(&self) -> Result<i32> {
        let integer = match self.value {
            Value::Number(number) => number.as_f64().and_then(whole),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        integer.ok_or_else(|| self.is_not("a 32-bit integer"))
    }

    /// A `google.protobuf.Duration` in its JSON form, like `0.25s`.
    pub(super) fn duration(&self) -> Result<Duration> {
        let read = self.value.as_str().and_then(duration);
        read.ok_or_else(|| self.is_not(r#"a duration of 0 or more, like "0.25s""#))
    }

    /// A status code of a failure, by its number or its name.
    fn code(&self) -> Result<Code> {
        let code = match self.value {
            Value::Number(number) => number
                .as_f64()
                .and_then(whole)
                .filter(|number| (0..=16).contains(number))
                .map(Code::from_i32),
            Value::String(name) => NAMES
                .iter()
                .position(|known| known.eq_ignore_ascii_case(name))
                .map(|number| Code::from_i32(number as i32)),
            _ => None,
        };
        match code {
            Some(Code::Ok) => Err(self.is_not("a code of a failure")),
            Some(code) => Ok(code),
            None => Err(self.is_not("a gRPC status code")),
        }
    }

    pub(super) fn codes(&self) -> Result<Vec<Code>> {
        self.items()?.map(|item| item.code()).collect()
    }
}

/// The names of codes by their numbers.
pub(super) const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

fn whole(number: f64) -> Option<i32> {
    let integer = number as i32;
    (f64::from(integer) == number).then_some(integer)
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('s')?;
    // Minus nothing is nothing.
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    let read = Duration::new(seconds, nanos);
    (seconds <= MAX_SECONDS && !(negative && read > Duration::ZERO)).then_some(read)
}
