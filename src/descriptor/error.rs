//! Why a descriptor set was refused.

use std::{error, fmt};

use prost::DecodeError;
use tonic_hedge_engine::policy::PolicyError;

/// A descriptor set was refused: it can't be trusted to say which methods are idempotent.
///
/// Its text names the method or service at fault, if it is one, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct DescriptorError {
    // Boxed: it is the rare side of every `Result` here.
    kind: Box<Kind>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Empty,
    TooLarge(usize),
    NotASet(DecodeError),
    Nameless,
    LostExtensions(String),
    NotImported { at: String },
    Unreadable { at: String, error: DecodeError },
    Uninterpreted { at: String },
    Value { at: String, error: PolicyError },
    NotIdempotent { path: String, option: &'static str },
    Streams { path: String, option: &'static str },
}

impl From<Kind> for DescriptorError {
    fn from(kind: Kind) -> Self {
        Self {
            kind: Box::new(kind),
        }
    }
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::Empty => f.write_str("the descriptor set is empty"),
            Kind::TooLarge(bytes) => write!(
                f,
                "{bytes} bytes are no descriptor set: the longest that is read has {}",
                super::MAX_SET
            ),
            Kind::NotASet(error) => {
                write!(f, "not a descriptor set, or a truncated one: {error}")
            }
            Kind::Nameless => f.write_str(
                "not a descriptor set: no file in it, or a file, service or method without a name",
            ),
            Kind::LostExtensions(file) => write!(
                f,
                "the descriptor set lost its extensions: {file} imports hedge/v1/hedge.proto, but \
                 no service that could use it carries an option of it. A veto may be lost as well. \
                 Pass on the compiler's own bytes, as tonic-hedge-build does (prost-types drops \
                 extensions), or remove an import that is not used",
            ),
            Kind::NotImported { at } => write!(
                f,
                "{at}: it has an option with the number 50811, but nothing in the descriptor set \
                 imports hedge/v1/hedge.proto: compile the set with its imports, or give the other \
                 option another number",
            ),
            Kind::Unreadable { at, error } => {
                write!(f, "{at}: its options can't be read: {error}")
            }
            Kind::Uninterpreted { at } => write!(
                f,
                "{at}: the compiler left its hedging options or idempotency_level uninterpreted",
            ),
            Kind::Value { at, error } => write!(f, "{at}: {error}"),
            Kind::NotIdempotent { path, option } => write!(
                f,
                "method {path}: (hedge.v1.method).{option} hedges it, but it is not idempotent: \
                 set idempotency_level, or remove the option",
            ),
            Kind::Streams { path, option } => write!(
                f,
                "method {path}: (hedge.v1.method).{option} hedges it, but it streams: only unary \
                 methods are hedged, and server streaming with first_message",
            ),
        }
    }
}

impl error::Error for DescriptorError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &*self.kind {
            Kind::NotASet(error) | Kind::Unreadable { error, .. } => Some(error),
            Kind::Value { error, .. } => Some(error),
            _ => None,
        }
    }
}
