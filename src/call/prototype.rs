//! What the attempts of a call are made from: the caller's request, whole for the first attempt and
//! in copies for the others.

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    header::{CONTENT_TYPE, TE},
    request::Parts,
};
use tonic::body::Body;

use super::body::{Replay, Rewind, Upload};

/// What every attempt of a call is made from.
pub(crate) struct Prototype {
    head: Head,
    /// None of them leaves the process: an attempt carries them only where a hook looks at them.
    pub(crate) extensions: Extensions,
    pub(crate) body: Source,
}

/// What tonic's client gives every request.
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

// A box would be an allocation for each call.
#[allow(clippy::large_enum_variant)]
enum Head {
    /// As the caller gave it. The first attempt takes it, whose headers are then not copied map and
    /// all, for further attempts that nearly never come.
    Whole(Parts),
    /// What further attempts are made from.
    Kept(Kept),
}

/// Copies of a request's address and headers. Of a request without metadata of the caller's there is
/// nothing to copy, and nothing is allocated.
struct Kept {
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether tonic's own two are there.
    te: bool,
    content_type: bool,
}

/// Where an attempt's body comes from.
pub(crate) enum Source {
    /// The caller's; nobody has looked at it yet.
    Unread(Body),
    /// Collected: any number of attempts can send it.
    Whole(Bytes),
    /// Passed on: sent again only while nothing that was taken of it is lost.
    Passing(Rewind),
}

impl Prototype {
    pub(crate) fn new(mut head: Parts, body: Body) -> Self {
        head.method = Method::POST;
        head.version = Version::HTTP_2;
        Self {
            extensions: std::mem::take(&mut head.extensions),
            head: Head::Whole(head),
            body: Source::Unread(body),
        }
    }

    pub(crate) fn path(&self) -> &str {
        match &self.head {
            Head::Whole(head) => head.uri.path(),
            Head::Kept(kept) => kept.uri.path(),
        }
    }

    /// A copy of the caller's headers.
    pub(crate) fn headers(&self) -> HeaderMap {
        match &self.head {
            Head::Whole(head) => head.headers.clone(),
            Head::Kept(kept) => kept.headers(),
        }
    }

    /// The request of one attempt: the caller's own the first time.
    pub(crate) fn request(&mut self, body: Body) -> Request<Body> {
        let kept = match &self.head {
            Head::Kept(kept) => return kept.request(body),
            Head::Whole(head) => Kept::of(&head.uri, &head.headers),
        };
        match std::mem::replace(&mut self.head, Head::Kept(kept)) {
            Head::Kept(kept) => kept.request(body),
            Head::Whole(head) => Request::from_parts(head, body),
        }
    }
}

impl Kept {
    fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let mut kept = Self {
            uri: uri.clone(),
            headers: Vec::new(),
            te: false,
            content_type: false,
        };
        for (name, value) in headers {
            match name {
                name if !kept.te && *name == TE && *value == TRAILERS => kept.te = true,
                name if !kept.content_type && *name == CONTENT_TYPE && *value == GRPC => {
                    kept.content_type = true;
                }
                name => kept.headers.push((name.clone(), value.clone())),
            }
        }
        kept
    }

    fn request(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers();
        request
    }

    fn headers(&self) -> HeaderMap {
        // Many values of one name are more than a map has places for, which holds them all the same.
        let mut map = HeaderMap::try_with_capacity(self.headers.len() + 2).unwrap_or_default();
        for (name, value) in &self.headers {
            map.append(name, value.clone());
        }
        // As tonic does: last.
        if self.te {
            map.append(TE, TRAILERS);
        }
        if self.content_type {
            map.append(CONTENT_TYPE, GRPC);
        }
        map
    }
}

impl Source {
    /// A body for the next attempt; `None` when what was taken of it is gone.
    pub(crate) fn next(&self) -> Option<Body> {
        match self {
            Self::Unread(_) => None,
            Self::Whole(bytes) => Some(Body::new(Replay::new(bytes.clone()))),
            Self::Passing(rewind) => rewind.next().map(Body::new),
        }
    }

    /// Whether it can be sent once more, in whole.
    pub(crate) fn can_repeat(&self) -> bool {
        match self {
            Self::Unread(_) | Self::Whole(_) => true,
            Self::Passing(rewind) => rewind.can_rewind(),
        }
    }

    /// What an attempt in flight has to do with it.
    pub(crate) fn upload(&self) -> Upload {
        match self {
            Self::Unread(_) => Upload::Streaming,
            Self::Whole(bytes) => Upload::Whole(bytes.len()),
            Self::Passing(rewind) => rewind.upload(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the caller's metadata is, a further attempt has the same request as the first.
    #[test]
    fn every_attempt_has_the_callers_request() {
        let with: [&[(&'static str, &'static str)]; 4] = [
            &[],
            &[("te", "trailers"), ("content-type", "application/grpc")],
            &[("te", "other"), ("content-type", "application/grpc+proto")],
            &[
                ("tenant", "a"),
                ("tenant", "b"),
                ("key-bin", "AAEC"),
                ("te", "trailers"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            ],
        ];
        for headers in with {
            let mut request = Request::new(());
            *request.uri_mut() = Uri::from_static("http://origin/prefix/a.S/M");
            for (name, value) in headers {
                let name = HeaderName::from_static(name);
                let value = HeaderValue::from_static(value);
                request.headers_mut().append(name, value);
            }
            let expected = request.headers().clone();
            let (head, ()) = request.into_parts();
            let mut prototype = Prototype::new(head, Body::empty());
            assert_eq!(prototype.headers(), expected);
            for _ in 0..3 {
                let request = prototype.request(Body::empty());
                assert_eq!(request.headers(), &expected);
                assert_eq!(request.uri(), "http://origin/prefix/a.S/M");
                assert_eq!(request.method(), Method::POST);
                assert_eq!(request.version(), Version::HTTP_2);
                assert_eq!(prototype.headers(), expected);
                assert_eq!(prototype.path(), "/prefix/a.S/M");
            }
        }
    }
}
