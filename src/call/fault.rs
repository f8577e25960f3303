//! What an error of the transport means: its status, and whether the request was processed.

use std::{error::Error, time::Duration};

use tonic::{Code, ConnectError, Status, TimeoutExpired};
use tonic_hedge_engine::race::Unsent;

/// An attempt that ended without a status from the server.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What the caller gets if nothing better comes.
    pub(crate) status: Status,
    /// How the request is known not to have been processed, if it is.
    pub(crate) unsent: Option<Unsent>,
    /// The endpoint cannot be connected to.
    pub(crate) unreachable: bool,
    /// tonic's own timer ran out.
    pub(crate) timed_out: bool,
}

impl Fault {
    /// A fault that is not the transport's: the server broke the protocol.
    pub(crate) fn protocol(code: Code, message: impl Into<String>) -> Self {
        Self {
            status: Status::new(code, message),
            unsent: None,
            unreachable: false,
            timed_out: false,
        }
    }

    /// Classifies by the chain of sources: timeouts and lost connections surface under codes
    /// that say little (CANCELLED, UNKNOWN), so the code alone classifies nothing.
    pub(crate) fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        let mut unsent = None;
        let mut unreachable = false;
        let mut timed_out = false;
        let mut lost = false;
        let mut source: Option<&(dyn Error + 'static)> = Some(error.as_ref());
        while let Some(cause) = source {
            if cause.is::<ConnectError>() {
                unreachable = true;
                unsent = Some(Unsent::NeverSent);
            }
            timed_out |= cause.is::<TimeoutExpired>();
            if let Some(hyper) = cause.downcast_ref::<hyper::Error>() {
                // The request never left the queue of a connection that closed.
                if hyper.is_canceled() {
                    unsent = Some(Unsent::NeverSent);
                }
                lost |= hyper.is_closed() || hyper.is_incomplete_message();
            }
            if let Some(h2) = cause.downcast_ref::<h2::Error>() {
                if h2.reason() == Some(h2::Reason::REFUSED_STREAM) {
                    unsent = Some(Unsent::Refused);
                } else if h2.is_go_away() && h2.is_remote() {
                    // h2 gives this error only to streams above the GOAWAY's last stream.
                    unsent = Some(Unsent::NeverSent);
                }
                lost |= h2.is_io();
            }
            lost |= cause.is::<std::io::Error>();
            source = cause.source();
        }
        let status = Status::from_error(error);
        let code = match status.code() {
            _ if timed_out => Code::DeadlineExceeded,
            // A connection that was lost, or a request that never left, is the endpoint's
            // trouble; tonic says UNKNOWN or CANCELLED.
            Code::Unknown | Code::Cancelled if lost || unsent.is_some() => Code::Unavailable,
            code => code,
        };
        let status = if code == status.code() {
            status
        } else {
            let mut recoded = Status::new(code, status.message());
            recoded.set_source(std::sync::Arc::new(status));
            recoded
        };
        Self {
            status,
            unsent,
            unreachable,
            timed_out,
        }
    }
}

/// How close to the call's deadline tonic's own timer, which reads the same header, counts
/// as the deadline itself: tokio's timers are exact to a millisecond.
pub(crate) const DEADLINE_SLACK: Duration = Duration::from_millis(5);
