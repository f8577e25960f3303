//! The table as Markdown: a row for each case, a column for each peer, in a cell the modes that passed.

use std::fmt::Write as _;

use crate::cells::{Cells, Verdict};

/// One table for each family of peers, then the reasons of what is impossible.
pub(crate) fn of(cells: &Cells) -> String {
    let mut reasons = Vec::new();
    let mut text = String::new();
    let mut families = cells.families();
    // By their first peers, as they ran.
    let order = cells.peers();
    families.sort_by_key(|family| order.iter().position(|peer| family.first() == Some(peer)));
    for family in families {
        if !text.is_empty() {
            text.push('\n');
        }
        row(
            &mut text,
            "case",
            family.iter().map(|peer| (*peer).to_owned()),
        );
        row(&mut text, "---", family.iter().map(|_| "---".to_owned()));
        for case in cells.cases_of(&family) {
            let columns = family
                .iter()
                .map(|peer| cell(cells, peer, case, &mut reasons));
            row(&mut text, &format!("`{case}`"), columns);
        }
    }
    for (index, reason) in reasons.iter().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        // A `String` takes every write.
        let _ = writeln!(text, "{gap}{}. {reason}", index + 1);
    }
    text
}

fn row(text: &mut String, first: &str, columns: impl Iterator<Item = String>) {
    let _ = write!(text, "| {first} |");
    for column in columns {
        let _ = write!(text, " {column} |");
    }
    text.push('\n');
}

/// The modes that passed, those that failed, and the number of each reason why one is impossible.
fn cell(cells: &Cells, peer: &str, case: &str, reasons: &mut Vec<String>) -> String {
    let (mut passed, mut failed, mut impossible) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells.of(peer, case) {
        match &cell.verdict {
            Verdict::Passed => passed.push(cell.mode),
            Verdict::Failed => failed.push(cell.mode),
            Verdict::Impossible(reason) => {
                let known = reasons.iter().position(|known| known == reason);
                let number = known.unwrap_or_else(|| {
                    reasons.push(reason.clone());
                    reasons.len() - 1
                });
                let mark = format!("- ({})", number + 1);
                if !impossible.contains(&mark) {
                    impossible.push(mark);
                }
            }
        }
    }
    let mut parts = Vec::new();
    if !passed.is_empty() {
        parts.push(passed.join(" "));
    }
    if !failed.is_empty() {
        parts.push(format!("FAILED: {}", failed.join(" ")));
    }
    parts.extend(impossible);
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_its_words() {
        let lines = "\
go one off ok
go one on FAILED: broken
go one forced impossible: no such thing
go one slow ok
go two off impossible: no such thing
go two on impossible: not here
java two off ok
tls wrong off ok
";
        let table = "\
| case | go | java |
| --- | --- | --- |
| `one` | off slow, FAILED: on, - (1) |  |
| `two` | - (1), - (2) | off |

| case | tls |
| --- | --- |
| `wrong` | off |

1. no such thing
2. not here
";
        assert_eq!(of(&Cells::read(lines)), table);
    }
}
