//! What a run's lines say of each case, peer and mode. Lines of checks that have no mode are left out.

use interop::Mode;

/// The cells, in the order of the lines.
#[derive(Debug, Default)]
pub(crate) struct Cells(Vec<Cell>);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Whom the case ran against: the line's first word.
    pub(crate) peer: String,
    pub(crate) case: String,
    pub(crate) mode: &'static str,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// And why.
    Impossible(String),
}

impl Cells {
    /// Reads the lines that [`interop::Report`] prints.
    pub(crate) fn read(lines: &str) -> Self {
        Self(lines.lines().filter_map(Cell::read).collect())
    }

    pub(crate) fn peers(&self) -> Vec<&str> {
        once_each(self.0.iter().map(|cell| cell.peer.as_str()))
    }

    pub(crate) fn cases_of(&self, peers: &[&str]) -> Vec<&str> {
        let theirs = self.0.iter().filter(|c| peers.contains(&c.peer.as_str()));
        once_each(theirs.map(|cell| cell.case.as_str()))
    }

    pub(crate) fn of(&self, peer: &str, case: &str) -> impl Iterator<Item = &Cell> {
        let of_case = move |cell: &&Cell| cell.peer == peer && cell.case == case;
        self.0.iter().filter(of_case)
    }

    /// The peers that share a case, directly or through a third, stand in one table.
    pub(crate) fn families(&self) -> Vec<Vec<&str>> {
        let mut families: Vec<Vec<&str>> = Vec::new();
        for peer in self.peers() {
            let cases = self.cases_of(&[peer]);
            let related = |family: &Vec<&str>| {
                let known = self.cases_of(family);
                cases.iter().any(|case| known.contains(case))
            };
            let (related, mut others): (Vec<_>, Vec<_>) = families.into_iter().partition(related);
            let mut family = related.concat();
            family.push(peer);
            others.push(family);
            families = others;
        }
        families
    }
}

impl Cell {
    fn read(line: &str) -> Option<Self> {
        let (peer, rest) = word(line)?;
        let (case, rest) = word(rest)?;
        let (mode, verdict) = word(rest)?;
        let mode = Mode::ALL.into_iter().find(|m| m.name() == mode)?;
        let verdict = match verdict {
            "ok" => Verdict::Passed,
            failed if failed.starts_with("FAILED: ") => Verdict::Failed,
            other => Verdict::Impossible(other.strip_prefix("impossible: ")?.to_owned()),
        };
        Some(Self {
            peer: peer.to_owned(),
            case: case.to_owned(),
            mode: mode.name(),
            verdict,
        })
    }
}

/// The first word, and what follows it.
fn word(line: &str) -> Option<(&str, &str)> {
    let (word, rest) = line.split_once(' ')?;
    Some((word, rest.trim_start()))
}

fn once_each<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_line_is_read() {
        let read = |line| Cell::read(line).map(|c| (c.peer, c.case, c.mode, c.verdict));
        let cell = |mode, verdict| Some(("go".to_owned(), "large".to_owned(), mode, verdict));
        assert_eq!(
            read("go       large      off     ok"),
            cell("off", Verdict::Passed)
        );
        assert_eq!(
            read("go       large      slow    FAILED: 1 is false: ok"),
            cell("slow", Verdict::Failed)
        );
        assert_eq!(
            read("go       large      forced  impossible: no gzip"),
            cell("forced", Verdict::Impossible("no gzip".to_owned()))
        );
        for other in [
            "metrics  the target is up      ok",
            "etcd     one off and on        ok",
            "go    could not be prepared: FAILED",
            "12 passed, 3 failed",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn peers_that_share_a_case_are_a_family() {
        let lines = ["a one", "tls wrong", "b two", "c one", "c two", "d three"];
        let lines = lines.map(|line| format!("{line} off ok\n")).concat();
        let cells = Cells::read(&lines);
        let families = cells.families();
        assert_eq!(families, [vec!["tls"], vec!["a", "b", "c"], vec!["d"]]);
    }
}
