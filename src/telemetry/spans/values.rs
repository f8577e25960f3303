//! Codes, readings and times as attributes.

use std::time::Duration;

use opentelemetry::{
    KeyValue, Value as Attribute,
    trace::{SpanRef, Status},
};
use tonic::Code;
use tonic_hedge_engine::gate::Value;

use super::names;
use crate::log::code_name;

pub(super) fn set_code(span: &SpanRef<'_>, code: Code) {
    span.set_attribute(KeyValue::new(names::RPC_STATUS_CODE, code_name(code)));
}

/// By the conventions every code but OK is an error to a client. The description is the code's
/// name: a status's message may hold anything.
pub(super) fn set_error(span: &SpanRef<'_>, code: Code) {
    if code != Code::Ok {
        span.set_attribute(KeyValue::new(names::ERROR_TYPE, code_name(code)));
        span.set_status(Status::error(code_name(code)));
    }
}

pub(super) fn attribute(value: &Value) -> Attribute {
    match value {
        Value::None => "none".into(),
        Value::Bool(value) => (*value).into(),
        Value::Count(value) => i64::try_from(*value).unwrap_or(i64::MAX).into(),
        Value::Number(value) => (*value).into(),
        Value::Time(value) => millis(*value).into(),
        Value::Text(value) => value.clone().into(),
    }
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
