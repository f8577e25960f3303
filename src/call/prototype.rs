//! What the attempts of a call are made from: the caller's request, whole for the first attempt and
//! in copies for the others.

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, request::Parts,
};
use smallvec::SmallVec;
use tonic::body::Body;

use super::body::{Replay, Rewind, Upload};

/// What every attempt of a call is made from.
pub(crate) struct Prototype {
    head: Head,
    /// None of them leaves the process: an attempt carries them only where a hook looks at them.
    pub(crate) extensions: Extensions,
    pub(crate) body: Source,
}

/// Headers of a request that are kept without an allocation: tonic's own two, and as many of the
/// caller's.
const KEPT: usize = 4;

// A box would be an allocation for each call.
#[allow(clippy::large_enum_variant)]
enum Head {
    /// As the caller gave it. The first attempt takes it, whose headers are then not copied map and
    /// all, for further attempts that nearly never come.
    Whole(Parts),
    /// What further attempts are made from.
    Kept {
        uri: Uri,
        headers: SmallVec<[(HeaderName, HeaderValue); KEPT]>,
    },
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
            Head::Kept { uri, .. } => uri.path(),
        }
    }

    /// A copy of the caller's headers.
    pub(crate) fn headers(&self) -> HeaderMap {
        match &self.head {
            Head::Whole(head) => head.headers.clone(),
            Head::Kept { headers, .. } => {
                let mut map = HeaderMap::with_capacity(headers.len());
                for (name, value) in headers {
                    map.append(name, value.clone());
                }
                map
            }
        }
    }

    /// The request of one attempt: the caller's own the first time.
    pub(crate) fn request(&mut self, body: Body) -> Request<Body> {
        let Head::Whole(head) = &self.head else {
            return self.another(body);
        };
        let copies = head.headers.iter();
        let kept = Head::Kept {
            uri: head.uri.clone(),
            headers: copies
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        };
        match std::mem::replace(&mut self.head, kept) {
            Head::Whole(head) => Request::from_parts(head, body),
            Head::Kept { .. } => self.another(body),
        }
    }

    fn another(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers();
        if let Head::Kept { uri, .. } = &self.head {
            *request.uri_mut() = uri.clone();
        }
        request
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
