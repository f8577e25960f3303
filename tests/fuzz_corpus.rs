//! Every file of `fuzz/corpus` through its fuzz target, without a fuzzing engine; and the targets
//! themselves: each has a corpus, a program and a place in `fuzz/Cargo.toml`.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use tonic_hedge::fuzz;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 6] = [
    ("descriptor_set", fuzz::descriptor_set),
    ("pushback", fuzz::pushback),
    ("service_config", fuzz::service_config),
    ("status", fuzz::status),
    ("timeout", fuzz::timeout),
    ("trailers", fuzz::trailers),
];

fn replay(name: &str) {
    let (_, target) = TARGETS.iter().find(|(it, _)| *it == name).unwrap();
    let mut files: Vec<_> = fs::read_dir(folder().join("corpus").join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{name} has no corpus");
    for file in files {
        // Shown only if it fails.
        println!("{}", file.display());
        let input = fs::read(&file).unwrap();
        target(&input);
        // What it was cut from, and what it is the head of.
        target(&input[..input.len() / 2]);
        target(&[&input[..], &input].concat());
    }
}

#[test]
fn cf7_descriptor_set() {
    replay("descriptor_set");
}

#[test]
fn case_11_pushback() {
    replay("pushback");
}

#[test]
fn cf1_service_config() {
    replay("service_config");
}

#[test]
fn fa9_status() {
    replay("status");
}

#[test]
fn dl5_timeout() {
    replay("timeout");
}

#[test]
fn fa11_trailers() {
    replay("trailers");
}

#[test]
fn each_target_is_replayed() {
    let expected: BTreeSet<_> = TARGETS.map(|(name, _)| name.to_owned()).into();
    assert_eq!(names("corpus"), expected);
    let programs = names("fuzz_targets");
    let programs: BTreeSet<_> = programs
        .iter()
        .map(|file| file.trim_end_matches(".rs").to_owned())
        .collect();
    assert_eq!(programs, expected);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for name in expected {
        assert!(
            manifest.contains(&format!("[[bin]]\nname = \"{name}\"\n")),
            "{name}"
        );
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(of: &str) -> BTreeSet<String> {
    fs::read_dir(folder().join(of))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
