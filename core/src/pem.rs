//! PEM (RFC 7468) as people have it: joined, indented, with the marks of editors.

use crate::prelude::*;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// A section's first line begins with this, then its label, then [`DASHES`].
pub(crate) const BEGIN: &str = "-----BEGIN ";
/// So does its last line with this.
pub(crate) const END: &str = "-----END ";
/// End of both lines.
pub(crate) const DASHES: &str = "-----";

/// The lines of a PEM file, as parsers take them. A parser leaves out a section whose first line is indented, has a mark before
/// it, or is joined to the last line of the section before; and it says nothing.
pub fn lines(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let mut rest = line.trim_ascii();
        rest = rest.strip_prefix(MARK).unwrap_or(rest).trim_ascii();
        while let Some(at) = next_begin(rest) {
            let (one, next) = rest.split_at(at);
            lines.extend_from_slice(without_end(one));
            lines.push(b'\n');
            rest = next;
        }
        lines.extend_from_slice(rest);
        lines.push(b'\n');
    }
    lines
}

/// Where another section begins in a line: in one that ends a section, whatever is between them, or behind dashes.
fn next_begin(line: &[u8]) -> Option<usize> {
    let is_end = line.starts_with(END.as_bytes());
    (1..line.len()).find(|at| {
        let (before, rest) = line.split_at(*at);
        rest.starts_with(BEGIN.as_bytes()) && (is_end || without_end(before).ends_with(DASHES.as_bytes()))
    })
}

/// Without white space and a mark at the end.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_end();
    line.strip_suffix(MARK).unwrap_or(line).trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_has_lines_of_its_own() {
        const ONE: &str = "-----BEGIN A-----\nMA==\n-----END A-----\n";
        const TWO: &str = "-----BEGIN B C-----\nMQ==\n-----END B C-----\n";
        let both = ONE.to_owned() + TWO;
        let mut indented = String::new();
        both.lines().for_each(|line| indented += &format!("\t  {line} \n"));
        for text in [
            both.clone(),
            both.replace("-----\n-----", "----------"),
            both.replace("-----\n-----", "----- -----"),
            both.replace("-----\n-----", "-----\u{feff}-----"),
            both.replace("-----\n-----", "----- \u{feff}\t-----"),
            both.replace('\n', "\r\n"),
            format!("\u{feff}{ONE}\u{feff}{TWO}"),
            indented,
            both.trim_end().to_owned(),
        ] {
            let clean = String::from_utf8(lines(text.as_bytes())).unwrap();
            let kept: Vec<_> = clean.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(kept.join("\n") + "\n", both, "{text:?}");
        }
        // Whatever is between them.
        for between in ["\u{a0}", "\u{200b}", ";", "\\n", "\u{feff}\u{feff}", " and "] {
            let text = both.replace("-----\n-----", &format!("-----{between}-----"));
            let clean = String::from_utf8(lines(text.as_bytes())).unwrap();
            assert!(clean.contains("\n-----END A-----") && clean.contains("\n-----BEGIN B C-----\n"), "{text:?}");
        }
        // A comment stays one, and what is no text, too.
        for other in [
            &b"# -----BEGIN A-----\n"[..],
            b"# an -----END A----- and a -----BEGIN B-----\n",
            b"\xff\xfe-\0",
            b"\n",
            b"----------\n",
        ] {
            assert_eq!(lines(other).trim_ascii(), other.trim_ascii());
        }
        assert_eq!(
            lines(b"-----END A----------BEGIN B----------BEGIN C-----").iter().filter(|b| **b == b'\n').count(),
            3
        );
    }
}
