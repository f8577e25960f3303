//! What a finished attempt is: an answer, or a failure that another attempt could better.

use http::HeaderMap;
use tonic::Code;
use tonic_hedge_engine::race::{Pushback, Verdict};

use super::wire;

/// A set of status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codes(u32);

impl Codes {
    pub(crate) fn contains(self, code: Code) -> bool {
        self.0 & bit(code) != 0
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        Self(codes.into_iter().map(bit).fold(0, |set, code| set | code))
    }
}

/// Codes are 0 to 16.
fn bit(code: Code) -> u32 {
    1 << (code as i32 as u32)
}

/// Judges a status that a server gave. `listed` are the method's own retryable codes.
///
/// A failure is UNAVAILABLE, or RESOURCE_EXHAUSTED with pushback or RetryInfo, or a listed
/// code. Everything else is an answer, so that a fast INVALID_ARGUMENT ends the race.
pub(crate) fn status(code: Code, headers: &HeaderMap, listed: Codes) -> Verdict {
    if code == Code::Ok {
        return Verdict::Answer;
    }
    let pushback = wire::pushback(headers);
    let failure = match code {
        Code::Unavailable => true,
        // The server says that it will have room again, and when.
        Code::ResourceExhausted => {
            if pushback == Pushback::None
                && let Some(delay) = wire::retry_info(headers)
            {
                return Verdict::Failure(Pushback::After(delay));
            }
            pushback != Pushback::None
        }
        _ => false,
    };
    if failure || listed.contains(code) {
        Verdict::Failure(pushback)
    } else {
        Verdict::Answer
    }
}

/// Whether the breaker counts this status as a failure. A status that an application returns
/// on purpose is a success to it.
pub(crate) fn breaks(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Unknown
            | Code::DataLoss
            | Code::ResourceExhausted
    )
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn all() -> impl Iterator<Item = Code> {
        (0..=16).map(Code::from)
    }

    /// BR9: which codes count.
    #[test]
    fn br9_which_codes_count() {
        let counted: Vec<_> = all().filter(|code| breaks(*code)).collect();
        assert_eq!(
            counted,
            [
                Code::Unknown,
                Code::DeadlineExceeded,
                Code::ResourceExhausted,
                Code::Internal,
                Code::Unavailable,
                Code::DataLoss,
            ]
        );
    }

    #[test]
    fn without_pushback_only_unavailable_is_a_failure() {
        for code in all() {
            let expected = match code {
                Code::Unavailable => Verdict::Failure(Pushback::None),
                _ => Verdict::Answer,
            };
            assert_eq!(status(code, &HeaderMap::new(), Codes::default()), expected);
        }
    }

    #[test]
    fn listed_codes_are_failures_but_ok_never() {
        let listed: Codes = all().collect();
        for code in all() {
            let verdict = status(code, &HeaderMap::new(), listed);
            assert_eq!(verdict == Verdict::Answer, code == Code::Ok, "{code:?}");
        }
    }

    #[test]
    fn resource_exhausted_needs_pushback() {
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("grpc-retry-pushback-ms"),
            HeaderValue::from_static("-1"),
        );
        let judge = |code| status(code, &headers, Codes::default());
        assert_eq!(
            judge(Code::ResourceExhausted),
            Verdict::Failure(Pushback::Stop)
        );
        // Pushback makes no failure of what another attempt would only repeat.
        assert_eq!(judge(Code::InvalidArgument), Verdict::Answer);
        assert_eq!(judge(Code::Ok), Verdict::Answer);
    }
}
