//! A report as rows of a label and a text, for any width.

use crate::prelude::*;

use crate::text::{printable, wrap};

/// A label, and what is so. A row without a label goes on with the one before. No line breaks at a no-break space, which
/// is shown as a blank.
pub type Row = (&'static str, String);

/// Column at which the texts begin.
const INDENT: usize = 11;
/// Below this many columns a text beside its label would be too narrow to read: it begins behind the label, and goes on
/// below it.
const NARROW: usize = 60;
const NARROW_INDENT: usize = 2;
pub const NO_BREAK: char = '\u{a0}';

/// Rows as lines. `columns`: where to wrap them; `None` for one line each.
pub fn lines(rows: &[Row], columns: Option<usize>) -> Vec<String> {
    rows.iter().flat_map(|(label, text)| row(label, &printable(text), columns)).collect()
}

fn row(label: &str, text: &str, columns: Option<usize>) -> Vec<String> {
    let columns = columns.unwrap_or(usize::MAX);
    let lines = match (columns < NARROW, label) {
        (false, label) => wrap(&format!("{label:<INDENT$}"), text, columns, INDENT),
        (true, "") => wrap(&" ".repeat(NARROW_INDENT), text, columns, NARROW_INDENT),
        (true, label) => wrap(&format!("{}: ", label.trim_end_matches(':')), text, columns, NARROW_INDENT),
    };
    lines.into_iter().map(|line| line.trim_end().replace(NO_BREAK, " ")).collect()
}
