//! What a build script gets: files, constants, options, errors.

// clippy.toml lets tests unwrap, but not the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use prost_reflect::{DescriptorPool, ReflectMessage, Value};
use tempfile::TempDir;

const KV: &str = r#"
    syntax = "proto3";
    package acme.kv;
    import "hedge/v1/hedge.proto";
    import "types.proto";
    service Kv {
      option (hedge.v1.service) = { quantile: 0.9 };
      // Reads one key.
      rpc Get(acme.types.Key) returns (acme.types.Key) {
        option idempotency_level = IDEMPOTENT;
        option (hedge.v1.method).idempotent = false;
      }
    }
"#;
const TYPES: &str = r#"
    syntax = "proto3";
    package acme.types;
    message Key { string key = 1; }
"#;
const BARE: &str = r#"
    syntax = "proto3";
    message Ping {}
    service Health { rpc Check(Ping) returns (Ping); }
"#;

fn project(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join("proto").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir(dir.path().join("out")).unwrap();
    dir
}

fn compile(project: &TempDir, protos: &[&str]) -> Result<(), tonic_hedge_build::Error> {
    let include = project.path().join("proto");
    let protos: Vec<_> = protos.iter().map(|name| include.join(name)).collect();
    tonic_hedge_build::configure()
        .out_dir(project.path().join("out"))
        .compile(&protos, &[include])
}

fn output(project: &TempDir, name: &str) -> String {
    fs::read_to_string(project.path().join("out").join(name)).unwrap()
}

/// The fields of `extension` in the options of `acme.kv.Kv/Get` or of its service.
fn option(set: &Path, of_service: bool, extension: &str, field: &str) -> Option<Value> {
    let pool = DescriptorPool::decode(fs::read(set).unwrap().as_slice()).unwrap();
    let service = pool.get_service_by_name("acme.kv.Kv").unwrap();
    let options = if of_service {
        service.options()
    } else {
        service.methods().next().unwrap().options()
    };
    let extension = pool.get_extension_by_name(extension).unwrap();
    if !options.has_extension(&extension) {
        return None;
    }
    let value = options.get_extension(&extension).into_owned();
    let value = value.as_message().unwrap();
    assert_eq!(value.descriptor().full_name(), "hedge.v1.Options");
    value
        .has_field_by_name(field)
        .then(|| value.get_field_by_name(field).unwrap().into_owned())
}

#[test]
fn cf12_options_reach_the_file_intact() {
    let project = project(&[("kv.proto", KV), ("types.proto", TYPES)]);
    compile(&project, &["kv.proto"]).unwrap();
    let set = project.path().join("out/acme.kv.descriptors.bin");
    assert_eq!(
        option(&set, false, "hedge.v1.method", "idempotent"),
        Some(Value::Bool(false))
    );
    assert_eq!(
        option(&set, true, "hedge.v1.service", "quantile"),
        Some(Value::F64(0.9))
    );
}

#[test]
fn a_package_with_a_service_gets_the_constant() {
    let project = project(&[
        ("kv.proto", KV),
        ("types.proto", TYPES),
        ("bare.proto", BARE),
    ]);
    compile(&project, &["kv.proto", "bare.proto"]).unwrap();

    let kv = output(&project, "acme.kv.rs");
    assert!(kv.contains(
        r#"FILE_DESCRIPTOR_SET: &[u8] = ::core::include_bytes!("acme.kv.descriptors.bin")"#
    ));
    assert!(
        kv.contains("Reads one key."),
        "comments become documentation"
    );
    let bare = output(&project, "_.rs");
    assert!(bare.contains(r#"include_bytes!("_.descriptors.bin")"#));
    assert!(project.path().join("out/_.descriptors.bin").exists());

    let types = output(&project, "acme.types.rs");
    assert!(!types.contains("FILE_DESCRIPTOR_SET"));
}

#[test]
fn no_code_refers_to_the_options() {
    let project = project(&[("kv.proto", KV), ("types.proto", TYPES)]);
    compile(&project, &["kv.proto"]).unwrap();
    assert!(!project.path().join("out/hedge.v1.rs").exists());
    for name in ["acme.kv.rs", "acme.types.rs"] {
        assert!(!output(&project, name).contains("hedge::"), "{name}");
    }
}

#[test]
fn a_second_run_changes_nothing() {
    let project = project(&[("bare.proto", BARE)]);
    compile(&project, &["bare.proto"]).unwrap();
    let first = output(&project, "_.rs");
    compile(&project, &["bare.proto"]).unwrap();
    assert_eq!(output(&project, "_.rs"), first);
}

#[test]
fn two_compilations_keep_their_sets_apart() {
    let project = project(&[
        ("kv.proto", KV),
        ("types.proto", TYPES),
        ("bare.proto", BARE),
    ]);
    compile(&project, &["kv.proto"]).unwrap();
    compile(&project, &["bare.proto"]).unwrap();
    let set = project.path().join("out/acme.kv.descriptors.bin");
    assert!(option(&set, false, "hedge.v1.method", "idempotent").is_some());
}

#[test]
fn the_constant_needs_no_generated_code() {
    let project = project(&[(
        "empty.proto",
        r#"syntax = "proto3"; package empty; import "google/protobuf/empty.proto";
           service S { rpc M(google.protobuf.Empty) returns (google.protobuf.Empty); }"#,
    )]);
    let include = project.path().join("proto");
    for _ in 0..2 {
        tonic_hedge_build::configure()
            .tonic(
                tonic_hedge_build::tonic_prost_build::configure()
                    .build_client(false)
                    .build_server(false),
            )
            .out_dir(project.path().join("out"))
            .compile(&[include.join("empty.proto")], &[&include])
            .unwrap();
        let code = output(&project, "empty.rs");
        assert_eq!(code.matches("FILE_DESCRIPTOR_SET").count(), 1);
    }
}

#[test]
fn a_copy_on_the_include_path_goes_first() {
    let newer = tonic_hedge_build::HEDGE_PROTO.replace("first_message", "first_answer");
    let project = project(&[
        ("hedge/v1/hedge.proto", &newer),
        (
            "a.proto",
            r#"syntax = "proto3"; package a; import "hedge/v1/hedge.proto"; message A {}
               service S { rpc M(A) returns (stream A) { option (hedge.v1.method).first_answer = true; } }"#,
        ),
    ]);
    compile(&project, &["a.proto"]).unwrap();
}

#[test]
fn errors_name_file_and_position() {
    let of = |name: &str, text: &str| {
        let project = project(&[(name, text)]);
        let error = compile(&project, &[name]).unwrap_err();
        assert_eq!(format!("{error:?}"), error.to_string());
        let io: std::io::Error = error.into();
        io.to_string()
    };
    let with_option = |option: &str| {
        of(
            "a.proto",
            &format!(
                "syntax = \"proto3\";\nimport \"hedge/v1/hedge.proto\";\nmessage A {{}}\nservice S {{\n  rpc M(A) returns (A) {{ {option} }}\n}}\n"
            ),
        )
    };

    // A misspelt field, status code, or switch.
    for option in [
        "option (hedge.v1.method).idempotant = false;",
        "option (hedge.v1.method) = { retryable_codes: [UNAVAIL] };",
        "option (hedge.v1.method) = { retryable_codes: [OK] };",
        "option (hedge.v1.method).hedge = MAYBE;",
        "option (hedge.v1.methods).idempotent = false;",
    ] {
        let text = with_option(option);
        assert!(text.starts_with("a.proto:5:"), "{text}");
    }

    let text = of(
        "b.proto",
        "syntax = \"proto3\";\nmessage B {\n  Nope n = 1;\n}\n",
    );
    assert!(text.starts_with("b.proto:3:"), "{text}");
    let text = of("c.proto", "syntax = \"proto3\";\nmessage C {\n");
    assert!(text.starts_with("c.proto:"), "{text}");
    let text = of("d.proto", "syntax = \"proto3\";\nimport \"gone.proto\";\n");
    assert!(
        text.starts_with("d.proto:") && text.contains("gone.proto"),
        "{text}"
    );

    let project = project(&[]);
    let text = compile(&project, &["e.proto"]).unwrap_err().to_string();
    assert!(text.contains("e.proto"), "{text}");
}
