//! What a status says of coming again: when, and which lane it was shed by.

use std::time::Duration;

use tonic::Status;

use crate::{call::wire, lane::LANE_SHED, sealed::Sealed};

/// What a server that has no room says of it, for those who come again themselves.
///
/// A [`HedgedChannel`](crate::HedgedChannel) with attempts left does so by itself; this is for
/// callers of any channel.
///
/// ```
/// use std::time::Duration;
/// use tonic::{Response, Status};
/// use tonic_hedge::StatusExt as _;
///
/// /// How long to wait before the next try, if there should be one.
/// fn pause(result: &Result<Response<()>, Status>) -> Option<Duration> {
///     let status = result.as_ref().err()?;
///     status.shed_by()?;
///     status.retry_after()
/// }
/// # assert_eq!(pause(&Err(Status::resource_exhausted(""))), None);
/// ```
pub trait StatusExt: Sealed {
    /// When to come again: `grpc-retry-pushback-ms` (gRFC A6), else the delay of a
    /// `google.rpc.RetryInfo`. `None` if it says neither, or a pushback forbids another try.
    fn retry_after(&self) -> Option<Duration>;

    /// The name of the lane that had no place for the call ([`Lanes`](crate::Lanes)): it has not
    /// reached its handler.
    fn shed_by(&self) -> Option<&str>;
}

impl StatusExt for Status {
    fn retry_after(&self) -> Option<Duration> {
        wire::come_again(self.metadata().as_ref(), || {
            wire::retry_info_in(self.details())
        })
    }

    fn shed_by(&self) -> Option<&str> {
        let lane = self.metadata().as_ref().get(LANE_SHED)?;
        lane.to_str().ok()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const DELAY: Duration = Duration::from_millis(1_500);

    fn pushback(mut status: Status, value: &'static str) -> Status {
        let headers = status.metadata_mut();
        headers.insert("grpc-retry-pushback-ms", value.parse().unwrap());
        status
    }

    #[test]
    fn when_to_come_again() {
        let bare = || Status::resource_exhausted("full");
        let details = || wire::refusal(Code::ResourceExhausted, "full".to_owned(), DELAY);
        let millis = |millis| Some(Duration::from_millis(millis));
        for (status, expected) in [
            (bare(), None),
            (details(), Some(DELAY)),
            (pushback(bare(), "70"), millis(70)),
            (pushback(details(), "1501"), millis(1_501)),
            (pushback(details(), "-1"), None),
            (pushback(details(), "soon"), None),
            (
                Status::with_details(Code::ResourceExhausted, "", vec![0xff; 9].into()),
                None,
            ),
        ] {
            assert_eq!(status.retry_after(), expected, "{status:?}");
            assert_eq!(status.shed_by(), None);
        }
    }
}
