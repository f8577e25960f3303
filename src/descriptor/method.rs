//! One method of a descriptor set, and whether it may be repeated.

use super::{DescriptorError, Options, error::Kind};

/// What the .proto says about one method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MethodDescriptor {
    /// `/package.Service/Method`, as on the wire; `/Service/Method` without a package.
    pub(crate) path: String,
    pub(crate) client_streaming: bool,
    pub(crate) server_streaming: bool,
    pub(crate) level: IdempotencyLevel,
    /// `(google.api.http)` is a GET.
    pub(crate) http_get: bool,
    /// `(hedge.v1.method)`.
    pub(crate) method: Options,
    /// `(hedge.v1.service)` of its service.
    pub(crate) service: Options,
}

/// `google.protobuf.MethodOptions.IdempotencyLevel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdempotencyLevel {
    /// Unset, or `IDEMPOTENCY_UNKNOWN`.
    #[default]
    Unspecified,
    NoSideEffects,
    Idempotent,
    /// A number that protobuf didn't have when this was written.
    Unknown(i32),
}

/// Whether a method may be executed more than once, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeatability {
    /// By its level, or by an option with `idempotent: true`.
    Repeatable,
    /// An option says `idempotent: false`.
    Vetoed,
    /// Nobody says that it is.
    Unmarked,
}

impl MethodDescriptor {
    /// The method's options, and its service's where they are silent.
    pub(crate) fn options(&self) -> Options {
        self.method.over(&self.service)
    }

    /// The method's `idempotent` goes before its service's, and either before the level.
    pub(crate) fn repeatability(&self) -> Repeatability {
        match self.method.idempotent.or(self.service.idempotent) {
            Some(true) => Repeatability::Repeatable,
            Some(false) => Repeatability::Vetoed,
            None if self.level.is_repeatable() => Repeatability::Repeatable,
            None => Repeatability::Unmarked,
        }
    }

    /// Leaves nothing of what it asks for, and forbids to repeat it.
    #[cfg(feature = "reflection")]
    pub(crate) fn veto(&mut self) {
        self.service = Options::default();
        self.method = Options {
            idempotent: Some(false),
            ..Options::default()
        };
    }

    /// Takes an HTTP GET, which by HTTP's own rules has no side effects, for a declaration.
    pub(crate) fn trust_http_get(&mut self) {
        if self.http_get && self.level == IdempotencyLevel::Unspecified {
            self.level = IdempotencyLevel::NoSideEffects;
        }
    }

    pub(crate) fn is_unary(&self) -> bool {
        !self.client_streaming && !self.server_streaming
    }

    /// Whether a call of this shape can be raced at all: it is unary, or it streams its answer
    /// only and hedges the first message of it.
    pub(crate) fn is_raceable(&self) -> bool {
        self.is_raceable_with(&self.options())
    }

    /// The same, where these are its options.
    pub(crate) fn is_raceable_with(&self, options: &Options) -> bool {
        self.is_unary() || (!self.client_streaming && options.first_message == Some(true))
    }

    /// Checks the values, and that the method doesn't ask for what it can't have.
    ///
    /// A service's defaults are for those of its methods that can have them.
    pub(crate) fn check(&self) -> Result<(), DescriptorError> {
        self.options().validate().map_err(|error| Kind::Value {
            at: format!("method {}", self.path),
            error,
        })?;
        let Some(option) = self.method.asks_to_hedge() else {
            return Ok(());
        };
        let path = self.path.clone();
        if !self.is_raceable() {
            return Err(Kind::Streams { path, option }.into());
        }
        if self.repeatability() != Repeatability::Repeatable {
            return Err(Kind::NotIdempotent { path, option }.into());
        }
        Ok(())
    }
}

impl IdempotencyLevel {
    pub(super) fn from_number(number: Option<i32>) -> Self {
        match number {
            None | Some(0) => Self::Unspecified,
            Some(1) => Self::NoSideEffects,
            Some(2) => Self::Idempotent,
            Some(other) => Self::Unknown(other),
        }
    }

    /// A level that we don't know promises nothing that we know.
    pub(crate) fn is_repeatable(self) -> bool {
        matches!(self, Self::NoSideEffects | Self::Idempotent)
    }
}
