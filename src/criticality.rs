//! How much an answer matters: on the request, in the surrounding task, and over the wire.
//!
//! A request that nobody waits for must stay so through the calls that it causes: a client
//! sends the metadata key `x-criticality`, and calls that a tonic server makes in the scope of an
//! [`InheritLayer`](crate::InheritLayer) inherit it. Metadata rather than OpenTelemetry
//! baggage: it works without a propagator installed, and goes no further than gRPC.

use std::future::Future;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::inherit::{InheritScope, Inherited};

/// The metadata key that carries it.
pub(crate) const CRITICALITY: HeaderName = HeaderName::from_static("x-criticality");

/// How much an answer matters, for the seventh gate.
///
/// The strongest word first: the request's own ([`RequestExt`](crate::RequestExt)), its
/// `x-criticality` metadata, the innermost [`Criticality::scope`] around the call, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Criticality {
    /// Nobody waits: never hedged, first to be shed.
    Sheddable,
    /// The default.
    #[default]
    Default,
    /// Somebody waits.
    Critical,
}

impl Criticality {
    /// The name that telemetry and metadata use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sheddable => "sheddable",
            Self::Default => "default",
            Self::Critical => "critical",
        }
    }

    /// The criticality of the innermost scope that this task is in.
    pub fn current() -> Option<Self> {
        Inherited::current().criticality()
    }

    /// Runs `work` with this criticality for the calls that it makes. Scopes nest: the inner
    /// one counts. All else that calls inherit is as where this is called. A task that `work`
    /// spawns is not in the scope.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use tonic_hedge::Criticality;
    ///
    /// Criticality::Sheddable
    ///     .scope(async {
    ///         assert_eq!(Criticality::current(), Some(Criticality::Sheddable));
    ///         // client.get(request).await: never hedged
    ///     })
    ///     .await;
    /// assert_eq!(Criticality::current(), None);
    /// # }
    /// ```
    pub fn scope<F: Future>(self, work: F) -> InheritScope<F> {
        Inherited::current().with_criticality(self).scope(work)
    }

    /// Of a call: the strongest word first. `said` by its request, else by its metadata, else
    /// `inherited` from the task that makes it.
    pub(crate) fn of_call(
        said: Option<Self>,
        metadata: impl FnOnce() -> Option<Self>,
        inherited: impl FnOnce() -> Option<Self>,
    ) -> Self {
        said.or_else(metadata)
            .or_else(inherited)
            .unwrap_or_default()
    }

    /// What a request's metadata says; `None` without the key, or for a value that is not known.
    pub(crate) fn of_metadata(headers: &HeaderMap) -> Option<Self> {
        match headers.get(CRITICALITY)?.as_bytes() {
            b"sheddable" => Some(Self::Sheddable),
            b"default" => Some(Self::Default),
            b"critical" => Some(Self::Critical),
            _ => None,
        }
    }

    /// Puts it into a request's metadata. The default is not sent; a value that is not known is
    /// the caller's own, and stays where there is nothing else to say.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        if self == Self::Default {
            if Self::of_metadata(headers).is_some() {
                headers.remove(CRITICALITY);
            }
        } else {
            headers.insert(CRITICALITY, HeaderValue::from_static(self.name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn scopes_nest() {
        assert_eq!(Criticality::current(), None);
        Criticality::Sheddable
            .scope(async {
                assert_eq!(Criticality::current(), Some(Criticality::Sheddable));
                Criticality::Critical
                    .scope(async {
                        assert_eq!(Criticality::current(), Some(Criticality::Critical));
                    })
                    .await;
                assert_eq!(Criticality::current(), Some(Criticality::Sheddable));
            })
            .await;
        assert_eq!(Criticality::current(), None);
    }

    #[test]
    fn metadata_round_trip() {
        for criticality in [
            Criticality::Sheddable,
            Criticality::Default,
            Criticality::Critical,
        ] {
            let mut headers = HeaderMap::new();
            criticality.write(&mut headers);
            let read = Criticality::of_metadata(&headers).unwrap_or_default();
            assert_eq!(read, criticality);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CRITICALITY, HeaderValue::from_static("urgent"));
        assert_eq!(Criticality::of_metadata(&headers), None);
        Criticality::Default.write(&mut headers);
        assert_eq!(headers[CRITICALITY], "urgent");
        Criticality::Sheddable.write(&mut headers);
        assert_eq!(headers[CRITICALITY], "sheddable");
    }
}
