//! A user's own choice of where each attempt goes, and what it carries.

use std::{fmt, sync::Arc, time::Duration};

use http::{Extensions, HeaderMap, HeaderName, header};
use tonic::{Status, metadata::MetadataMap};

use super::{PANICKED, Panicked, Reported, caught};
use crate::{endpoint::Destination, log::AttemptKind};

/// An attempt that is about to start, as [`Builder::target_with`](crate::Builder::target_with)'s
/// function sees it. What is written to it is this attempt's alone.
pub struct NextAttempt<'a> {
    about: &'a Unplaced<'a>,
    metadata: MetadataMap,
    extensions: Extensions,
}

impl NextAttempt<'_> {
    /// Its number, as in the call log: 0 is the original. One that was never sent and is replaced
    /// took a number too: [`previous`](Self::previous) counts those that count.
    pub fn number(&self) -> u32 {
        self.about.number
    }

    /// Attempts before it that count, as `grpc-previous-rpc-attempts` has it: 0 for the original and
    /// what replaces it, 1 for the first hedge or retry.
    pub fn previous(&self) -> u32 {
        self.about.previous
    }

    /// Why it starts.
    pub fn kind(&self) -> AttemptKind {
        self.about.kind
    }

    /// `package.Service/Method`. It cannot be changed: which methods may be repeated is decided by
    /// it.
    pub fn method(&self) -> &str {
        self.about.method
    }

    /// Since the start of the call.
    pub fn elapsed(&self) -> Duration {
        self.about.elapsed
    }

    /// The call's latest failure: a server's status, or what the transport said.
    pub fn last_failure(&self) -> Option<&Status> {
        self.about.last_failure
    }

    /// The request's metadata.
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The same, to be changed. `grpc-timeout`, `grpc-previous-rpc-attempts` and what describes the body
    /// stay as they are, and the trace context is written after this.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// The request's extensions.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The same, to be changed.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

impl fmt::Debug for NextAttempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextAttempt")
            .field("number", &self.about.number)
            .field("kind", &self.about.kind)
            .field("method", &self.about.method)
            .finish_non_exhaustive()
    }
}

/// What the body is, how the connection treats it, and what is the channel's own to say.
const FIXED: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::TE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("grpc-previous-rpc-attempts"),
];

type Choose = dyn Fn(&mut NextAttempt<'_>) -> Option<Destination> + Send + Sync;

/// A user's choice.
#[derive(Clone)]
pub(crate) struct Targeting {
    choose: Arc<Choose>,
    reported: Arc<Reported>,
}

/// What is known of an attempt before it has a place.
pub(crate) struct Unplaced<'a> {
    pub(crate) number: u32,
    pub(crate) previous: u32,
    pub(crate) kind: AttemptKind,
    pub(crate) method: &'a str,
    pub(crate) elapsed: Duration,
    pub(crate) last_failure: Option<&'a Status>,
}

impl Targeting {
    pub(crate) fn new<F>(choose: F) -> Self
    where
        F: Fn(&mut NextAttempt<'_>) -> Option<Destination> + Send + Sync + 'static,
    {
        Self {
            choose: Arc::new(choose),
            reported: Arc::default(),
        }
    }

    /// Where the attempt goes; `headers` and `extensions` are its own copies. A panic chooses
    /// nothing and changes nothing.
    pub(crate) fn of(
        &self,
        attempt: &Unplaced<'_>,
        headers: &mut HeaderMap,
        extensions: &mut Extensions,
    ) -> Option<Destination> {
        let mut next = NextAttempt {
            about: attempt,
            metadata: MetadataMap::from_headers(headers.clone()),
            extensions: extensions.clone(),
        };
        match caught(|| (self.choose)(&mut next)) {
            Ok(destination) => {
                let mut changed = next.metadata.into_headers();
                for name in FIXED {
                    changed.remove(&name);
                    if let Some(value) = headers.get(&name) {
                        changed.insert(name, value.clone());
                    }
                }
                *headers = changed;
                *extensions = next.extensions;
                destination
            }
            Err(Panicked) => {
                self.failed(attempt.method, PANICKED);
                None
            }
        }
    }

    pub(crate) fn failed(&self, method: &str, error: &str) {
        self.reported.report("target_with", method, error);
    }
}

impl fmt::Debug for Targeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Targeting")
    }
}
