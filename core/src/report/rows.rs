//! A report as rows of a label and a text, for any width.

use crate::prelude::*;

use crate::text::{printable, wrap};

/// A label, and its text. A row without a label goes on with the one before. No line breaks within a command in
/// backquotes, nor at a no-break space, which is shown as a blank. Those at the beginning indent the whole text.
pub type Row = (&'static str, String);

/// Column at which the texts begin.
const INDENT: usize = 11;
/// Below this many columns a text beside its label would be too narrow to read: it begins behind the label, and goes on
/// below it.
pub const NARROW: usize = 60;
const NARROW_INDENT: usize = 2;
pub const NO_BREAK: char = '\u{a0}';

/// Rows as lines. `columns`: where to wrap them; `None` for one line each.
pub fn lines(rows: &[Row], columns: Option<usize>) -> Vec<String> {
    rows.iter().flat_map(|(label, text)| row(label, &printable(text), columns)).collect()
}

fn row(label: &str, text: &str, columns: Option<usize>) -> Vec<String> {
    let columns = columns.unwrap_or(usize::MAX);
    let (text, further) = (unbroken(text), text.chars().take_while(|c| *c == NO_BREAK).count());
    let lines = match (columns < NARROW, label) {
        (false, label) => wrap(&format!("{label:<INDENT$}"), &text, columns, INDENT + further),
        (true, "") => wrap(&" ".repeat(NARROW_INDENT), &text, columns, NARROW_INDENT + further),
        (true, label) => wrap(&format!("{}: ", label.trim_end_matches(':')), &text, columns, NARROW_INDENT + further),
    };
    lines.into_iter().map(|line| line.trim_end().replace(NO_BREAK, " ")).collect()
}

/// With the commands that stand in backquotes in one piece each, as they are copied.
fn unbroken(text: &str) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    // The last one is not closed.
    let closed = parts.len() - 1;
    parts.iter_mut().take(closed).skip(1).step_by(2).for_each(|part| *part = part.replace(' ', &NO_BREAK.to_string()));
    parts.join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stay_whole_and_lines_hang() {
        let text = "then `installer upgrade --strict` says ` what";
        assert_eq!(row("", text, Some(30)), ["  then", "  `installer upgrade --strict`", "  says ` what"]);
        let text = format!("{NO_BREAK}{NO_BREAK}trial: one two");
        assert_eq!(row("", &text, Some(14)), ["    trial: one", "    two"]);
        assert_eq!(row("", &text, None), [format!("{:13}trial: one two", "")]);
    }
}
