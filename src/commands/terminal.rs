//! Abilities of stdout.

use std::env;

use console::Term;
use slipway_core::report::Style;

use crate::cli::terminal;

/// Columns of stdout; None if it is no terminal.
pub fn columns() -> Option<u16> {
    terminal::columns(&Term::stdout()).filter(|columns| *columns > 0)
}

/// Width of the terminal, and whether the locale has box-drawing characters.
pub fn style() -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style::of(columns(), locale.as_deref())
}
