//! PEM (RFC 7468) as people have it: joined, indented, with the marks of editors.

use crate::prelude::*;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// The end of a section's last line, and the beginning of the next one's first, if nothing is between them.
const JOINED: &[u8] = b"----------BEGIN ";
const DASHES: usize = 5;

/// The lines of a PEM file, as parsers take them. A parser leaves out a section whose first line is indented, has a mark before
/// it, or is joined to the last line of the section before; and it says nothing.
pub fn lines(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let mut rest = line.trim_ascii();
        rest = rest.strip_prefix(MARK).unwrap_or(rest).trim_ascii();
        while let Some(at) = rest.windows(JOINED.len()).position(|bytes| bytes == JOINED) {
            let (one, next) = rest.split_at(at + DASHES);
            lines.extend_from_slice(one);
            lines.push(b'\n');
            rest = next;
        }
        lines.extend_from_slice(rest);
        lines.push(b'\n');
    }
    lines
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
            both.replace('\n', "\r\n"),
            format!("\u{feff}{ONE}\u{feff}{TWO}"),
            indented,
            both.trim_end().to_owned(),
        ] {
            let clean = String::from_utf8(lines(text.as_bytes())).unwrap();
            let kept: Vec<_> = clean.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(kept.join("\n") + "\n", both, "{text:?}");
        }
        // A comment stays one, and what is no text, too.
        for other in [&b"# -----BEGIN A-----\n"[..], b"\xff\xfe-\0", b"\n", b"----------\n"] {
            assert_eq!(lines(other).trim_ascii(), other.trim_ascii());
        }
        assert_eq!(
            lines(b"-----END A----------BEGIN B----------BEGIN C-----").iter().filter(|b| **b == b'\n').count(),
            3
        );
    }
}
