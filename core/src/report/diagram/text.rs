//! Text that fits into columns and cannot harm a terminal.
//!
//! Any program can write names into a partition table. Control and invisible characters in them are shown as `?`.

use crate::prelude::*;

use unicode_width::UnicodeWidthChar as _;

use crate::{report::Style, units::approx};

fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Width of a [`clean`] text in columns.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Replace with `?` characters that could harm a terminal, that the style cannot show, or that are wider than `widest`
/// columns.
pub fn clean(text: &str, style: Style, widest: usize) -> String {
    let shown = |c: char| (1..=widest).contains(&columns(c)) && (style.unicode || c.is_ascii());
    text.chars().map(|c| if shown(c) { c } else { '?' }).collect()
}

/// Cut or pad a text to exactly `columns` columns.
pub fn fit(text: &str, columns: usize, style: Style) -> String {
    let text = clean(text, style, 2);
    let have = width(&text);
    if have <= columns {
        return text + &" ".repeat(columns - have);
    }
    let (mut kept, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += self::columns(c);
        if used >= columns {
            break;
        }
        kept.push(c);
    }
    kept.push(style.glyphs().cut);
    let missing = columns - width(&kept);
    kept + &" ".repeat(missing)
}

/// Wrap into lines of at most `columns` columns, all but the first indented by `indent`. Words that fit into a line
/// stay whole.
pub fn wrap(text: &str, columns: usize, indent: usize, style: Style) -> Vec<String> {
    let text = clean(text, style, 2);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let bare = width(word.trim_end_matches(' '));
        if used + bare > columns && used > indent && indent + bare <= columns {
            lines.push(" ".repeat(indent));
            used = indent;
        }
        for c in word.chars() {
            let wide = self::columns(c);
            // A blank at the end of a line can go.
            if used + wide > columns && c == ' ' {
                continue;
            }
            if used + wide > columns {
                lines.push(" ".repeat(indent));
                used = indent;
            }
            used += wide;
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines.into_iter().map(|line| line.trim_end_matches(' ').to_owned()).collect()
}

/// A position or a length; nothing needs no unit.
pub fn size(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { approx(bytes) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNICODE: Style = Style { width: 80, unicode: true };
    const ASCII: Style = Style { width: 80, unicode: false };

    #[test]
    fn what_does_harm_is_not_shown() {
        assert_eq!(clean("a\x1b[2Jb\n\u{202e}\u{200b}ä\u{7f}", UNICODE, 2), "a?[2Jb???ä?");
        assert_eq!(clean("aä漢", ASCII, 2), "a??");
        assert_eq!((clean("漢", UNICODE, 2), clean("漢", UNICODE, 1)), ("漢".to_owned(), "?".to_owned()));
    }

    #[test]
    fn cut_and_filled() {
        assert_eq!(fit("abc", 5, UNICODE), "abc  ");
        assert_eq!(fit("abcdef", 5, UNICODE), "abcd…");
        assert_eq!(fit("abcdef", 5, ASCII), "abcd~");
        assert_eq!(fit("漢漢漢", 4, UNICODE), "漢… ");
    }

    #[test]
    fn wrapped() {
        assert_eq!(wrap("one two three", 9, 2, ASCII), ["one two", "  three"]);
        assert_eq!(wrap("abcdefghijklm no", 6, 2, ASCII), ["abcdef", "  ghij", "  klm", "  no"]);
        assert_eq!(wrap("a b\u{3000} ", 9, 2, UNICODE), ["a b\u{3000}"], "another blank may be part of a name");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_everything_fits(text in "\\PC{0,120}", columns in 10..80usize, unicode: bool) {
            let style = Style { width: 80, unicode };
            prop_assert_eq!(width(&fit(&text, columns, style)), columns);
            let lines = wrap(&text, columns, 3, style);
            prop_assert!(lines.iter().all(|line| width(line) <= columns));
            let solid = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(solid(&lines.concat()), solid(&clean(&text, style, 2)));
        }
    }
}
