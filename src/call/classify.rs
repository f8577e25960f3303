//! What a finished attempt is: an answer, or a failure that another attempt could better.

use http::HeaderMap;
use tonic::Code;
use tonic_hedge_engine::race::{Pushback, Verdict};

use super::wire;
use crate::lane::LANE_SHED;

/// A method's own set of retryable status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codes {
    set: u32,
    /// These and no others, while else they are so besides UNAVAILABLE.
    exact: bool,
}

impl Codes {
    /// The only codes that are failures.
    pub(crate) fn exactly(codes: impl IntoIterator<Item = Code>) -> Self {
        Self {
            exact: true,
            ..codes.into_iter().collect()
        }
    }

    fn contains(self, code: Code) -> bool {
        self.set & bit(code) != 0
    }

    /// Whether nobody but the set decides on `code`, and it does not have it.
    fn exclude(self, code: Code) -> bool {
        self.exact && !self.contains(code)
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        Self {
            set: codes.into_iter().map(bit).fold(0, |set, code| set | code),
            exact: false,
        }
    }
}

/// Codes are 0 to 16.
fn bit(code: Code) -> u32 {
    1 << (code as i32 as u32)
}

/// Judges a status that a server gave. `listed` are the method's own retryable codes.
///
/// A failure is UNAVAILABLE, or RESOURCE_EXHAUSTED, or a listed code; where the list is exact, a
/// listed code alone. Everything else is an answer, so that a fast INVALID_ARGUMENT ends the race.
///
/// RESOURCE_EXHAUSTED says whether to come again (pushback or RetryInfo). Where it does not, no
/// further attempt starts; but an attempt that is in flight may well have its place in a queue
/// while another replica's is full, and its answer is not thrown away for a refusal.
pub(crate) fn status(code: Code, headers: &HeaderMap, listed: Codes) -> Verdict {
    if code == Code::Ok || listed.exclude(code) {
        return Verdict::Answer;
    }
    if !listed.contains(code) && !matches!(code, Code::Unavailable | Code::ResourceExhausted) {
        return Verdict::Answer;
    }
    match failure(code, headers) {
        Verdict::Failure(Pushback::None)
            if code == Code::ResourceExhausted && !listed.contains(code) =>
        {
            Verdict::Failure(Pushback::Stop)
        }
        verdict => verdict,
    }
}

/// Judges an attempt that no server gave a status: a failure, unless the codes are exact and have
/// no such code.
pub(crate) fn fault(code: Code, listed: Codes) -> Verdict {
    match listed.exclude(code) {
        true => Verdict::Answer,
        false => Verdict::Failure(Pushback::None),
    }
}

/// A failure, with the server's word on when to come again. Without a pushback the details of
/// RESOURCE_EXHAUSTED may say when the server has room.
pub(crate) fn failure(code: Code, headers: &HeaderMap) -> Verdict {
    let retry_info = || match code {
        Code::ResourceExhausted => wire::retry_info(headers),
        _ => None,
    };
    Verdict::Failure(match wire::pushback(headers) {
        Pushback::None => retry_info().map_or(Pushback::None, Pushback::After),
        said => said,
    })
}

/// What a status says of the endpoint that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It works.
    Works,
    /// A failure to the breaker and the picker.
    Fails,
    /// One of its lanes has no place, which says nothing of the others: else a flood of batch calls
    /// would open the breaker of those whom the lanes protect, and make each replica look slow.
    Sheds,
}

pub(crate) fn health(code: Code, headers: &HeaderMap) -> Health {
    match code {
        Code::ResourceExhausted if headers.contains_key(LANE_SHED) => Health::Sheds,
        _ if breaks(code) => Health::Fails,
        _ => Health::Works,
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
    fn what_is_a_failure() {
        for code in all() {
            let expected = match code {
                Code::Unavailable => Verdict::Failure(Pushback::None),
                // Waited out, but not repeated.
                Code::ResourceExhausted => Verdict::Failure(Pushback::Stop),
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

    /// Of an exact list UNAVAILABLE and RESOURCE_EXHAUSTED are no more than others.
    #[test]
    fn exact_codes_are_the_only_failures() {
        for listed in all() {
            let codes = Codes::exactly([listed]);
            for code in all() {
                let expected = match code == listed {
                    true => Verdict::Failure(Pushback::None),
                    false => Verdict::Answer,
                };
                assert_eq!(fault(code, codes), expected, "{code:?} of {listed:?}");
                let expected = if code == Code::Ok {
                    Verdict::Answer
                } else {
                    expected
                };
                let judged = status(code, &HeaderMap::new(), codes);
                assert_eq!(judged, expected, "{code:?} of {listed:?}");
            }
        }
        for code in all() {
            assert_eq!(fault(code, Codes::exactly([])), Verdict::Answer);
            let failure = Verdict::Failure(Pushback::None);
            assert_eq!(fault(code, Codes::default()), failure);
        }
    }

    #[test]
    fn pushback_makes_no_failure() {
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("grpc-retry-pushback-ms"),
            HeaderValue::from_static("-1"),
        );
        let judge = |code| status(code, &headers, Codes::default());
        // What another attempt would only repeat stays an answer.
        assert_eq!(judge(Code::InvalidArgument), Verdict::Answer);
        assert_eq!(judge(Code::Ok), Verdict::Answer);
    }
}
