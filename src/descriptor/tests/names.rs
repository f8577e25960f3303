//! The path of a method is its name in the .proto, untouched.

use super::*;

fn paths(files: &[(&str, &str)]) -> Vec<String> {
    let methods = read(&compile(files)).unwrap();
    methods.into_iter().map(|method| method.path).collect()
}

#[test]
fn cf5_names() {
    let file = |package: &str, service: &str, method: &str| {
        format!(
            "syntax = \"proto3\"; {package} message Empty {{}} service {service} {{ rpc {method}(Empty) returns (Empty); }}"
        )
    };
    for (package, service, method, path) in [
        ("", "Hello", "Hello", "/Hello/Hello"),
        ("package a.b_c.v1;", "Svc", "Get", "/a.b_c.v1.Svc/Get"),
        (
            "package zoo;",
            "Zoo",
            "process_animal",
            "/zoo.Zoo/process_animal",
        ),
        ("package x.Y;", "lower", "getStatus", "/x.Y.lower/getStatus"),
        ("package rpc;", "service", "stream", "/rpc.service/stream"),
        ("package r;", "Self", "Drop", "/r.Self/Drop"),
        ("package r;", "type", "fn", "/r.type/fn"),
        ("package r;", "Import", "Import", "/r.Import/Import"),
    ] {
        assert_eq!(
            paths(&[("t.proto", &file(package, service, method))]),
            [path]
        );
    }

    let long = "M".repeat(1_000);
    let text = file("package t;", "S", &long);
    assert_eq!(paths(&[("t.proto", &text)]), [format!("/t.S/{long}")]);
}

#[test]
fn cf5_prefixes_and_several_services_stay_apart() {
    let set = r#"syntax = "proto3"; package t; message M {}
        service Kv { rpc Watch(M) returns (M) { option idempotency_level = IDEMPOTENT; } rpc WatchAll(M) returns (M); }
        service Watch { rpc Watch(M) returns (stream M); }"#;
    let other = r#"syntax = "proto3"; package t.Kv2; message M {} service Kv { rpc Watch(M) returns (M); }"#;
    let methods = read(&compile(&[("a.proto", set), ("b.proto", other)])).unwrap();
    let repeatable: Vec<_> = methods
        .iter()
        .map(|m| (m.path.as_str(), m.level.is_repeatable()))
        .collect();
    assert_eq!(
        repeatable,
        [
            ("/t.Kv/Watch", true),
            ("/t.Kv/WatchAll", false),
            ("/t.Kv2.Kv/Watch", false),
            ("/t.Watch/Watch", false),
        ]
    );
}

#[test]
fn no_services_is_an_empty_table() {
    let text = r#"syntax = "proto3"; import "hedge/v1/hedge.proto"; message M {}"#;
    assert_eq!(read(&compile(&[("t.proto", text)])).unwrap(), []);
}
