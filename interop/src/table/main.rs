//! The table of a run: which case passed against whom in which mode.
//!
//! `interop-table print LINES`: prints it, from the lines that the programs of the run printed.
//! `interop-table check LINES FILE`: whether FILE has the same between its marks; `write` puts it there.

mod cells;
mod markdown;

use std::{error::Error, fs, process::ExitCode};

use cells::Cells;

/// The marks of a file between which its table stands, each a line.
const BEGIN: &str = "<!-- The table of the last whole run: interop/table writes it. -->\n";
const END: &str = "<!-- End of the table. -->\n";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["print", lines] => print!("{}", table(lines)?),
        ["check", lines, file] => {
            let text = fs::read_to_string(file)?;
            if with_table(&text, &table(lines)?)? != text {
                return Ok(ExitCode::FAILURE);
            }
        }
        ["write", lines, file] => {
            let text = fs::read_to_string(file)?;
            fs::write(file, with_table(&text, &table(lines)?)?)?;
        }
        _ => return Err("usage: interop-table print LINES | check|write LINES FILE".into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(lines: &str) -> Result<String, Box<dyn Error>> {
    Ok(markdown::of(&Cells::read(&fs::read_to_string(lines)?)))
}

/// `text` with this table between its marks.
fn with_table(text: &str, table: &str) -> Result<String, Box<dyn Error>> {
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = marked.ok_or("the file has no marks")?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_table_replaces_the_one_between_the_marks() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let text = with_table(&text, "new\n").unwrap();
        assert_eq!(text, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(with_table(&text, "new\n").unwrap(), text);
        assert!(with_table("no marks", "new").is_err());
    }
}
