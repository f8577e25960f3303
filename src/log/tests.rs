//! Each form of the line, and both ways to carry it.

use super::*;
use AttemptKind::{Hedge, Original, Replacement, Retry};
use AttemptOutcome::{Detached, Discarded, Failed, Won};

const A: &str = "10.0.0.1:50051";
const B: &str = "10.0.0.2:50051";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn started(attempts: &[(AttemptKind, &str, u64)]) -> CallLogBuilder {
    let mut log = CallLogBuilder::default();
    for (number, (kind, endpoint, at)) in attempts.iter().enumerate() {
        let hedge = *kind == Hedge;
        log.launched(number as u32, *kind, hedge, Arc::from(*endpoint), ms(*at));
    }
    log
}

#[test]
fn one_attempt() {
    let mut log = started(&[(Original, A, 0)]);
    log.ended(0, Won(Code::Ok), ms(5));
    let log = log.finish(ms(5));
    assert_eq!(
        log.to_string(),
        "1 attempt in 5 ms: original 10.0.0.1:50051 OK (5 ms)"
    );
    assert!(!log.hedged() && !log.hedge_won());
    assert_eq!(log.attempts().len(), 1);
    assert_eq!(log.attempts()[0].outcome(), Won(Code::Ok));
}

#[test]
fn a_hedge_wins() {
    let mut log = started(&[(Original, A, 0), (Hedge, B, 40)]);
    log.ended(1, Won(Code::Ok), ms(41));
    log.ended(0, Discarded, ms(41));
    let log = log.finish(ms(41));
    assert_eq!(
        log.to_string(),
        "2 attempts in 41 ms: original 10.0.0.1:50051 discarded (41 ms); \
         hedge 10.0.0.2:50051 OK (1 ms, started at 40 ms)"
    );
    assert!(log.hedged() && log.hedge_won());
    assert_eq!(log.duration(), ms(41));
    let hedge = &log.attempts()[1];
    assert_eq!((hedge.number(), hedge.kind()), (1, Hedge));
    assert_eq!((hedge.start(), hedge.duration()), (ms(40), ms(1)));
    assert_eq!(hedge.endpoint(), B);
}

#[test]
fn a_hedge_loses() {
    let mut log = started(&[(Original, A, 0), (Hedge, B, 40)]);
    log.ended(0, Won(Code::NotFound), ms(50));
    log.ended(1, Detached, ms(50));
    let log = log.finish(ms(50));
    assert_eq!(
        log.to_string(),
        "2 attempts in 50 ms: original 10.0.0.1:50051 NOT_FOUND (50 ms); \
         hedge 10.0.0.2:50051 detached (10 ms, started at 40 ms)"
    );
    assert!(log.hedged() && !log.hedge_won());
}

#[test]
fn replacement_and_retry() {
    let mut log = started(&[(Original, A, 0), (Replacement, B, 0), (Retry, A, 30)]);
    log.ended(0, Failed(Code::Unavailable), Duration::ZERO);
    log.ended(1, Failed(Code::ResourceExhausted), ms(8));
    log.ended(2, Won(Code::Ok), ms(32));
    let log = log.finish(ms(32));
    assert_eq!(
        log.to_string(),
        "3 attempts in 32 ms: original 10.0.0.1:50051 UNAVAILABLE (0 ms); \
         replacement 10.0.0.2:50051 RESOURCE_EXHAUSTED (8 ms, started at 0 ms); \
         retry 10.0.0.1:50051 OK (2 ms, started at 30 ms)"
    );
    assert!(!log.hedged());
}

#[test]
fn an_original_that_waited_says_so() {
    let mut log = started(&[(Original, A, 7)]);
    log.ended(0, Won(Code::Ok), ms(9));
    assert_eq!(
        log.finish(ms(9)).to_string(),
        "1 attempt in 9 ms: original 10.0.0.1:50051 OK (2 ms, started at 7 ms)"
    );
}

#[test]
fn what_is_in_flight_at_the_end_is_discarded() {
    let log = started(&[(Original, A, 0), (Hedge, B, 40)]).finish(ms(100));
    assert_eq!(
        log.to_string(),
        "2 attempts in 100 ms: original 10.0.0.1:50051 discarded (100 ms); \
         hedge 10.0.0.2:50051 discarded (60 ms, started at 40 ms)"
    );
}

#[test]
fn no_attempt() {
    let log = CallLogBuilder::default().finish(Duration::ZERO);
    assert_eq!(log.to_string(), "0 attempts in 0 ms");
    assert!(log.attempts().is_empty());
}

#[test]
fn times() {
    let text = |micros| Millis(Duration::from_micros(micros)).to_string();
    assert_eq!(text(9), "0 ms");
    assert_eq!(text(200), "0.2 ms");
    assert_eq!(text(236), "0.23 ms");
    assert_eq!(text(999), "0.99 ms");
    assert_eq!(text(1_499), "1 ms");
    assert_eq!(text(1_500), "2 ms");
    assert_eq!(text(12_345_000), "12345 ms");
}

#[test]
fn in_a_response() {
    let mut response = Response::new(());
    assert!(response.call_log().is_none() && !response.hedged());
    let log = started(&[(Original, A, 0), (Hedge, B, 1)]).finish(ms(2));
    response.extensions_mut().insert(log);
    assert!(response.hedged());
    assert_eq!(response.call_log().map(|log| log.attempts().len()), Some(2));
}

#[test]
fn in_a_status_before_its_own_source() {
    let mut status = Status::unavailable("gone");
    assert!(CallLog::of_status(&status).is_none());
    let cause = std::io::Error::other("connection refused");
    status.set_source(Arc::new(cause));

    let log = started(&[(Original, A, 0)]).finish_failed(ms(3), &mut status);
    assert_eq!(log.duration(), ms(3));

    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "gone")
    );
    let log = CallLog::of_status(&status).unwrap();
    assert_eq!(log.duration(), ms(3));
    assert_eq!(log.source().unwrap().to_string(), "connection refused");

    // A layer that boxes the error and turns it back keeps the log within reach.
    let wrapped = Status::from_error(Box::new(Wrapper(status)));
    assert_eq!(wrapped.code(), Code::Unavailable);
    assert!(CallLog::of_status(&wrapped).is_some());
}

#[test]
fn te6_debug_shows_no_metadata() {
    let mut status = Status::unavailable("secret message");
    status
        .metadata_mut()
        .insert("authorization", "secret".parse().unwrap());
    status.set_source(Arc::new(std::io::Error::other("cause")));
    let log = started(&[(Original, A, 0)]).finish_failed(ms(3), &mut status);
    assert_eq!(
        format!("{log:?}"),
        "CallLog(1 attempt in 3 ms: original 10.0.0.1:50051 discarded (3 ms))"
    );
}

#[derive(Debug)]
struct Wrapper(Status);
impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}
impl Error for Wrapper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
