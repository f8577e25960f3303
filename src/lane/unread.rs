//! The request of a call that a server sheds, read before the answer goes out.
//!
//! A server that answers and drops a request which is still under way resets its stream, and the
//! rest of it arrives on a stream that is no more. The HTTP/2 stack remembers some fifty of those;
//! of the others it takes each late frame for an error of the client's, and after 1,024 of them it
//! closes the connection, with all the calls on it that were let in. A flood is shed at a rate
//! that gets there within a second.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf as _;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// No more than this is read, in bytes: what a client may send before it is told of anything, by
/// HTTP/2's default window (RFC 9113, 6.9.2). A call that is shed is not worth more.
const MOST: usize = 65_535;

/// How long a request may take that is not there yet. A unary one follows its head at once; one
/// that is open-ended is not waited for any longer.
const PATIENCE: Duration = Duration::from_millis(50);

pin_project! {
    /// Reads a request to its end and forgets it; ends sooner at the limit of bytes or time.
    pub(super) struct Unread<A> {
        #[pin]
        body: A,
        read: usize,
        // Only where the request is not there: most are.
        patience: Option<Pin<Box<Sleep>>>,
    }
}

impl<A> Unread<A> {
    pub(super) fn new(body: A) -> Self {
        Self {
            body,
            read: 0,
            patience: None,
        }
    }
}

impl<A: Body> Future for Unread<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            if *this.read > MOST || this.body.is_end_stream() {
                return Poll::Ready(());
            }
            match this.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    *this.read += frame.data_ref().map_or(0, |data| data.remaining());
                }
                // Its end, or the client's.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let patience = this
                        .patience
                        .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
                    return patience.as_mut().poll(cx);
                }
            }
        }
    }
}
