//! Sets that are cut, flipped, huge, foreign, or stripped of their extensions.

use proptest::prelude::*;

use super::*;
use crate::descriptor::Repeatability;

const UNUSED: &str = r#"syntax = "proto3"; package t; import "hedge/v1/hedge.proto"; message M {}
    service Lonely { rpc Call(M) returns (M) { option idempotency_level = IDEMPOTENT; } }"#;

#[test]
fn cf7_empty_and_foreign_bytes() {
    let refused = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(refused(b""), "the descriptor set is empty");
    for bytes in [
        &b"syntax = \"proto3\";\npackage t;\n"[..],
        b"{\"file\": []}",
        b"\x7fELF\x02\x01\x01",
        // A set with no file, but an unknown field; one with an empty file.
        b"\x10\x01",
        b"\x0a\x00",
        // Eleven bytes of varint; a length past the end; a group that ends unopened.
        &[0xff; 11],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x0c],
    ] {
        let text = refused(bytes);
        assert!(text.starts_with("not a descriptor set"), "{text}");
    }
    // A file where a set of files is expected.
    let text = refused(&by_hand(&[], &[]).encode_to_vec());
    assert!(text.starts_with("not a descriptor set"), "{text}");
}

#[test]
fn cf7_a_cut_set_is_an_error_or_a_part() {
    let whole = probe();
    let methods = read(&whole).unwrap();
    for end in 0..whole.len() {
        if let Ok(part) = read(&whole[..end]) {
            // Between two files nothing shows; then what is there reads as in the whole.
            for method in part {
                assert!(methods.contains(&method), "cut at {end}");
            }
        }
    }
}

#[test]
fn cf7_deep_and_huge_sets_end() {
    // Groups in groups, and messages in messages, past every sane depth.
    let mut deep = vec![0x7b; 1 << 20];
    assert!(read(&deep).is_err());
    deep.iter_mut().for_each(|byte| *byte = 0x0a);
    assert!(read(&deep).is_err());
    // The most objects for the fewest bytes: files without a byte in them.
    let empty_files: Vec<u8> = [0x0a, 0x00].repeat(1 << 20);
    assert!(read(&empty_files).is_err());

    let too_large = vec![0; super::super::MAX_SET + 1];
    let text = read(&too_large).unwrap_err().to_string();
    assert!(
        text.starts_with("67108865 bytes are no descriptor set"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn cf7_random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }

    #[test]
    fn cf7_flipped_bytes_never_panic(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        // The last file is the one with a service; most flips should hit it.
        let mut set = encode(&[by_hand(&[IMPORT], &[&method_options(
            Some(2),
            &wire::Options { idempotent: Some(false), quantile: Some(0.9), max_attempts: Some(3), ..wire::Options::default() },
        )])]);
        for (at, byte) in flips {
            let at = at.index(set.len());
            set[at] = byte;
        }
        let _ = read(&set);
    }
}

#[test]
fn cf12_a_set_that_lost_its_extensions_is_refused() {
    let text = service(
        "rpc Danger(M) returns (M) { option idempotency_level = IDEMPOTENT; option (hedge.v1.method).idempotent = false; }",
    );
    let compiler = compiler(&[("t.proto", &text)]);
    let whole = compiler.encode_file_descriptor_set();
    assert_eq!(
        read(&whole).unwrap()[0].repeatability(),
        Repeatability::Vetoed
    );

    // Through prost-types, which knows no extension.
    let lossy = compiler.file_descriptor_set().encode_to_vec();
    let error = read(&lossy).unwrap_err().to_string();
    assert!(
        error.starts_with("the descriptor set lost its extensions: t.proto"),
        "{error}"
    );

    // A whole set beside it doesn't vouch for it.
    let probe = probe();
    for both in [[&lossy[..], &probe].concat(), [&probe[..], &lossy].concat()] {
        let error = read(&both).unwrap_err().to_string();
        assert!(error.contains("lost its extensions: t.proto"), "{error}");
    }
    assert!(read(&[&whole[..], &probe].concat()).is_ok());
}

#[test]
fn cf12_a_public_import_is_an_import() {
    let common = r#"syntax = "proto3"; package c; import public "hedge/v1/hedge.proto";"#;
    let user = r#"syntax = "proto3"; package t; import "common.proto"; message M {}
        service S { rpc Danger(M) returns (M) {
          option idempotency_level = IDEMPOTENT; option (hedge.v1.method).idempotent = false; } }"#;
    let compiler = compiler(&[("common.proto", common), ("t.proto", user)]);
    let whole = compiler.encode_file_descriptor_set();
    assert_eq!(
        read(&whole).unwrap()[0].repeatability(),
        Repeatability::Vetoed
    );
    let lossy = compiler.file_descriptor_set().encode_to_vec();
    let error = read(&lossy).unwrap_err().to_string();
    assert!(
        error.contains("lost its extensions: common.proto"),
        "{error}"
    );

    // Without its imports the set doesn't say whose option it is.
    let alone = by_hand(
        &["common.proto"],
        &[&method_options(Some(2), &wire::Options::default())],
    );
    let error = read(&encode(&[alone])).unwrap_err().to_string();
    assert!(
        error.starts_with("method /t.S/Call: it has an option with the number 50811"),
        "{error}"
    );
}

#[test]
fn cf12_a_set_without_its_imports_is_enough() {
    let text = service("rpc Call(M) returns (M) { option (hedge.v1.method).idempotent = true; }");
    let mut compiler = compiler(&[("t.proto", &text)]);
    compiler.include_imports(false);
    let methods = read(&compiler.encode_file_descriptor_set()).unwrap();
    assert_eq!(methods[0].repeatability(), Repeatability::Repeatable);
}

#[test]
fn an_unused_import_is_refused_too() {
    // It can't be told from a loss.
    let error = read(&compile(&[("t.proto", UNUSED)]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("remove an import that is not used"),
        "{error}"
    );
}

#[test]
fn options_that_cannot_be_read_name_their_method() {
    // Field 50811 as a number, as an unreadable message; a level that is a string.
    for options in [
        &[0xd8, 0xe7, 0x18, 0x01][..],
        &[0xda, 0xe7, 0x18, 0x02, 0x0a, 0x7f],
        &[0x92, 0x02, 0x01, 0x31],
        &[0x90],
    ] {
        let error = read(&encode(&[by_hand(&[IMPORT], &[options])])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("method /t.S/Call: its options can't be read: "),
            "{text}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn uninterpreted_options_are_refused_if_they_are_ours() {
    let with = |name: &str| {
        let options = wire::MethodOptions {
            level: Some(1),
            uninterpreted: vec![wire::Uninterpreted {
                name: vec![wire::NamePart {
                    name: name.to_owned(),
                }],
            }],
            ..wire::MethodOptions::default()
        };
        read(&encode(&[by_hand(&[], &[&options.encode_to_vec()])]))
    };
    for ours in ["hedge.v1.method", ".hedge.v1.method", "idempotency_level"] {
        let text = with(ours).unwrap_err().to_string();
        assert!(
            text.starts_with("method /t.S/Call: the compiler left"),
            "{text}"
        );
    }
    let methods = with("acme.note").unwrap();
    assert_eq!(methods[0].repeatability(), Repeatability::Repeatable);
}
