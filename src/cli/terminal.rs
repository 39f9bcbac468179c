//! The abilities of the terminal, and texts that fit.

use std::env;

use console::{Term, truncate_str};
use slipway_core::report::Style;

/// `$COLUMNS` where it is a number of columns, else what the terminal says.
pub fn columns(terminal: &Term) -> Option<u16> {
    let set = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    set.filter(|columns| *columns > 0).or_else(|| terminal.size_checked().map(|(_, columns)| columns))
}

/// Whether it can do no more than print lines.
pub fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Without what there is no room for.
pub fn cut(text: &str, width: usize) -> String {
    truncate_str(text, width, "…").into_owned()
}

/// Columns of stdout; None if it is no terminal.
pub fn columns_of_stdout() -> Option<u16> {
    columns(&Term::stdout()).filter(|columns| *columns > 0)
}

/// Width of the terminal, and whether the locale has box-drawing characters.
pub fn style() -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style::for_terminal(columns_of_stdout(), locale.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit() {
        assert_eq!(cut("write BOOT-B", 12), "write BOOT-B");
        assert_eq!(cut("write BOOT-B", 8), "write B…");
    }
}
