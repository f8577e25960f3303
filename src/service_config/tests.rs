//! CF1: what is accepted, as what, and what is refused, with which words; CF9: whose entry it is.

use std::time::Duration;

use tonic::Code;
use tonic_hedge_engine::policy::{BudgetPolicy, Hedge, Retry};

use super::*;

/// An entry for all methods, with these fields.
fn entry(fields: &str) -> String {
    format!(r#"{{"methodConfig": [{{"name": [{{}}], {fields}}}]}}"#)
}

fn retrying(fields: &str) -> String {
    entry(&format!(r#""retryPolicy": {{{fields}}}"#))
}

fn hedging(fields: &str) -> String {
    entry(&format!(r#""hedgingPolicy": {{{fields}}}"#))
}

fn throttled(fields: &str) -> String {
    format!(r#"{{"retryThrottling": {{{fields}}}}}"#)
}

fn accepted(text: &str) -> ServiceConfig {
    ServiceConfig::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    match ServiceConfig::parse(text) {
        Ok(config) => panic!("{text}: {config:?}"),
        Err(error) => error.to_string(),
    }
}

fn policy(text: &str) -> Policy {
    let config = accepted(text);
    let matched = config.of("any.Service/Method").unwrap();
    matched.config.policy.clone().unwrap()
}

fn budget(text: &str) -> BudgetPolicy {
    accepted(text).budget().unwrap().clone()
}

fn tokens(tokens: f64, ratio: f64) -> BudgetPolicy {
    let policy = BudgetPolicy::default().capacity(tokens);
    policy.initial(tokens).ratio(ratio)
}

/// Five fields of a `retryPolicy`, one of them replaced by `field` with `value`; left out for "".
fn retrying_with(field: &str, value: &str) -> String {
    let fields = [
        ("maxAttempts", "3"),
        ("initialBackoff", r#""0.1s""#),
        ("maxBackoff", r#""1s""#),
        ("backoffMultiplier", "2"),
        ("retryableStatusCodes", "[14]"),
    ];
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, usual)| (name, if name == field { value } else { usual }))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:?}: {value}"))
        .collect();
    retrying(&fields.join(", "))
}

#[test]
fn cf1_a_retry_policy() {
    let read = policy(&retrying_with("", ""));
    assert_eq!(read.hedge, None);
    assert_eq!(read.max_attempts, 3);
    let retry = Retry::default()
        .base(Duration::from_millis(100))
        .cap(Duration::from_secs(1))
        .factor(2.0);
    assert_eq!(read.retry, retry);
    assert_eq!(read.codes, Codes::exactly([Code::Unavailable]));
}

#[test]
fn cf1_a_hedging_policy() {
    let read = policy(&hedging(
        r#""maxAttempts": 4, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["UNAVAILABLE", 13]"#,
    ));
    let hedge = Hedge::after(Duration::from_millis(500)).max_concurrent(4);
    assert_eq!(read.hedge, Some(hedge));
    assert_eq!(read.max_attempts, 4);
    let codes = Codes::exactly([Code::Unavailable, Code::Internal]);
    assert_eq!(read.codes, codes);
    // The next attempt after a failure waits for nothing.
    assert_eq!(read.retry.backoff(0, 0.9), Duration::ZERO);
    assert_eq!(read.retry.backoff(3, 0.9), Duration::ZERO);

    let defaults = policy(&hedging(r#""maxAttempts": 2"#));
    assert_eq!(defaults.hedge, Some(Hedge::immediately()));
    assert_eq!(defaults.codes, Codes::exactly([]));
    let none = policy(&hedging(r#""maxAttempts": 2, "nonFatalStatusCodes": []"#));
    assert_eq!(none, defaults);
}

/// Whatever is accepted can be built with: the bounds of our own policies are wider or met.
#[test]
fn cf1_the_extremes_are_policies() {
    let longest = r#""315576000000s""#;
    for text in [
        retrying_with("backoffMultiplier", "0.001"),
        retrying_with("backoffMultiplier", "1e300"),
        retrying_with("initialBackoff", longest),
        retrying_with("maxBackoff", longest),
    ] {
        let retry = policy(&text).retry;
        for step in 0..5 {
            assert!(retry.backoff(step, 0.999) <= retry.cap, "{text}");
        }
    }
    let hedge = policy(&hedging(
        r#""maxAttempts": 99, "hedgingDelay": "315576000000s""#,
    ));
    hedge.hedge.unwrap().validate().unwrap();
    for fields in [
        r#""maxTokens": 1, "tokenRatio": 0.0001"#,
        r#""maxTokens": 1000, "tokenRatio": 1e9"#,
    ] {
        budget(&throttled(fields)).validate().unwrap();
    }
}

#[test]
fn cf1_attempts() {
    for (value, attempts) in [
        ("2", 2),
        ("5", 5),
        ("6", 5),
        (r#""3""#, 3),
        ("2.0", 2),
        ("2147483647", 5),
    ] {
        let of_retry = policy(&retrying_with("maxAttempts", value));
        assert_eq!(of_retry.max_attempts, attempts, "{value}");
        let of_hedge = policy(&hedging(&format!(r#""maxAttempts": {value}"#)));
        assert_eq!(of_hedge.max_attempts, attempts, "{value}");
        assert_eq!(of_hedge.hedge.unwrap().max_concurrent, attempts, "{value}");
    }
    for (value, why) in [
        ("1", "1 is not at least 2"),
        ("0", "0 is not at least 2"),
        ("-3", "-3 is not at least 2"),
        ("2.5", "2.5 is not a 32-bit integer"),
        ("2147483648", "2147483648 is not a 32-bit integer"),
        (r#""2.0""#, r#""2.0" is not a 32-bit integer"#),
        (r#""two""#, r#""two" is not a 32-bit integer"#),
        ("true", "true is not a 32-bit integer"),
        ("null", "null is not a 32-bit integer"),
        ("", "is missing"),
    ] {
        assert_eq!(
            refused(&retrying_with("maxAttempts", value)),
            format!("methodConfig[0].retryPolicy.maxAttempts: {why}")
        );
        let fields = match value {
            "" => String::new(),
            value => format!(r#""maxAttempts": {value}"#),
        };
        assert_eq!(
            refused(&hedging(&fields)),
            format!("methodConfig[0].hedgingPolicy.maxAttempts: {why}")
        );
    }
}

#[test]
fn cf1_codes() {
    let all = r#"[1, "unknown", "Invalid_Argument", 4.0, "NOT_FOUND", 16, 16]"#;
    let codes = Codes::exactly([
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::Unauthenticated,
    ]);
    assert_eq!(
        policy(&retrying_with("retryableStatusCodes", all)).codes,
        codes
    );
    for number in 1..=16 {
        let name = super::at::NAMES[number as usize];
        let text = retrying_with("retryableStatusCodes", &format!("[{name:?}]"));
        assert_eq!(
            policy(&text).codes,
            Codes::exactly([Code::from_i32(number)])
        );
    }
    for (value, why) in [
        ("[0]", "[0]: 0 is not a code of a failure"),
        (r#"[14, "ok"]"#, r#"[1]: "ok" is not a code of a failure"#),
        ("[17]", "[0]: 17 is not a gRPC status code"),
        ("[-1]", "[0]: -1 is not a gRPC status code"),
        ("[14.5]", "[0]: 14.5 is not a gRPC status code"),
        (r#"["NOPE"]"#, r#"[0]: "NOPE" is not a gRPC status code"#),
        (r#"["14"]"#, r#"[0]: "14" is not a gRPC status code"#),
        ("[null]", "[0]: null is not a gRPC status code"),
        (r#""UNAVAILABLE""#, r#": "UNAVAILABLE" is not a list"#),
    ] {
        assert_eq!(
            refused(&retrying_with("retryableStatusCodes", value)),
            format!("methodConfig[0].retryPolicy.retryableStatusCodes{why}")
        );
        assert_eq!(
            refused(&hedging(&format!(
                r#""maxAttempts": 2, "nonFatalStatusCodes": {value}"#
            ))),
            format!("methodConfig[0].hedgingPolicy.nonFatalStatusCodes{why}")
        );
    }
    for (value, why) in [("[]", "[] is not at least one code"), ("", "is missing")] {
        assert_eq!(
            refused(&retrying_with("retryableStatusCodes", value)),
            format!("methodConfig[0].retryPolicy.retryableStatusCodes: {why}")
        );
    }
}

#[test]
fn cf1_durations() {
    for (text, expected) in [
        ("42s", Duration::from_secs(42)),
        ("0s", Duration::ZERO),
        ("-0s", Duration::ZERO),
        ("0.1s", Duration::from_millis(100)),
        ("2.1s", Duration::from_millis(2_100)),
        ("1.s", Duration::from_secs(1)),
        ("1.000000001s", Duration::new(1, 1)),
        ("1.010s", Duration::from_millis(1_010)),
        ("007s", Duration::from_secs(7)),
        ("315576000000s", Duration::from_secs(315_576_000_000)),
    ] {
        let config = accepted(&entry(&format!(r#""timeout": {text:?}"#)));
        let timeout = config.of("a.B/C").unwrap().config.timeout;
        assert_eq!(timeout, Some(expected), "{text}");
        let hedge = policy(&hedging(&format!(
            r#""maxAttempts": 2, "hedgingDelay": {text:?}"#
        )));
        assert_eq!(hedge.hedge, Some(Hedge::after(expected).max_concurrent(2)));
    }
    for text in [
        "",
        "s",
        "1",
        "50ms",
        "1S",
        "1m",
        ".5s",
        "-1s",
        "-0.5s",
        "1.0000000001s",
        "1.-5s",
        "1.5.5s",
        "--1s",
        " 1s",
        "1 s",
        "1e3s",
        "0x1s",
        "٣s",
        "315576000001s",
        "99999999999999999999s",
    ] {
        let why = r#"is not a duration of 0 or more, like "0.25s""#;
        assert_eq!(
            refused(&entry(&format!(r#""timeout": {text:?}"#))),
            format!("methodConfig[0].timeout: {text:?} {why}")
        );
        assert_eq!(
            refused(&hedging(&format!(
                r#""maxAttempts": 2, "hedgingDelay": {text:?}"#
            ))),
            format!("methodConfig[0].hedgingPolicy.hedgingDelay: {text:?} {why}")
        );
    }
    for field in ["initialBackoff", "maxBackoff"] {
        for (value, why) in [
            (r#""0s""#, r#""0s" is not more than 0s"#),
            ("1", r#"1 is not a duration of 0 or more, like "0.25s""#),
            ("", "is missing"),
        ] {
            assert_eq!(
                refused(&retrying_with(field, value)),
                format!("methodConfig[0].retryPolicy.{field}: {why}")
            );
        }
    }
}

#[test]
fn cf1_multipliers() {
    for (value, factor) in [("2", 2.0), ("1.3", 1.3), ("0.5", 0.5), (r#""3""#, 3.0)] {
        let read = policy(&retrying_with("backoffMultiplier", value));
        assert_eq!(read.retry.factor, factor);
    }
    for (value, why) in [
        ("0", "0 is not more than 0"),
        ("-1", "-1 is not more than 0"),
        (r#""NaN""#, r#""NaN" is not a number"#),
        (r#""inf""#, r#""inf" is not a number"#),
        (r#""x""#, r#""x" is not a number"#),
        ("", "is missing"),
    ] {
        assert_eq!(
            refused(&retrying_with("backoffMultiplier", value)),
            format!("methodConfig[0].retryPolicy.backoffMultiplier: {why}")
        );
    }
}

#[test]
fn cf1_throttling() {
    let both = |most: &str, ratio: &str| {
        throttled(&format!(r#""maxTokens": {most}, "tokenRatio": {ratio}"#))
    };
    for (most, ratio, expected) in [
        ("10", "0.1", tokens(5.0, 0.1)),
        ("1000", "1", tokens(500.0, 1.0)),
        // A whole token is the least that there can be to spend.
        ("1", "0.5", tokens(1.0, 0.5)),
        ("3", "0.5466", tokens(1.5, 0.546)),
        ("4.0", "0.57", tokens(2.0, 0.57)),
        (r#""20""#, r#""0.25""#, tokens(10.0, 0.25)),
        ("10", "0.0009", tokens(5.0, 0.0)),
        ("10", "7.5", tokens(5.0, 1.0)),
    ] {
        assert_eq!(budget(&both(most, ratio)), expected, "{most} {ratio}");
    }
    for (value, why) in [
        ("0", "0 is not an integer in (0, 1000]"),
        ("-1", "-1 is not an integer in (0, 1000]"),
        ("1001", "1001 is not an integer in (0, 1000]"),
        ("2.5", "2.5 is not an integer in (0, 1000]"),
        (r#""many""#, r#""many" is not a number"#),
    ] {
        let error = refused(&both(value, "1"));
        assert_eq!(error, format!("retryThrottling.maxTokens: {why}"));
    }
    for (value, why) in [
        ("0", "0 is not more than 0"),
        ("-0.1", "-0.1 is not more than 0"),
        ("null", "null is not a number"),
    ] {
        let error = refused(&both("10", value));
        assert_eq!(error, format!("retryThrottling.tokenRatio: {why}"));
    }
    for (fields, why) in [
        (r#""tokenRatio": 1"#, "maxTokens: is missing"),
        (r#""maxTokens": 1"#, "tokenRatio: is missing"),
    ] {
        let error = refused(&throttled(fields));
        assert_eq!(error, format!("retryThrottling.{why}"));
    }
}

#[test]
fn cf1_names() {
    let named = |names: &str| format!(r#"{{"methodConfig": [{{}}, {{"name": {names}}}]}}"#);
    for (names, why) in [
        (
            r#"[{"method": "M"}]"#,
            r#"[0]: has the method "M" and no service"#,
        ),
        (
            r#"[{"service": "", "method": "M"}]"#,
            r#"[0]: has the method "M" and no service"#,
        ),
        (r#"[{"service": 1}]"#, "[0].service: 1 is not a string"),
        (
            r#"[{"service": "S", "method": null}]"#,
            "[0].method: null is not a string",
        ),
        (r#"["S"]"#, r#"[0]: "S" is not an object"#),
        (r#"{"service": "S"}"#, r#": {"service":"S"} is not a list"#),
        // The same thing twice, also where it is not written the same.
        (
            r#"[{}, {"service": "", "method": ""}]"#,
            "[1]: is named before",
        ),
        (
            r#"[{"service": "S"}, {"service": "S"}]"#,
            "[1]: is named before",
        ),
        (
            r#"[{"service": "S", "method": "M"}, {"service": "S"}, {"service": "S", "method": "M"}]"#,
            "[2]: is named before",
        ),
    ] {
        let error = refused(&named(names));
        assert_eq!(error, format!("methodConfig[1].name{why}"));
    }
    let twice = r#"{"methodConfig": [{"name": [{"service": "S"}]}, {"name": [{"service": "S"}]}]}"#;
    assert_eq!(refused(twice), "methodConfig[1].name[0]: is named before");
}

#[test]
fn cf1_whole_configs() {
    for text in [
        "{}",
        r#"{"methodConfig": []}"#,
        r#"{"methodConfig": [{}, {"name": []}]}"#,
        r#"{"loadBalancingPolicy": "round_robin", "loadBalancingConfig": [{"any": {}}], "ours": null,
            "healthCheckConfig": {"serviceName": "s"},
            "methodConfig": [{"name": [{"ours": 1}], "waitForReady": true, "ours": [],
                "maxRequestMessageBytes": 12345, "maxResponseMessageBytes": "98765"}]}"#,
    ] {
        let config = accepted(text);
        assert_eq!(config.budget(), None);
        let policy = config.of("a.B/C").and_then(|it| it.config.policy.as_ref());
        assert_eq!(policy, None);
    }
    for (text, why) in [
        ("[]", "[] is not an object"),
        ("null", "null is not an object"),
        (r#"{"methodConfig": {}}"#, "methodConfig: {} is not a list"),
        (
            r#"{"methodConfig": [1]}"#,
            "methodConfig[0]: 1 is not an object",
        ),
        (
            r#"{"retryThrottling": 1}"#,
            "retryThrottling: 1 is not an object",
        ),
        (
            r#"{"healthCheckConfig": 1}"#,
            "healthCheckConfig: 1 is not an object",
        ),
        (
            r#"{"methodConfig": [{"retryPolicy": null}]}"#,
            "methodConfig[0].retryPolicy: null is not an object",
        ),
        (
            r#"{"methodConfig": [{"waitForReady": "yes"}]}"#,
            r#"methodConfig[0].waitForReady: "yes" is not true or false"#,
        ),
        (
            r#"{"methodConfig": [{"maxRequestMessageBytes": -1}]}"#,
            "methodConfig[0].maxRequestMessageBytes: -1 is not at least 0",
        ),
        (
            &retrying_with("maxAttempts", r#"2, "perAttemptRecvTimeout": "5""#),
            r#"methodConfig[0].retryPolicy.perAttemptRecvTimeout: "5" is not a duration of 0 or more, like "0.25s""#,
        ),
        (
            &entry(r#""hedgingPolicy": {"maxAttempts": 2}, "retryPolicy": {}"#),
            "methodConfig[0].hedgingPolicy: there is a retryPolicy too: one of them",
        ),
    ] {
        assert_eq!(refused(text), why);
    }
}

/// All or nothing: what is good beside what is bad is refused with it, named or not.
#[test]
fn cf1_all_or_nothing() {
    let text = r#"{"methodConfig": [
        {"name": [{"service": "S"}], "hedgingPolicy": {"maxAttempts": 2}},
        {"hedgingPolicy": {"maxAttempts": 1}}
    ]}"#;
    assert_eq!(
        refused(text),
        "methodConfig[1].hedgingPolicy.maxAttempts: 1 is not at least 2"
    );
}

#[test]
fn cf1_no_json() {
    for (text, why) in [
        (
            "",
            "not read as JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            "{\n \"a\": 1,\n}",
            "not read as JSON: trailing comma at line 3 column 1",
        ),
        (
            r#"{"a": {"b": 1, "c": 2, "b": 3}}"#,
            r#"not read as JSON: "b" is given twice at line 1 column 26"#,
        ),
        (
            "{} {}",
            "not read as JSON: trailing characters at line 1 column 4",
        ),
        (
            r#"{"a": NaN}"#,
            "not read as JSON: expected value at line 1 column 7",
        ),
    ] {
        assert_eq!(refused(text), why);
    }
    let deep = "[".repeat(100_000);
    assert!(refused(&deep).contains("recursion limit"));
}

/// CF9: a method's own entry, then its service's, then that of all; whole.
#[test]
fn cf9_precedence() {
    let config = accepted(
        r#"{"methodConfig": [
            {"name": [{}], "timeout": "1s", "hedgingPolicy": {"maxAttempts": 2}},
            {"name": [{"service": "a.S"}, {"service": "a.T", "method": "M"}], "timeout": "2s"},
            {"name": [{"service": "a.S", "method": "M"}], "hedgingPolicy": {"maxAttempts": 3}}
        ]}"#,
    );
    for (name, timeout, attempts, exact) in [
        ("a.S/M", None, Some(3), true),
        ("a.S/N", Some(2), None, false),
        ("a.T/M", Some(2), None, true),
        ("a.T/N", Some(1), Some(2), false),
        ("a.S.M/M", Some(1), Some(2), false),
        ("a.S", Some(1), Some(2), false),
        ("a.S/", Some(2), None, false),
        ("/", Some(1), Some(2), false),
        ("", Some(1), Some(2), false),
    ] {
        let matched = config.of(name).unwrap();
        let Matched { config, exact: is } = matched;
        assert_eq!(config.timeout, timeout.map(Duration::from_secs), "{name}");
        let policy = config.policy.as_ref();
        assert_eq!(policy.map(|it| it.max_attempts), attempts, "{name}");
        assert_eq!(is, exact, "{name}");
    }
    let none = accepted(r#"{"methodConfig": [{"name": [{"service": "S"}]}]}"#);
    assert_eq!(none.of("T/M"), None);
}
