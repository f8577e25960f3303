//! README.md says what is so: its programs are the files that CI builds, its defaults the code's.
//!
//! A block of plain `rust` is a doctest of the crate (`src/lib.rs`); every other block of code
//! has the path of its file in a comment above it.

use std::{collections::BTreeMap, fmt::Debug, fs, path::Path};

use tonic_hedge::{BreakerPolicy, BudgetPolicy, Hedge, HedgedChannel, Retry, WinRate};

/// Languages of blocks that are no code: commands, and what they print.
const NO_CODE: [&str; 2] = ["sh", "text"];

/// A block of code in fences.
struct Block<'a> {
    /// The line before it.
    above: &'a str,
    language: &'a str,
    text: String,
}

#[test]
fn blocks_are_doctests_or_files() {
    let readme = read("README.md");
    let mut files = Vec::new();
    for block in blocks(&readme) {
        let named = block.above.strip_prefix("<!-- ");
        match named.and_then(|name| name.strip_suffix(" -->")) {
            Some(path) => {
                assert_eq!(block.text, read(path), "{path}");
                files.push(path);
            }
            None => assert!(
                block.language == "rust" || NO_CODE.contains(&block.language),
                "nothing checks this block:\n{}",
                block.text
            ),
        }
    }
    assert_eq!(
        files,
        [
            "examples/swap/proto/search.proto",
            "examples/swap/build.rs",
            "examples/swap/src/main.rs",
        ]
    );
}

/// All fields of all policies, read from how they print.
#[test]
fn defaults_are_the_codes() {
    let mut expected = BTreeMap::new();
    // What a constructor's argument sets has no default.
    let mut policy = |name, value: &dyn Debug, but: &[&str]| {
        for (field, default) in fields(value) {
            if !but.contains(&field.as_str()) {
                expected.insert((name, field), default);
            }
        }
    };
    policy("Hedge", &Hedge::at(0.95), &["timing"]);
    policy("WinRate", &WinRate::at_least(0.5), &["floor"]);
    policy("Retry", &Retry::default(), &[]);
    policy("BudgetPolicy", &BudgetPolicy::default(), &[]);
    policy("BreakerPolicy", &BreakerPolicy::default(), &[]);
    for (field, default) in fields(&HedgedChannel::builder()) {
        if ["max_attempts", "buffer_limit", "response_limit"].contains(&field.as_str()) {
            expected.insert(("Builder", field), default);
        }
    }

    let readme = read("README.md");
    let rows = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`'));
            let mut cell = || cells.next().unwrap_or_default();
            ((cell(), cell().to_owned()), normal(cell()))
        });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected);
}

/// Every local link leads somewhere.
#[test]
fn links_lead_somewhere() {
    for document in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/coming-from.md",
        "docs/observability.md",
        "docs/performance.md",
        "fuzz/README.md",
        "tests/README.md",
        "interop/README.md",
    ] {
        let text = read(document);
        let folder = Path::new(document).parent().unwrap();
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (target, _heading) = target.split_once('#').unwrap_or((target, ""));
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(folder)
                .join(target);
            assert!(path.exists(), "{document}: {target}");
        }
    }
}

/// `tests/README.md` has a row for each public bug, and names what is there: each file of
/// `tests/regressions` in the row of its number, and no file that is gone.
#[test]
fn public_bugs_are_where_the_table_says() {
    let table = read("tests/README.md");
    let rows: BTreeMap<_, _> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| B")?.split_once(" | "))
        .collect();
    assert!(rows.len() > 70, "{}", rows.len());

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let main = read("tests/regressions/main.rs");
    for file in fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some((number, _)) = name.strip_prefix('b').and_then(|name| name.split_once('_')) else {
            assert_eq!(name, "main.rs");
            continue;
        };
        let row = rows
            .get(number)
            .unwrap_or_else(|| panic!("{name} has no row"));
        assert!(row.contains(&format!("`regressions/{name}`")), "{name}");
        let module = name.strip_suffix(".rs").unwrap();
        assert!(
            main.contains(&format!("mod {module};")),
            "{name} is not run"
        );
    }

    for (number, row) in rows {
        let named = row.split('`').skip(1).step_by(2);
        for path in named.filter(|path| path.ends_with(".rs")) {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let there = root.join(path).exists() || root.join("tests").join(path).exists();
            assert!(there, "B{number}: {path}");
        }
    }
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn blocks(readme: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut above = "";
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text = lines.by_ref().take_while(|line| *line != "```");
            let text = text.flat_map(|line| [line, "\n"]).collect();
            blocks.push(Block {
                above,
                language,
                text,
            });
        }
        above = line;
    }
    blocks
}

/// The fields of a struct and their values, by its pretty debug form.
fn fields(value: &dyn Debug) -> Vec<(String, String)> {
    let text = format!("{value:#?}");
    let own = text.lines().filter_map(|line| line.strip_prefix("    "));
    own.filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.trim_end_matches(',').split_once(": "))
        .map(|(field, value)| (field.to_owned(), normal(value)))
        .collect()
}

/// One spelling for a value in the README and in code: `10 ms` is `10ms`, `2.0` is `2`.
fn normal(value: &str) -> String {
    let value = value.replace(' ', "").to_lowercase();
    value.strip_suffix(".0").unwrap_or(&value).to_owned()
}
