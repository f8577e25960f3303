//! Values of the options, their bounds, their precedence, and two sets that disagree.

use std::time::Duration;

use proptest::prelude::*;
use tonic::Code;
use tonic_hedge_engine::policy::{Hedge, Timing};

use super::*;
use crate::descriptor::{IdempotencyLevel, Options, Repeatability, merge};

const SAFE: &str = "option idempotency_level = NO_SIDE_EFFECTS;";

#[test]
fn all_fields_are_read() {
    let methods = read_service(&format!(
        "rpc Call(M) returns (stream M) {{ {SAFE} option (hedge.v1.method) = {{
           hedge: ON quantile: 0.9 minimum_delay: {{ nanos: 5000000 }} maximum_delay: {{ seconds: 2 }}
           max_concurrent: 3 max_attempts: 4 retryable_codes: [INTERNAL, ABORTED, INTERNAL]
           first_message: true }}; }}"
    ))
    .unwrap();
    let expected = Options {
        idempotent: None,
        hedge: Some(true),
        quantile: Some(0.9),
        minimum_delay: Some(Duration::from_millis(5)),
        maximum_delay: Some(Duration::from_secs(2)),
        max_concurrent: Some(3),
        max_attempts: Some(4),
        retryable_codes: vec![Code::Aborted, Code::Internal],
        first_message: Some(true),
    };
    assert_eq!(methods[0].method, expected);
    assert_eq!(methods[0].service, Options::default());

    let hedge = expected.tune(Hedge::on_failure());
    assert_eq!(hedge.timing, Timing::Quantile(0.9));
    assert_eq!(hedge.minimum_delay, Duration::from_millis(5));
    assert_eq!(hedge.maximum_delay, Some(Duration::from_secs(2)));
    assert_eq!(hedge.max_concurrent, 3);
    let untouched = Hedge::after(Duration::from_millis(7)).max_concurrent(5);
    assert_eq!(Options::default().tune(untouched.clone()), untouched);
}

#[test]
fn options_given_piece_by_piece_are_one() {
    let methods = read_service(&format!(
        "rpc Call(M) returns (M) {{ {SAFE}
           option (hedge.v1.method).quantile = 0.9;
           option (hedge.v1.method).hedge = OFF; }}"
    ))
    .unwrap();
    assert_eq!(methods[0].method.quantile, Some(0.9));
    assert_eq!(methods[0].method.hedge, Some(false));

    // As two occurrences on the wire; packed and unpacked codes.
    let first = wire::Options {
        idempotent: Some(false),
        ..wire::Options::default()
    };
    let mut options = method_options(Some(2), &first);
    let second = [0x40, 13, 0x42, 2, 10, 1];
    options.extend([0xda, 0xe7, 0x18, second.len() as u8]);
    options.extend(second);
    let methods = read(&encode(&[by_hand(&[IMPORT], &[&options])])).unwrap();
    assert_eq!(methods[0].repeatability(), Repeatability::Vetoed);
    assert_eq!(
        methods[0].method.retryable_codes,
        [Code::Cancelled, Code::Aborted, Code::Internal]
    );
}

#[test]
fn a_method_goes_before_its_service_field_by_field() {
    let methods = read_service(&format!(
        "option (hedge.v1.service) = {{ quantile: 0.9 max_attempts: 5 retryable_codes: [ABORTED] hedge: OFF }};
         rpc Own(M) returns (M) {{ {SAFE} option (hedge.v1.method) = {{ hedge: ON max_attempts: 2 retryable_codes: [INTERNAL] }}; }}
         rpc Plain(M) returns (M);"
    ))
    .unwrap();
    let own = method(&methods, "/t.S/Own").options();
    assert_eq!(
        (own.hedge, own.quantile, own.max_attempts),
        (Some(true), Some(0.9), Some(2))
    );
    assert_eq!(own.retryable_codes, [Code::Internal]);
    let plain = method(&methods, "/t.S/Plain").options();
    assert_eq!((plain.hedge, plain.max_attempts), (Some(false), Some(5)));
    assert_eq!(plain.retryable_codes, [Code::Aborted]);
}

#[test]
fn a_value_out_of_bounds_names_the_method() {
    for (option, fault) in [
        ("quantile: 1.2", "Hedge.quantile: 1.2 is not in [0.5, 1)"),
        ("quantile: nan", "Hedge.quantile: NaN is not in [0.5, 1)"),
        (
            "max_concurrent: 1",
            "Hedge.max_concurrent: 1 is not at least 2",
        ),
        ("max_attempts: 0", "max_attempts: 0 is not in [1, 16]"),
        (
            "minimum_delay: {}",
            "Hedge.minimum_delay: 0ns is not at least 1ms",
        ),
        (
            "minimum_delay: { seconds: -1 }",
            "minimum_delay: -1s and 0ns is not",
        ),
        (
            "minimum_delay: { nanos: -1 }",
            "minimum_delay: 0s and -1ns is not",
        ),
        (
            "maximum_delay: { nanos: 1000000000 }",
            "maximum_delay: 0s and 1000000000ns is not",
        ),
        (
            "maximum_delay: { seconds: 315576000001 }",
            "maximum_delay: 315576000001s and 0ns is not",
        ),
        (
            "minimum_delay: { seconds: 2 } maximum_delay: { seconds: 1 }",
            "Hedge.maximum_delay: 1s is not at least Hedge.minimum_delay",
        ),
    ] {
        let at_method = error_of(&format!(
            "rpc Call(M) returns (M) {{ {SAFE} option (hedge.v1.method) = {{ {option} }}; }}"
        ));
        assert!(at_method.starts_with("method /t.S/Call: "), "{at_method}");
        assert!(at_method.contains(fault), "{at_method}");
        let at_service = error_of(&format!(
            "option (hedge.v1.service) = {{ {option} }}; rpc Call(M) returns (M);"
        ));
        assert!(at_service.starts_with("service t.S: "), "{at_service}");
        assert!(at_service.contains(fault), "{at_service}");
    }

    // Each fine alone, and not together.
    let text = error_of(&format!(
        "option (hedge.v1.service) = {{ minimum_delay: {{ seconds: 2 }} }};
         rpc Call(M) returns (M) {{ {SAFE} option (hedge.v1.method) = {{ maximum_delay: {{ seconds: 1 }} }}; }}"
    ));
    assert!(
        text.starts_with("method /t.S/Call: Hedge.maximum_delay"),
        "{text}"
    );
}

#[test]
fn a_number_without_a_name_is_refused() {
    let of = |options: wire::Options| {
        let set = encode(&[by_hand(&[IMPORT], &[&method_options(Some(1), &options)])]);
        read(&set).unwrap_err().to_string()
    };
    for code in [0, 17, -1] {
        let text = of(wire::Options {
            retryable_codes: vec![code],
            ..wire::Options::default()
        });
        assert!(
            text.starts_with("method /t.S/Call: retryable_codes"),
            "{text}"
        );
    }
    for hedge in [0, 3] {
        let text = of(wire::Options {
            hedge: Some(hedge),
            ..wire::Options::default()
        });
        assert!(text.starts_with("method /t.S/Call: hedge"), "{text}");
    }
}

#[test]
fn hedging_what_cannot_be_hedged_names_the_method() {
    for option in ["hedge: ON", "quantile: 0.9", "max_concurrent: 2"] {
        let field = option.split(':').next().unwrap();
        let option = format!("option (hedge.v1.method) = {{ {option} }};");

        for not_idempotent in [
            format!("rpc Call(M) returns (M) {{ {option} }}"),
            format!(
                "rpc Call(M) returns (M) {{ {SAFE} {option} option (hedge.v1.method).idempotent = false; }}"
            ),
            format!(
                "option (hedge.v1.service).idempotent = false; rpc Call(M) returns (M) {{ {SAFE} {option} }}"
            ),
        ] {
            let text = error_of(&not_idempotent);
            let expected = format!(
                "method /t.S/Call: (hedge.v1.method).{field} hedges it, but it is not idempotent"
            );
            assert!(text.starts_with(&expected), "{text}");
        }
        for (request, reply, first) in [
            ("", "stream ", ""),
            (
                "",
                "stream ",
                "option (hedge.v1.method).first_message = false;",
            ),
            ("stream ", "", ""),
            (
                "stream ",
                "stream ",
                "option (hedge.v1.method).first_message = true;",
            ),
        ] {
            let text = error_of(&format!(
                "rpc Call({request}M) returns ({reply}M) {{ {SAFE} {option} {first} }}"
            ));
            let expected =
                format!("method /t.S/Call: (hedge.v1.method).{field} hedges it, but it streams");
            assert!(text.starts_with(&expected), "{text}");
        }
        read_service(&format!(
            "rpc Call(M) returns (stream M) {{ {SAFE} {option} option (hedge.v1.method).first_message = true; }}"
        ))
        .unwrap();
        // By another's word that it is idempotent.
        read_service(&format!(
            "option (hedge.v1.service).idempotent = true; rpc Call(M) returns (M) {{ {option} }}"
        ))
        .unwrap();
    }

    let text = error_of(
        "rpc Call(M) returns (stream M) { option (hedge.v1.method).first_message = true; }",
    );
    assert!(
        text.contains("first_message hedges it, but it is not idempotent"),
        "{text}"
    );

    // What doesn't hedge is no one's error: a service's default, `OFF`, a limit on retries.
    read_service(
        "option (hedge.v1.service) = { hedge: ON quantile: 0.9 max_concurrent: 2 };
         rpc Put(M) returns (M);
         rpc Up(stream M) returns (M);
         rpc Off(M) returns (M) { option (hedge.v1.method) = { hedge: OFF quantile: 0.9 }; }
         rpc Few(M) returns (M) { option (hedge.v1.method) = { max_attempts: 2 retryable_codes: [ABORTED] }; }",
    )
    .unwrap();
}

#[test]
fn cf10_two_sets_disagree_and_the_stricter_wins() {
    let one = |options: &str| {
        let mut methods = read_service(&format!(
            "rpc Call(M) returns (M) {{ {options} option (hedge.v1.method).max_attempts = 9; }}"
        ))
        .unwrap();
        methods.remove(0)
    };
    let safe = one(SAFE);
    let unset = one("");
    let veto =
        one("option idempotency_level = IDEMPOTENT; option (hedge.v1.method).idempotent = false;");
    let off = one(&format!("{SAFE} option (hedge.v1.method).hedge = OFF;"));
    let tuned = one(&format!(
        "{SAFE} option (hedge.v1.method) = {{ hedge: ON quantile: 0.9 minimum_delay: {{ seconds: 5 }} }};"
    ));
    let slow = one(&format!(
        "{SAFE} option (hedge.v1.method) = {{ hedge: ON quantile: 0.99 maximum_delay: {{ seconds: 1 }} }};"
    ));
    let streams = MethodDescriptor {
        server_streaming: true,
        ..safe.clone()
    };

    let merged = |a: &MethodDescriptor, b: &MethodDescriptor| {
        let both = merge([vec![a.clone()], vec![b.clone()]]);
        assert_eq!(
            both,
            merge([vec![b.clone(), a.clone()]]),
            "order must not matter"
        );
        assert_eq!(both.len(), 1);
        both[0].clone()
    };
    assert_eq!(merged(&safe, &safe), safe);
    assert_eq!(
        merged(&safe, &unset).repeatability(),
        Repeatability::Unmarked
    );
    assert_eq!(merged(&safe, &veto).repeatability(), Repeatability::Vetoed);
    assert_eq!(merged(&unset, &veto).repeatability(), Repeatability::Vetoed);
    assert_eq!(merged(&safe, &off).options().hedge, Some(false));
    assert_eq!(merged(&tuned, &off).options().hedge, Some(false));
    assert!(!merged(&safe, &streams).is_raceable());

    let both = merged(&tuned, &slow).options();
    assert_eq!(both.hedge, Some(true));
    assert_eq!(both.quantile, Some(0.99));
    assert_eq!(both.minimum_delay, Some(Duration::from_secs(5)));
    assert_eq!(
        both.maximum_delay,
        Some(Duration::from_secs(5)),
        "no ceiling under the floor"
    );

    // A stricter default of the other set's service counts as well.
    let by_service = MethodDescriptor {
        service: Options {
            quantile: Some(0.99),
            ..Options::default()
        },
        ..safe.clone()
    };
    assert_eq!(merged(&tuned, &by_service).options().quantile, Some(0.99));
}

#[test]
fn cf10_two_files_of_one_set_disagree() {
    let veto = wire::Options {
        idempotent: Some(false),
        ..wire::Options::default()
    };
    let marked = by_hand(&[], &[&[0x90, 0x02, 0x02]]);
    let vetoed = by_hand(&[IMPORT], &[&method_options(Some(2), &veto)]);
    for set in [[marked.clone(), vetoed.clone()], [vetoed, marked]] {
        let methods = read(&encode(&set)).unwrap();
        assert_eq!(methods.len(), 1);
        assert_eq!(methods[0].repeatability(), Repeatability::Vetoed);
    }
}

fn options() -> impl Strategy<Value = Options> {
    let flag = || proptest::option::of(any::<bool>());
    let delay = || proptest::option::of((1_u64..9).prop_map(Duration::from_secs));
    let codes = proptest::sample::subsequence(vec![Code::Aborted, Code::Internal], 0..=2);
    (
        flag(),
        flag(),
        flag(),
        delay(),
        delay(),
        proptest::option::of(2_u32..5),
        codes,
    )
        .prop_map(
            |(idempotent, hedge, first_message, minimum_delay, maximum_delay, max, codes)| {
                Options {
                    idempotent,
                    hedge,
                    quantile: max.map(|n| 1.0 - 1.0 / f64::from(n + 2)),
                    minimum_delay,
                    maximum_delay,
                    max_concurrent: max,
                    max_attempts: max,
                    retryable_codes: codes,
                    first_message,
                }
            },
        )
}

fn descriptor() -> impl Strategy<Value = MethodDescriptor> {
    let flags = (any::<bool>(), any::<bool>());
    (flags, 0..4_i32, options(), options()).prop_map(|((up, down), level, method, service)| {
        MethodDescriptor {
            path: "/t.S/Call".to_owned(),
            client_streaming: up,
            server_streaming: down,
            level: IdempotencyLevel::from_number(Some(level)),
            http_get: false,
            method,
            service,
        }
    })
}

proptest! {
    /// Whatever a merged descriptor permits, each of its sources permits.
    #[test]
    fn cf10_a_merge_permits_nothing_new(sources in proptest::collection::vec(descriptor(), 1..4)) {
        let merged = merge([sources.clone()]).remove(0);
        let repeatable = |m: &MethodDescriptor| m.repeatability() == Repeatability::Repeatable;
        prop_assert_eq!(repeatable(&merged), sources.iter().all(repeatable));
        let all = merged.options();
        for source in &sources {
            let own = source.options();
            prop_assert!(source.is_raceable() || !merged.is_raceable());
            prop_assert!(all.hedge != Some(true) || own.hedge == Some(true));
            prop_assert!(own.hedge != Some(false) || all.hedge == Some(false));
            prop_assert!(own.quantile.is_none_or(|q| all.quantile >= Some(q)));
            prop_assert!(own.minimum_delay.is_none_or(|d| all.minimum_delay >= Some(d)));
            prop_assert!(own.max_attempts.is_none_or(|n| all.max_attempts.is_some_and(|m| m <= n)));
            prop_assert!(all.retryable_codes.iter().all(|code| own.retryable_codes.contains(code)));
        }
    }
}
