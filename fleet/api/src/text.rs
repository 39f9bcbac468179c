//! Text from elsewhere: safe for logs, terminals and objects of the cluster.

use std::fmt::{Debug, Display};

/// The replacement of a character that is not shown as it is.
const INSTEAD: char = ' ';
/// The mark where a text was cut.
const CUT: &str = "…";

/// Whether a character changes how the text around it is shown: control characters, line separators, and the invisible
/// ones that set the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether `text` has only characters that are shown as they are.
pub fn is_clean(text: &str) -> bool {
    !text.chars().any(is_unsafe)
}

/// `text` in one line, with spaces in place of control characters and of characters that set the direction of text.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { INSTEAD } else { c }).collect()
}

/// [`clean`], and at most `max` bytes of UTF-8. `…` stands at the end of a text that was cut.
pub fn clean_and_cut(text: &str, max: usize) -> String {
    // Each character of the answer has at least one byte, so more of them than `max` are of no use.
    let mut cleaned: String = text.chars().take(max + 1).map(|c| if is_unsafe(c) { INSTEAD } else { c }).collect();
    let is_whole = cleaned.len() <= max && text.chars().nth(max + 1).is_none();
    if !is_whole {
        cleaned.truncate(cleaned.floor_char_boundary(max.saturating_sub(CUT.len())));
        cleaned.push_str(if max < CUT.len() { "" } else { CUT });
    }
    cleaned
}

/// Why TLS takes no such certificate, with what to do. Of the usual slips the library says no more than an identifier.
pub fn certificate_error(error: &(impl Debug + Display)) -> String {
    let identifier = format!("{error:?}");
    let why = if identifier.contains("UnsupportedCertVersion") {
        "it is an X.509 certificate of version 1, and TLS takes version 3: make it anew, by `slipwayctl gen`, or with \
         extensions (openssl x509 -req -extfile FILE)"
    } else if identifier.contains("KeyMismatch") {
        "it is the certificate of another key: bring the two files that were made together"
    } else {
        return error.to_string();
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_text_around_it_becomes_a_space() {
        for c in
            ['\x1b', '\n', '\r', '\0', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{2028}', '\u{e0041}']
        {
            assert_eq!(clean(&format!("a{c}b")), "a b", "{c:?}");
            assert!(!is_clean(&c.to_string()));
        }
        let plain = "päyload – 東京 🚀";
        assert!(is_clean(plain));
        assert_eq!(clean(plain), plain);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(clean_and_cut("four", 4), "four");
        assert_eq!(clean_and_cut("fives", 4), "f…");
        assert_eq!(clean_and_cut("東京都", 9), "東京都");
        assert_eq!(clean_and_cut("東京都", 8), "東…");
        assert_eq!(clean_and_cut("ab", 1), "");
        assert_eq!(clean_and_cut("\n\n", 2), "  ");
        let long = clean_and_cut(&"é\x1b".repeat(1 << 20), 1024);
        assert!(long.len() <= 1024 && long.len() > 1020 && is_clean(&long) && long.ends_with('…'));
    }
}
