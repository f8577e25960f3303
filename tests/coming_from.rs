//! docs/coming-from.md names no setting that is not there.

use std::{fs, path::Path};

/// Our types that it names, and where their parts are.
const TYPES: [(&str, &str); 10] = [
    ("BudgetPolicy", "engine/src/policy/budget.rs"),
    ("Builder", "src/channel/builder.rs"),
    ("Builder", "src/channel/builder/service_config.rs"),
    ("Classification", "src/hooks/classify.rs"),
    ("EndpointSpec", "src/endpoint/spec.rs"),
    ("Hedge", "engine/src/policy/hedge.rs"),
    ("MethodMeasured", "src/measured.rs"),
    ("MethodPolicy", "src/method/policy.rs"),
    ("RequestExt", "src/request.rs"),
    ("Retry", "engine/src/policy/retry.rs"),
];

/// What the column "here" names besides.
const OTHERS: [&str; 1] = ["tonic::Request::set_timeout"];

#[test]
fn each_setting_is_there() {
    let document = read("docs/coming-from.md");
    let mut checked = 0;
    for code in quoted(&document) {
        let name = code.split('(').next().unwrap();
        let Some((of, item)) = name.split_once("::") else {
            continue;
        };
        let files = TYPES.iter().filter(|(it, _)| *it == of);
        let source: String = files.map(|(_, file)| read(file)).collect();
        if source.is_empty() {
            continue;
        }
        let declared = [
            format!("fn {item}("),
            format!("fn {item}<"),
            format!("pub {item}:"),
            format!("    {item},"),
        ];
        assert!(
            declared.iter().any(|text| source.contains(text)),
            "there is no {code}"
        );
        checked += 1;
    }
    assert!(checked > 50, "{checked} settings");
}

/// Else a wrong name in it would pass for somebody else's.
#[test]
fn the_column_here_names_what_is_ours() {
    let document = read("docs/coming-from.md");
    let rows = document.lines().filter(|line| line.starts_with("| "));
    for row in rows {
        let columns: Vec<_> = row.split(" | ").collect();
        assert_eq!(columns.len(), 3, "{row}");
        for code in quoted(columns[1]).filter(|code| code.contains("::")) {
            let of = code.split("::").next().unwrap();
            assert!(
                TYPES.iter().any(|(it, _)| *it == of) || OTHERS.contains(&code),
                "{code} in {row}"
            );
        }
    }
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
