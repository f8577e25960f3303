//! The call log: every attempt of one call with its endpoint, times and outcome, in one line.
//!
//! It rides in the response's extensions, or as the [source](std::error::Error::source) of an
//! error status. It holds endpoint names, numbers and codes: no header, no message.

use std::{error::Error, fmt, mem, sync::Arc, time::Duration};

use tonic::{Code, Response, Status};

use crate::{nanos::Nanos, sealed::Sealed};

/// What happened to each attempt of a call.
///
/// Cheap to clone. It prints as one line, like
/// `2 attempts in 41 ms: original 10.0.0.1:50051 discarded (41 ms); hedge 10.0.0.2:50051 OK (1 ms, started at 40 ms)`.
/// Its [`source`](Error::source) is what the status that carries it had as its source before.
///
/// # Examples
///
/// ```
/// use tonic_hedge::{CallLog, ResponseExt};
///
/// fn report<T>(result: &Result<tonic::Response<T>, tonic::Status>) {
///     let log = match result {
///         Ok(response) => response.call_log(),
///         Err(status) => CallLog::of_status(status),
///     };
///     if let Some(log) = log.filter(|log| log.hedged()) {
///         println!("{log}");
///     }
/// }
/// # report::<()>(&Err(tonic::Status::unavailable("")));
/// ```
#[derive(Clone)]
pub struct CallLog {
    attempts: Logged,
    duration: Duration,
    /// Kept only for its source, which the log replaced.
    before: Option<Arc<Status>>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLog {
    number: u32,
    kind: AttemptKind,
    /// It is a hedge, or the replacement of one.
    hedge: bool,
    endpoint: Arc<str>,
    start: Nanos,
    duration: Nanos,
    outcome: AttemptOutcome,
}

/// Why an attempt was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptKind {
    /// The call itself: it always goes out.
    Original,
    /// Another attempt was in flight.
    Hedge,
    /// An attempt had failed, and no other was in flight.
    Retry,
    /// An attempt had provably not been processed (gRFC A6's transparent retry).
    Replacement,
}

/// How an attempt ended, as known when its call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// Its answer became the call's: OK, or a status that another attempt would only repeat.
    Won(Code),
    /// It failed in a way that another attempt could better.
    Failed(Code),
    /// It was cancelled, since another attempt had won or the call had ended.
    Discarded,
    /// As discarded, but it runs to its end with its answer thrown away, to spare the
    /// connection a reset.
    Detached,
}

/// Reads the call log of a call's result: of a response, of a status, or of the `Result` of both.
///
/// ```
/// use tonic_hedge::ResponseExt as _;
///
/// fn count(result: &Result<tonic::Response<()>, tonic::Status>) -> (u32, u32) {
///     (result.hedged().into(), result.hedge_won().into())
/// }
/// # assert_eq!(count(&Err(tonic::Status::unavailable(""))), (0, 0));
/// ```
pub trait ResponseExt: Sealed {
    /// The log of the call; `None` if the result came through no hedged channel.
    fn call_log(&self) -> Option<&CallLog>;

    /// Whether at least one hedge was started for the call.
    fn hedged(&self) -> bool {
        self.call_log().is_some_and(CallLog::hedged)
    }

    /// Whether the call's result is a hedge's.
    fn hedge_won(&self) -> bool {
        self.call_log().is_some_and(CallLog::hedge_won)
    }
}

/// Collects the log while the call runs. That of a call with one attempt allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct CallLogBuilder {
    attempts: Attempts,
}

/// The attempts so far. The common case has its place in the log itself.
#[derive(Debug, Default)]
enum Attempts {
    #[default]
    None,
    One([AttemptLog; 1]),
    Many(Vec<AttemptLog>),
}

/// The attempts of a call that has ended, cheap to clone.
#[derive(Clone, Debug)]
enum Logged {
    None,
    One([AttemptLog; 1]),
    Many(Arc<[AttemptLog]>),
}

/// The duration of an attempt that has not ended: no call lasts as long.
const IN_FLIGHT: Nanos = Nanos::NEVER;

// === impl CallLog ===

impl CallLog {
    /// The log of a call that failed, from the sources of its status; `None` if the status came
    /// through no hedged channel.
    pub fn of_status(status: &Status) -> Option<&Self> {
        let mut source = status.source();
        while let Some(error) = source {
            if let Some(log) = error.downcast_ref() {
                return Some(log);
            }
            source = error.source();
        }
        None
    }

    /// The attempts, in the order in which they started. Empty if none was made, as behind an
    /// open breaker.
    pub fn attempts(&self) -> &[AttemptLog] {
        match &self.attempts {
            Logged::None => &[],
            Logged::One(one) => one,
            Logged::Many(all) => all,
        }
    }

    /// From the start of the call to its result.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Whether at least one hedge was started.
    pub fn hedged(&self) -> bool {
        self.attempts()
            .iter()
            .any(|attempt| attempt.kind == AttemptKind::Hedge)
    }

    /// Whether the call's result is a hedge's, or that of a hedge's replacement.
    pub fn hedge_won(&self) -> bool {
        self.attempts()
            .iter()
            .any(|attempt| attempt.hedge && matches!(attempt.outcome, AttemptOutcome::Won(_)))
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.attempts();
        let plural = if attempts.len() == 1 { "" } else { "s" };
        let duration = Millis(self.duration());
        write!(f, "{} attempt{plural} in {duration}", attempts.len())?;
        for (i, attempt) in attempts.iter().enumerate() {
            write!(f, "{}{attempt}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

/// One line too: a [`Status`] prints its source with `{:?}` even where it is displayed.
impl fmt::Debug for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallLog({self})")
    }
}

impl Error for CallLog {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.before.as_deref().and_then(Error::source)
    }
}

// === impl AttemptLog ===

impl AttemptLog {
    fn ends(&mut self, at: Duration) {
        self.duration = Nanos::of(at.saturating_sub(self.start()));
    }

    /// 0 for the original, then counted up in the order of starts.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Why it was started.
    pub fn kind(&self) -> AttemptKind {
        self.kind
    }

    /// The name of the endpoint that it went to.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// When it started, counted from the start of the call.
    pub fn start(&self) -> Duration {
        self.start.get()
    }

    /// How long it ran; for a detached attempt, until the call ended.
    pub fn duration(&self) -> Duration {
        self.duration.get()
    }

    /// How it ended.
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }
}

impl fmt::Display for AttemptLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = Millis(self.duration());
        write!(f, "{} {} ", self.kind.name(), self.endpoint)?;
        write!(f, "{} ({duration}", self.outcome.name())?;
        // That the original starts with its call is no news, unless it had to wait.
        if self.kind != AttemptKind::Original || self.start() >= Duration::from_millis(1) {
            write!(f, ", started at {}", Millis(self.start()))?;
        }
        f.write_str(")")
    }
}

// === impl AttemptKind, AttemptOutcome ===

impl AttemptKind {
    /// The name that the log and telemetry use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Hedge => "hedge",
            Self::Retry => "retry",
            Self::Replacement => "replacement",
        }
    }
}

impl AttemptOutcome {
    /// The name that the log uses: the status code's, where there is one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Won(code) | Self::Failed(code) => code_name(code),
            Self::Discarded => "discarded",
            Self::Detached => "detached",
        }
    }
}

// === impl ResponseExt ===

impl<T> ResponseExt for Response<T> {
    fn call_log(&self) -> Option<&CallLog> {
        self.extensions().get()
    }
}

impl ResponseExt for Status {
    fn call_log(&self) -> Option<&CallLog> {
        CallLog::of_status(self)
    }
}

impl<T> ResponseExt for Result<Response<T>, Status> {
    fn call_log(&self) -> Option<&CallLog> {
        match self {
            Ok(response) => response.call_log(),
            Err(status) => status.call_log(),
        }
    }
}

// === impl CallLogBuilder ===

impl CallLogBuilder {
    /// Logs what a call's caller does not see of it: an attempt that failed at `info`, unless its
    /// failure is the call's, and one that was given up for another's answer at `debug`.
    pub(crate) fn tell_losers(&self, method: &str) {
        let attempts = self.attempts.as_slice();
        if attempts.len() < 2 {
            return;
        }
        let won = |attempt: &AttemptLog| matches!(attempt.outcome, AttemptOutcome::Won(_));
        let failed = |attempt: &AttemptLog| matches!(attempt.outcome, AttemptOutcome::Failed(_));
        let the_calls = match attempts.iter().any(won) {
            true => None,
            false => attempts.iter().rfind(|attempt| failed(attempt)),
        };
        for attempt in attempts {
            if the_calls.is_some_and(|the_calls| the_calls.number == attempt.number) {
                continue;
            }
            let AttemptLog {
                number, endpoint, ..
            } = attempt;
            let kind = attempt.kind.name();
            match attempt.outcome {
                AttemptOutcome::Won(_) => {}
                AttemptOutcome::Failed(code) => {
                    let status = code_name(code);
                    tracing::info!(method, number, kind, %endpoint, status, "attempt failed");
                }
                AttemptOutcome::Discarded | AttemptOutcome::Detached => {
                    let outcome = attempt.outcome.name();
                    tracing::debug!(method, number, kind, %endpoint, outcome, "attempt discarded");
                }
            }
        }
    }

    /// Attempts so far.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.attempts.as_slice().len()).unwrap_or(u32::MAX)
    }

    /// An attempt starts at `at`, counted from the start of the call. `hedge` is also true of one
    /// that replaces a hedge.
    pub(crate) fn launched(
        &mut self,
        number: u32,
        kind: AttemptKind,
        hedge: bool,
        endpoint: Arc<str>,
        at: Duration,
    ) {
        self.attempts.push(AttemptLog {
            number,
            kind,
            hedge,
            endpoint,
            start: Nanos::of(at),
            duration: IN_FLIGHT,
            outcome: AttemptOutcome::Discarded,
        });
    }

    /// An attempt ended. An attempt that is not told to have ended is discarded at the call's end.
    pub(crate) fn ended(&mut self, number: u32, outcome: AttemptOutcome, at: Duration) {
        let attempts = self.attempts.as_mut_slice();
        let attempt = attempts.iter_mut().find(|attempt| attempt.number == number);
        debug_assert!(
            attempt.is_some(),
            "attempt {number} ended but never started"
        );
        if let Some(attempt) = attempt {
            attempt.ends(at);
            attempt.outcome = outcome;
        }
    }

    /// The log of a call that ended at `at` with a response.
    pub(crate) fn finish(self, at: Duration) -> CallLog {
        self.build(at, None)
    }

    /// Makes the log of a call that ended at `at` with `status` the status's source. A source
    /// that the status has already becomes the log's own.
    pub(crate) fn finish_failed(self, at: Duration, status: &mut Status) -> CallLog {
        let before = status.source().is_some().then(|| Arc::new(status.clone()));
        let log = self.build(at, before);
        status.set_source(Arc::new(log.clone()));
        log
    }

    fn build(mut self, at: Duration, before: Option<Arc<Status>>) -> CallLog {
        for attempt in self.attempts.as_mut_slice() {
            if attempt.duration == IN_FLIGHT {
                attempt.ends(at);
            }
        }
        CallLog {
            attempts: match self.attempts {
                Attempts::None => Logged::None,
                Attempts::One(one) => Logged::One(one),
                Attempts::Many(all) => Logged::Many(all.into()),
            },
            duration: at,
            before,
        }
    }
}

// === impl Attempts ===

impl Attempts {
    fn push(&mut self, attempt: AttemptLog) {
        *self = match mem::take(self) {
            Self::None => Self::One([attempt]),
            Self::One([first]) => Self::Many(vec![first, attempt]),
            Self::Many(mut all) => {
                all.push(attempt);
                Self::Many(all)
            }
        }
    }

    fn as_slice(&self) -> &[AttemptLog] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Many(all) => all,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [AttemptLog] {
        match self {
            Self::None => &mut [],
            Self::One(one) => one,
            Self::Many(all) => all,
        }
    }
}

/// A time in whole milliseconds; below one, to the hundredth, or every call to a near server
/// would take none.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            micros @ 0..1000 => write!(f, "{} ms", (micros / 10) as f64 / 100.0),
            micros => write!(f, "{} ms", (micros + 500) / 1000),
        }
    }
}

/// A code's name as gRPC spells it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests;
