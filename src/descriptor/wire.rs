//! The parts of `google/protobuf/descriptor.proto` that we read, with the hedging option
//! (extension 50811 of `hedge/v1/hedge.proto`) as an ordinary field.
//!
//! An options message is kept as bytes and decoded on its own, so that an error in it names
//! its method. Where a message occurs several times its pieces are joined: protobuf merges
//! messages by concatenation.

use bytes::Bytes;
use prost::{DecodeError, Message};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Set {
    #[prost(message, repeated, tag = "1")]
    pub(super) file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) package: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) dependency: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) service: Vec<Service>,
    /// `import option` of edition 2024.
    #[prost(string, repeated, tag = "15")]
    pub(super) option_dependency: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Service {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) method: Vec<Method>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) options: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Method {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) options: Vec<Bytes>,
    #[prost(bool, tag = "5")]
    pub(super) client_streaming: bool,
    #[prost(bool, tag = "6")]
    pub(super) server_streaming: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServiceOptions {
    #[prost(message, repeated, tag = "999")]
    pub(super) uninterpreted: Vec<Uninterpreted>,
    #[prost(bytes = "bytes", repeated, tag = "50811")]
    pub(super) hedge: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MethodOptions {
    #[prost(int32, optional, tag = "34")]
    pub(super) level: Option<i32>,
    #[prost(message, repeated, tag = "999")]
    pub(super) uninterpreted: Vec<Uninterpreted>,
    #[prost(bytes = "bytes", repeated, tag = "50811")]
    pub(super) hedge: Vec<Bytes>,
    /// `(google.api.http)`, read leniently: it is somebody else's, and seldom asked for.
    #[prost(bytes = "bytes", repeated, tag = "72295728")]
    pub(super) http: Vec<Bytes>,
}

/// `google.api.HttpRule`, as far as its pattern: one of them is set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRule {
    #[prost(string, optional, tag = "2")]
    pub(super) get: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) put: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) post: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) delete: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) patch: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub(super) custom: Option<Bytes>,
}

impl MethodOptions {
    /// Whether its HTTP rule is a GET, and nothing else.
    pub(super) fn is_http_get(&self) -> bool {
        let rule = match joined::<HttpRule>(&self.http) {
            Ok(rule) if !self.http.is_empty() => rule,
            // What cannot be read declares nothing.
            _ => return false,
        };
        let other = rule.put.or(rule.post).or(rule.delete).or(rule.patch);
        rule.get.is_some() && other.is_none() && rule.custom.is_none()
    }
}

/// An option that the compiler left as text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Uninterpreted {
    #[prost(message, repeated, tag = "2")]
    pub(super) name: Vec<NamePart>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamePart {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// `hedge.v1.Options`; enums as numbers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Options {
    #[prost(bool, optional, tag = "1")]
    pub(super) idempotent: Option<bool>,
    #[prost(int32, optional, tag = "2")]
    pub(super) hedge: Option<i32>,
    #[prost(double, optional, tag = "3")]
    pub(super) quantile: Option<f64>,
    #[prost(message, optional, tag = "4")]
    pub(super) minimum_delay: Option<Duration>,
    #[prost(message, optional, tag = "5")]
    pub(super) maximum_delay: Option<Duration>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) max_concurrent: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) max_attempts: Option<u32>,
    #[prost(int32, repeated, tag = "8")]
    pub(super) retryable_codes: Vec<i32>,
    #[prost(bool, optional, tag = "9")]
    pub(super) first_message: Option<bool>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl File {
    /// A file, service or method that no compiler made.
    pub(super) fn is_nameless(&self) -> bool {
        self.name.is_empty()
            || self.service.iter().any(|service| {
                service.name.is_empty() || service.method.iter().any(|m| m.name.is_empty())
            })
    }

    /// Whether it imports `hedge/v1/hedge.proto`, whatever directory the include path starts at.
    pub(super) fn imports_options(&self) -> bool {
        self.dependency
            .iter()
            .chain(&self.option_dependency)
            .filter_map(|name| name.strip_suffix("hedge/v1/hedge.proto"))
            .any(|prefix| prefix.is_empty() || prefix.ends_with('/'))
    }
}

impl Uninterpreted {
    /// Whether it is one that we would have read.
    pub(super) fn is_ours(&self) -> bool {
        let name = self.name.first().map_or("", |part| part.name.as_str());
        matches!(
            name.trim_start_matches('.'),
            "hedge.v1.method" | "hedge.v1.service" | "idempotency_level"
        )
    }
}

/// The message that `pieces` make up.
pub(super) fn joined<M: Message + Default>(pieces: &[Bytes]) -> Result<M, DecodeError> {
    let mut message = M::default();
    for piece in pieces {
        message.merge(piece.clone())?;
    }
    Ok(message)
}
