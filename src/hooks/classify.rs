//! A user's own rule of what is a failure.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use prost::{DecodeError, Message};
use tonic::{Code, Status};

use super::{PANICKED, Panicked, Reported, caught};
use crate::call;

/// A complete response of one attempt, as [`Builder::classify`](crate::Builder::classify)'s
/// function sees it.
#[derive(Debug)]
pub struct AttemptResult<'a> {
    pub(crate) method: &'a str,
    pub(crate) code: Code,
    pub(crate) headers: &'a HeaderMap,
    /// `None` where the head carries the status.
    pub(crate) trailers: Option<&'a HeaderMap>,
    /// The body's frames.
    pub(crate) data: &'a [Bytes],
}

/// What an attempt's result is to the race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Classification {
    /// What it would be without a classifier.
    #[default]
    Default,
    /// It ends the race.
    Answer,
    /// Another attempt could better it. The server's pushback holds. Where no other attempt does
    /// better it is the call's result as it is, an OK included.
    Failure,
}

/// Bytes before a message: a compression flag and a length (gRPC over HTTP/2).
const PREFIX: usize = 5;

impl AttemptResult<'_> {
    /// `package.Service/Method`.
    pub fn method(&self) -> &str {
        self.method
    }

    /// The status code that the server gave.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The whole status: message, details and metadata. Made for each call of this.
    pub fn status(&self) -> Status {
        call::status_of(self.code, self.trailers().clone())
    }

    /// The response's headers.
    pub fn headers(&self) -> &HeaderMap {
        self.headers
    }

    /// What came with the status: the trailers, or the headers of a response that is nothing but
    /// a status.
    pub fn trailers(&self) -> &HeaderMap {
        self.trailers.unwrap_or(self.headers)
    }

    /// The response's message. `None` if there is none, or it is compressed. It is decoded for
    /// this alone, so ask for it only where the status does not say enough.
    ///
    /// # Errors
    /// Its bytes are no `M`.
    pub fn decode<M: Message + Default>(&self) -> Option<Result<M, DecodeError>> {
        let body = match self.data {
            [one] => Cow::Borrowed(&one[..]),
            several => Cow::Owned(several.concat()),
        };
        let (prefix, rest) = body.split_first_chunk::<PREFIX>()?;
        let [0, a, b, c, d] = *prefix else {
            return None;
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        rest.get(..length).map(M::decode)
    }
}

type Classify = dyn Fn(&AttemptResult<'_>) -> Classification + Send + Sync;

/// A user's classifier.
#[derive(Clone)]
pub(crate) struct Classifier {
    classify: Arc<Classify>,
    reported: Arc<Reported>,
}

impl Classifier {
    pub(crate) fn new<F>(classify: F) -> Self
    where
        F: Fn(&AttemptResult<'_>) -> Classification + Send + Sync + 'static,
    {
        Self {
            classify: Arc::new(classify),
            reported: Arc::default(),
        }
    }

    /// What it says; a panic says nothing.
    pub(crate) fn of(&self, result: &AttemptResult<'_>) -> Classification {
        caught(|| (self.classify)(result)).unwrap_or_else(|Panicked| {
            self.reported.report("classify", result.method, PANICKED);
            Classification::Default
        })
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Classifier")
    }
}
