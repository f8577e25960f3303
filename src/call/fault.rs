//! What an error of the transport means: its status, and whether the request was processed.

use std::{error::Error, sync::Arc, time::Duration};

use http::StatusCode;
use tonic::{Code, ConnectError, Status, TimeoutExpired};
use tonic_hedge_engine::race::Unsent;

use super::wire;

/// An attempt that ended without a status from the server.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What the caller gets if nothing better comes.
    pub(crate) status: Status,
    /// How the request is known not to have been processed, if it is.
    pub(crate) unsent: Option<Unsent>,
    /// The endpoint cannot be connected to.
    pub(crate) unreachable: bool,
    /// Its connection was lost, with whatever else it carried.
    pub(crate) lost: bool,
    /// tonic's own timer ran out.
    pub(crate) timed_out: bool,
    /// The code is that of an HTTP status, which something before the server gave.
    pub(crate) gateway: bool,
}

impl Fault {
    /// A fault that is not the transport's: the server broke the protocol.
    pub(crate) fn protocol(code: Code, message: impl Into<String>) -> Self {
        Self {
            status: Status::new(code, message),
            unsent: None,
            unreachable: false,
            lost: false,
            timed_out: false,
            gateway: false,
        }
    }

    /// An HTTP error instead of a gRPC response.
    pub(crate) fn gateway(status: StatusCode) -> Self {
        let message = format!("HTTP status {status} without grpc-status");
        Self {
            gateway: true,
            ..Self::protocol(wire::code_of_http(status), message)
        }
    }

    /// The endpoint's channel has not taken the request, and never will.
    pub(crate) fn not_taken(error: Box<dyn Error + Send + Sync>) -> Self {
        Self {
            status: recoded(Status::from_error(error), Code::Unavailable),
            unsent: Some(Unsent::NeverSent),
            unreachable: true,
            ..Self::protocol(Code::Unavailable, "")
        }
    }

    /// Classifies by the chain of sources: timeouts and lost connections surface under codes
    /// that say little (CANCELLED, UNKNOWN), so the code alone classifies nothing.
    pub(crate) fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        let mut unsent = None;
        let mut unreachable = false;
        let mut timed_out = false;
        let mut lost = false;
        let mut gone = false;
        let mut callers = false;
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
                // A connection whose keep-alive was not answered ends with a timeout of hyper's.
                lost |= hyper.is_closed() || hyper.is_incomplete_message() || hyper.is_timeout();
                gone |= hyper.is_user();
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
            callers |= cause.is::<Status>();
            source = cause.source();
        }
        // hyper blames the user also for a connection that ended while the request waited for a stream.
        // It was hardly sent, but hyper does not say. What is the user's own is its body's `Status`.
        lost |= gone && !callers;
        let status = Status::from_error(error);
        let code = match status.code() {
            _ if timed_out => Code::DeadlineExceeded,
            // A request that was not processed, or a connection that was lost, is the endpoint's
            // trouble, and safe to try again where it was not processed. tonic says UNKNOWN or
            // CANCELLED, or what a GOAWAY's code says of the connection.
            _ if unsent.is_some() => Code::Unavailable,
            Code::Unknown | Code::Cancelled if lost => Code::Unavailable,
            code => code,
        };
        Self {
            status: recoded(status, code),
            unsent,
            unreachable,
            lost: lost && !unreachable,
            timed_out,
            gateway: false,
        }
    }
}

/// The status under another code; what it was is its source.
fn recoded(status: Status, code: Code) -> Status {
    if code == status.code() {
        return status;
    }
    let mut recoded = Status::new(code, status.message());
    recoded.set_source(Arc::new(status));
    recoded
}

/// How close to the call's deadline tonic's own timer, which reads the same header, counts
/// as the deadline itself: tokio's timers are exact to a millisecond.
pub(crate) const DEADLINE_SLACK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use tonic::transport::Endpoint;

    use super::*;

    /// A layer of somebody else's around a cause.
    #[derive(Debug)]
    struct Layer(Box<dyn Error + Send + Sync>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("layer")
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.0.as_ref())
        }
    }

    type Cause = fn() -> Box<dyn Error + Send + Sync>;

    /// A cause's name and maker; then the code, how it is unsent, unreachable, timed out.
    type Case = (&'static str, Cause, Code, Option<Unsent>, bool, bool);

    /// What is provable by the causes, however deep they are. What only a connection can make
    /// (a GOAWAY, a request that hyper never took from its queue) is in `tests/wire_faults/resets.rs`.
    #[test]
    fn by_the_chain_of_sources() {
        let broken: Cause = || Box::new(io::Error::from(io::ErrorKind::BrokenPipe));
        let refused: Cause = || Box::new(h2::Error::from(h2::Reason::REFUSED_STREAM));
        let connect: Cause = || {
            Box::new(ConnectError(Box::new(io::Error::from(
                io::ErrorKind::ConnectionRefused,
            ))))
        };
        let timeout: Cause = || Box::new(TimeoutExpired(()));
        let other: Cause = || Box::new(fmt::Error);
        let cancelled: Cause = || Box::new(Status::cancelled("by the server"));
        let cases: [Case; 6] = [
            ("io", broken, Code::Unavailable, None, false, false),
            (
                "refused stream",
                refused,
                Code::Unavailable,
                Some(Unsent::Refused),
                false,
                false,
            ),
            (
                "connect",
                connect,
                Code::Unavailable,
                Some(Unsent::NeverSent),
                true,
                false,
            ),
            (
                "timeout",
                timeout,
                Code::DeadlineExceeded,
                None,
                false,
                true,
            ),
            ("unknown", other, Code::Unknown, None, false, false),
            ("a status", cancelled, Code::Cancelled, None, false, false),
        ];
        for (what, cause, code, unsent, unreachable, timed_out) in cases {
            for depth in 0..3 {
                let mut error = cause();
                for _ in 0..depth {
                    error = Box::new(Layer(error));
                }
                let fault = Fault::of(error);
                assert_eq!(fault.status.code(), code, "{what}, {depth} deep");
                assert_eq!(fault.unsent, unsent, "{what}, {depth} deep");
                assert_eq!(fault.unreachable, unreachable, "{what}, {depth} deep");
                assert_eq!(fault.timed_out, timed_out, "{what}, {depth} deep");
                assert!(!fault.gateway);
            }
        }
    }

    /// The error of a real refused connection, through all of tonic's layers.
    #[tokio::test]
    async fn a_refused_connection_is_never_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut channel = endpoint.connect_lazy();
        let request = http::Request::new(tonic::body::Body::empty());
        std::future::poll_fn(|cx| tower_service::Service::poll_ready(&mut channel, cx))
            .await
            .unwrap();
        let error = tower_service::Service::call(&mut channel, request)
            .await
            .unwrap_err();
        let fault = Fault::of(error.into());
        assert_eq!(fault.status.code(), Code::Unavailable);
        assert_eq!(fault.unsent, Some(Unsent::NeverSent));
        assert!(fault.unreachable);
    }
}
