//! The error of a policy with a value out of bounds.

use std::fmt;

/// A policy's field is out of its bounds.
///
/// Its text names the policy, the field, the value and the bound, like
/// `Hedge.quantile: 1.2 is not in [0.5, 1)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    field: &'static str,
    value: String,
    bound: &'static str,
}

impl PolicyError {
    /// An error for `field` (as `Policy.field`), whose `value` violates `bound`.
    pub fn new(field: &'static str, value: impl fmt::Display, bound: &'static str) -> Self {
        Self {
            field,
            value: value.to_string(),
            bound,
        }
    }

    /// `Err` unless `holds`.
    pub(crate) fn unless(
        holds: bool,
        field: &'static str,
        value: impl fmt::Debug,
        bound: &'static str,
    ) -> Result<(), Self> {
        if holds {
            Ok(())
        } else {
            Err(Self::new(field, format_args!("{value:?}"), bound))
        }
    }

    /// The policy and field at fault, like `Hedge.quantile`.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is not {}", self.field, self.value, self.bound)
    }
}

impl std::error::Error for PolicyError {}
