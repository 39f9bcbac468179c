//! Colour for people at a terminal. It says nothing that the text does not say: it is on the words that stand out.
//!
//! console decides where there is colour: not elsewhere than on a terminal, not with $NO_COLOR, and not with TERM=dumb.

use console::{Style, colors_enabled, colors_enabled_stderr};

/// Words at the beginning of a line of a report, and their colours.
const REPORT: [(&str, Style); 2] = [("note:", Style::new().yellow()), ("next step:", Style::new().bold())];
/// Words at the beginning of a line on stderr.
const PROGRESS: [(&str, Style); 2] = [("error:", Style::new().red().bold()), ("note:", Style::new().yellow())];
/// Words that are red everywhere.
const DAMAGED: &str = "DAMAGED";

/// A report on its way to stdout.
pub fn stdout(text: String) -> String {
    if colors_enabled() { coloured(&text, &REPORT) } else { text }
}

/// A line on its way to stderr.
pub fn stderr(text: String) -> String {
    if colors_enabled_stderr() { coloured(&text, &PROGRESS) } else { text }
}

/// `text` has no escapes of its own: see [`super::output::human`].
fn coloured(text: &str, heads: &[(&str, Style)]) -> String {
    text.split_inclusive('\n').map(|one| line(one, heads)).collect()
}

fn line(line: &str, heads: &[(&str, Style)]) -> String {
    let red = Style::new().red().bold().force_styling(true);
    let words = |rest: &str| rest.replace(DAMAGED, &red.apply_to(DAMAGED).to_string());
    for (head, style) in heads {
        if let Some(rest) = line.strip_prefix(head) {
            return format!("{}{}", style.clone().force_styling(true).apply_to(head), words(rest));
        }
    }
    words(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_out_has_colour() {
        let text = "slot A   good\nslot B   files DAMAGED\nnext step: installer upgrade\nerror: no\n";
        let shown = coloured(text, &REPORT);
        assert_eq!(
            shown,
            "slot A   good\nslot B   files \x1b[31m\x1b[1mDAMAGED\x1b[0m\n\x1b[1mnext step:\x1b[0m installer \
             upgrade\nerror: no\n"
        );
        assert_eq!(coloured("error: x\n", &PROGRESS), "\x1b[31m\x1b[1merror:\x1b[0m x\n");
    }
}
