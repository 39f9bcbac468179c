//! Text from outside on its way to people: versions, names, values, messages of servers.
//!
//! Any writer can put control characters into these. A terminal obeys them, and a line break begins a line that looks like
//! one of ours. JSON needs none of this: it has escapes of its own.

use crate::prelude::*;

use core::fmt::Write as _;

/// Whether a character must not reach a terminal: the control characters of C0 and C1, and those that change the order
/// in which others are shown.
fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a text can be shown as it is, in one line.
pub fn is_printable(text: &str) -> bool {
    !text.contains(is_obeyed)
}

/// A value from outside, in one line: escapes such as `\n` and `\x1b` in place of characters that a terminal would
/// obey.
pub fn printable(text: &str) -> String {
    escaped(text, &[])
}

/// A text of ours with such values in it: the same, except that line breaks and tabs are ours.
pub fn printable_lines(text: &str) -> String {
    escaped(text, &['\n', '\t'])
}

fn escaped(text: &str, kept: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // Writing into a string cannot fail.
        let _ = match c {
            _ if !is_obeyed(c) || kept.contains(&c) => shown.write_char(c),
            '\n' => shown.write_str("\\n"),
            '\r' => shown.write_str("\\r"),
            '\t' => shown.write_str("\\t"),
            '\0'..='\x7f' => write!(shown, "\\x{:02x}", u32::from(c)),
            _ => write!(shown, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    shown
}

/// A word as a shell takes it: as it is, or in single quotes.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A text of one line behind its label, wrapped into lines of at most `columns` characters, all but the first indented by
/// `indent`. A word that is longer than a line stays whole: paths and digests are copied.
pub fn wrap(label: &str, text: &str, columns: usize, indent: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), label.to_owned(), label.chars().count());
    let mut begun = false;
    for word in text.split(' ') {
        let len = word.chars().count();
        let gap = usize::from(begun);
        if used + gap + len > columns && (begun || used > indent) {
            lines.push(core::mem::replace(&mut line, " ".repeat(indent)));
            (used, begun) = (indent, false);
        }
        if begun {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += len;
        begun = true;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_as_a_shell_takes_it() {
        for plain in ["/dev/disk/by-id/nvme-a_b.1:2", "docker://x/y:1@sha256:ab", "--meta=0x0a=1", "a+b%c,d"] {
            assert_eq!(quoted(plain), plain);
        }
        for (word, shown) in [("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'"), ("~a", "'~a'")] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn wrapped() {
        assert_eq!(wrap("a: ", "one two three", 10, 2), ["a: one two", "  three"]);
        assert_eq!(wrap("", "one two", 7, 2), ["one two"]);
        assert_eq!(wrap("", "a abcdefghij k", 6, 1), ["a", " abcdefghij", " k"], "a long word stays whole");
        assert_eq!(wrap("", "ä ö ü", 3, 0), ["ä ö", "ü"], "characters count, not bytes");
        assert_eq!(wrap("label: ", "a/long/path", 13, 2), ["label: ", "  a/long/path"]);
        assert_eq!(wrap("a: ", "b  c", 9, 2), ["a: b  c"], "blanks may be part of a value");
        assert_eq!(wrap("a:", "", 9, 2), ["a:"]);
    }

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        let text = "1\x1b[31m\nfake\r\tä\u{9b}31m\u{7f}\0\u{202e}漢";
        assert_eq!(printable(text), "1\\x1b[31m\\nfake\\r\\tä\\u{9b}31m\\x7f\\x00\\u{202e}漢");
        assert_eq!(printable_lines("a\x1bb\n\tc\r\n"), "a\\x1bb\n\tc\\r\n");
        assert!(is_printable("1.2.3-ä (漢)") && is_printable(&printable(text)) && !is_printable("a\nb"));
    }
}
