//! Who may be repeated: levels, vetoes, streams.

use super::*;
use crate::descriptor::{IdempotencyLevel, Repeatability};

/// `MethodOptions` with field 34 = `number`.
fn level(number: u8) -> [u8; 3] {
    [0x90, 0x02, number]
}

fn repeatability(options: &[&[u8]]) -> Repeatability {
    let methods = read(&encode(&[by_hand(&[], options)])).unwrap();
    assert_eq!(methods.len(), 1);
    methods[0].repeatability()
}

#[test]
fn the_probe_reads_as_its_comments_say() {
    let methods = read(&probe()).unwrap();
    let seen: Vec<_> = methods
        .iter()
        .map(|m| {
            (
                m.path.rsplit('/').next().unwrap(),
                m.repeatability() == Repeatability::Repeatable,
                m.is_raceable(),
                m.options().hedge,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("Chat", true, false, None),
            ("Get", true, true, None),
            ("Keyed", true, true, None),
            ("Off", true, true, Some(false)),
            ("Put", false, true, None),
            ("Tuned", true, true, None),
            ("Upload", true, false, None),
            ("Vetoed", false, true, None),
            ("Watch", true, false, None),
        ]
    );
}

#[test]
fn cf4_option_values() {
    use Repeatability::{Repeatable, Unmarked};
    assert_eq!(repeatability(&[]), Unmarked);
    assert_eq!(repeatability(&[&level(0)]), Unmarked);
    assert_eq!(repeatability(&[&level(1)]), Repeatable);
    assert_eq!(repeatability(&[&level(2)]), Repeatable);
    assert_eq!(repeatability(&[&level(7)]), Unmarked);
    // -1, in ten bytes.
    let negative = [&[0x90, 0x02][..], &[0xff; 9], &[0x01]].concat();
    assert_eq!(repeatability(&[&negative]), Unmarked);

    // Given twice, the last counts, in one message or in two pieces of it.
    assert_eq!(repeatability(&[&[level(1), level(0)].concat()]), Unmarked);
    assert_eq!(repeatability(&[&level(1), &level(7)]), Unmarked);
    assert_eq!(repeatability(&[&level(0), &level(2)]), Repeatable);

    let read = read(&encode(&[by_hand(&[], &[&level(7)])])).unwrap();
    assert_eq!(read[0].level, IdempotencyLevel::Unknown(7));
}

#[test]
fn cf4_levels_from_the_compiler() {
    let methods = read_service(
        "option (hedge.v1.service) = { max_attempts: 2 };
         rpc Safe(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }
         rpc Idem(M) returns (M) { option idempotency_level = IDEMPOTENT; }
         rpc Said(M) returns (M) { option idempotency_level = IDEMPOTENCY_UNKNOWN; }
         rpc Unset(M) returns (M);",
    )
    .unwrap();
    let level = |name: &str| method(&methods, &format!("/t.S/{name}")).level;
    assert_eq!(level("Safe"), IdempotencyLevel::NoSideEffects);
    assert_eq!(level("Idem"), IdempotencyLevel::Idempotent);
    assert_eq!(level("Said"), IdempotencyLevel::Unspecified);
    assert_eq!(level("Unset"), IdempotencyLevel::Unspecified);
}

#[test]
fn a_veto_beats_the_level_and_a_method_its_service() {
    use Repeatability::{Repeatable, Unmarked, Vetoed};
    // Service, method, level (as text), expected.
    for (service, own, level, expected) in [
        ("", "", "", Unmarked),
        ("", "", "IDEMPOTENT", Repeatable),
        ("", "true", "", Repeatable),
        ("", "false", "NO_SIDE_EFFECTS", Vetoed),
        ("true", "", "", Repeatable),
        ("true", "false", "IDEMPOTENT", Vetoed),
        ("false", "", "IDEMPOTENT", Vetoed),
        ("false", "true", "", Repeatable),
        ("false", "true", "IDEMPOTENT", Repeatable),
    ] {
        let option = |text: &str, value: &str| match value {
            "" => String::new(),
            value => format!("option {text} = {value};"),
        };
        let methods = read_service(&format!(
            "{} rpc Call(M) returns (M) {{ {} {} }}
             rpc Other(M) returns (M) {{ option (hedge.v1.method).max_attempts = 1; }}",
            option("(hedge.v1.service).idempotent", service),
            option("(hedge.v1.method).idempotent", own),
            option("idempotency_level", level),
        ))
        .unwrap();
        let case = format!("service {service:?}, method {own:?}, level {level:?}");
        let call = method(&methods, "/t.S/Call");
        assert_eq!(call.repeatability(), expected, "{case}");
    }
}

#[test]
fn cf6_streaming_marked_idempotent_is_not_raced() {
    let methods = read_service(
        "option (hedge.v1.service) = { idempotent: true hedge: ON quantile: 0.9 };
         rpc Unary(M) returns (M);
         rpc Down(M) returns (stream M);
         rpc First(M) returns (stream M) { option (hedge.v1.method).first_message = true; }
         rpc Up(stream M) returns (M);
         rpc Both(stream M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }",
    )
    .unwrap();
    let raceable = |name: &str| method(&methods, &format!("/t.S/{name}")).is_raceable();
    assert!(raceable("Unary"));
    assert!(raceable("First"));
    for name in ["Down", "Up", "Both"] {
        assert!(!raceable(name), "{name}");
    }

    // A service's default reaches its server streams, but no stream of requests.
    let methods = read_service(
        "option (hedge.v1.service) = { idempotent: true first_message: true };
         rpc Down(M) returns (stream M);
         rpc Both(stream M) returns (stream M);",
    )
    .unwrap();
    assert!(method(&methods, "/t.S/Down").is_raceable());
    assert!(!method(&methods, "/t.S/Both").is_raceable());
}

#[test]
fn a_level_inside_a_foreign_option_does_not_count() {
    let set = compile(&[(
        "t.proto",
        r#"syntax = "proto2"; package t;
           import "google/protobuf/descriptor.proto";
           message M {}
           message Rule {
             optional string get = 2;
             optional int32 level = 34;
             repeated Rule more = 11;
             extensions 100 to 200;
           }
           extend Rule { optional int32 deep = 134; }
           extend google.protobuf.MethodOptions {
             optional Rule http = 72295728;
             repeated string signature = 1051;
             optional int32 near = 50810;
             optional group Grouped = 50812 { optional int32 level = 34; }
           }
           service S {
             rpc Call(M) returns (M) {
               option deprecated = true;
               option (http) = { get: "/v1/x" level: 1 more { get: "/v2/x" level: 2 } [t.deep]: 2 };
               option (signature) = "name";
               option (near) = 2;
               option (grouped) = { level: 2 };
             }
             rpc Safe(M) returns (M) {
               option (http) = { get: "/v1/y" };
               option idempotency_level = NO_SIDE_EFFECTS;
             }
           }"#,
    )]);
    let methods = read(&set).unwrap();
    let call = method(&methods, "/t.S/Call");
    assert_eq!(call.level, IdempotencyLevel::Unspecified);
    assert_eq!(call.repeatability(), Repeatability::Unmarked);
    let safe = method(&methods, "/t.S/Safe");
    assert_eq!(safe.repeatability(), Repeatability::Repeatable);
}

#[test]
fn cf11_proto2_editions_and_unknown_syntaxes() {
    let set = compile(&[(
        "t.proto",
        r#"package t; import "hedge/v1/hedge.proto";
           message M { required string a = 1; optional group G = 2 { optional int32 b = 1; } extensions 100 to max; }
           extend M { optional int32 c = 100; }
           service S {
             rpc Call(M) returns (M) {
               option idempotency_level = IDEMPOTENT;
               option (hedge.v1.method) = { idempotent: false };
             }
           }"#,
    )]);
    assert_eq!(
        read(&set).unwrap()[0].repeatability(),
        Repeatability::Vetoed
    );

    // No compiler for editions here, so by hand: `syntax` (12), `edition` (14), features in the
    // method's own options (35), and the import in `option_dependency` (15) as in edition 2024.
    for edition in [1000_u32, 1001, 99_999] {
        let veto = wire::Options {
            idempotent: Some(false),
            ..wire::Options::default()
        };
        let mut options = method_options(Some(1), &veto);
        options.extend([0x9a, 0x02, 0x02, 0x08, 0x01]);
        let mut file = by_hand(&[], &[&options]);
        file.option_dependency = vec![IMPORT.to_owned()];
        let mut bytes = file.encode_to_vec();
        bytes.extend(b"\x62\x08editions\x70");
        prost::encoding::encode_varint(edition.into(), &mut bytes);
        let mut set = vec![0x0a];
        prost::encoding::encode_varint(bytes.len() as u64, &mut set);
        set.extend(bytes);
        assert_eq!(
            read(&set).unwrap()[0].repeatability(),
            Repeatability::Vetoed
        );
    }
}

/// A rule of `google.api.http` is a declaration only where it is trusted, only if it is a GET, and
/// never against a level or a veto.
#[test]
fn an_http_get_may_be_trusted() {
    let http = "syntax = \"proto3\"; package google.api;
        import \"google/protobuf/descriptor.proto\";
        message HttpRule {
          oneof pattern { string get = 2; string put = 3; string post = 4; string delete = 5;
            string patch = 6; Custom custom = 8; }
          string body = 7;
          repeated HttpRule additional_bindings = 11;
        }
        message Custom { string kind = 1; string path = 2; }
        extend google.protobuf.MethodOptions { HttpRule http = 72295728; }";
    let service = "syntax = \"proto3\"; package t; import \"http.proto\";
        import \"hedge/v1/hedge.proto\";
        message Empty {}
        service S {
          rpc Get(Empty) returns (Empty) { option (google.api.http) = { get: \"/a\" }; }
          rpc More(Empty) returns (Empty) { option (google.api.http) = {
            get: \"/a\" additional_bindings { post: \"/b\" body: \"*\" } }; }
          rpc Post(Empty) returns (Empty) { option (google.api.http) = { post: \"/a\" body: \"*\" }; }
          rpc Head(Empty) returns (Empty) { option (google.api.http) = { custom: { kind: \"HEAD\" path: \"/a\" } }; }
          rpc Unruled(Empty) returns (Empty);
          rpc Vetoed(Empty) returns (Empty) {
            option (google.api.http) = { get: \"/a\" };
            option (hedge.v1.method).idempotent = false;
          }
        }";
    let mut methods = read(&compile(&[("http.proto", http), ("t.proto", service)])).unwrap();
    assert!(
        methods
            .iter()
            .all(|it| it.repeatability() != Repeatability::Repeatable)
    );
    methods
        .iter_mut()
        .for_each(MethodDescriptor::trust_http_get);
    let repeatable = methods
        .iter()
        .filter(|it| it.repeatability() == Repeatability::Repeatable)
        .map(|it| it.path.as_str());
    assert_eq!(repeatable.collect::<Vec<_>>(), ["/t.S/Get", "/t.S/More"]);
}

/// What lies under the number of the HTTP rule need not be one.
#[test]
fn an_unreadable_http_rule_declares_nothing() {
    // Field 72295728 as a length-delimited value of three bytes that are no message.
    let key = (72_295_728_u64 << 3) | 2;
    let mut option = Vec::new();
    prost::encoding::encode_varint(key, &mut option);
    option.extend([3, 0xff, 0xff, 0xff]);
    let mut methods = read(&encode(&[by_hand(&[], &[&option])])).unwrap();
    methods[0].trust_http_get();
    assert_eq!(methods[0].repeatability(), Repeatability::Unmarked);
}
