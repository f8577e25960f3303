//! Where endpoints come from, with the types of the user's stream erased.

use std::{
    collections::HashMap,
    error::Error,
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use parking_lot::Mutex;
use tonic::transport::Endpoint as TonicEndpoint;
use tower::discover::Change;

use super::{EndpointSpec, connection::describe};

/// Who says which endpoints there are.
pub(super) enum Source {
    /// The user, once.
    Fixed,
    /// A stream of changes. The lock lets a new supervisor go on where the last one was dropped; it
    /// is held during a poll only.
    Stream(Mutex<Pin<Box<dyn Stream<Item = Update> + Send>>>),
    /// A name and how often it is resolved.
    Dns(Arc<TonicEndpoint>, Duration),
}

/// One change of the set.
pub(super) enum Update {
    Insert(u64, Box<EndpointSpec>),
    Remove(u64),
    Error(Arc<str>),
}

/// Numbers the keys of a stream.
pub(super) struct Numbered<S, K> {
    pub(super) stream: S,
    keys: HashMap<K, u64>,
    next: u64,
}

impl<S, K> Numbered<S, K> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            keys: HashMap::new(),
            next: 0,
        }
    }
}

// The stream is boxed, so nothing here is pinned in place.
impl<S, K> Unpin for Numbered<Pin<Box<S>>, K> {}

impl<S, K, V, E> Stream for Numbered<Pin<Box<S>>, K>
where
    S: Stream<Item = Result<Change<K, V>, E>>,
    K: Hash + Eq,
    V: Into<EndpointSpec>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Update>> {
        loop {
            let change = match std::task::ready!(self.stream.as_mut().poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    let error: Box<dyn Error + Send + Sync> = error.into();
                    return Poll::Ready(Some(Update::Error(describe(&*error))));
                }
                Some(Ok(change)) => change,
            };
            let update = match change {
                Change::Insert(key, spec) => {
                    let next = self.next;
                    let number = *self.keys.entry(key).or_insert(next);
                    if number == next {
                        self.next += 1;
                    }
                    Update::Insert(number, Box::new(spec.into()))
                }
                Change::Remove(key) => match self.keys.remove(&key) {
                    Some(number) => Update::Remove(number),
                    // Unknown, or removed twice.
                    None => continue,
                },
            };
            return Poll::Ready(Some(update));
        }
    }
}
