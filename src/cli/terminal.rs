//! Columns of the terminal, and texts that fit.

use std::env;

use console::{Term, truncate_str};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit() {
        assert_eq!(cut("write BOOT-B", 12), "write BOOT-B");
        assert_eq!(cut("write BOOT-B", 8), "write B…");
    }
}
