//! Characters that no kernel command line may have.

/// A character that no command line may have. At a NUL the kernel takes the line to end, and so loses the words behind it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} is the control character 0x{byte:02x}, which may not be on a kernel command line")]
pub struct ControlCharacter {
    /// Where, from 0.
    pub at: usize,
    /// Its value.
    pub byte: u8,
}

/// Refuse control characters, but for tabs and ends of lines outside of quotes: between words they are white space.
pub fn check_characters(text: &str) -> Result<(), ControlCharacter> {
    let mut quoted = false;
    let bad = text.bytes().enumerate().find(|(_, byte)| {
        quoted ^= *byte == b'"';
        byte.is_ascii_control() && (quoted || !matches!(byte, b'\t' | b'\n' | b'\r'))
    });
    bad.map_or(Ok(()), |(at, byte)| Err(ControlCharacter { at, byte }))
}

/// A command line as a file has it, without white space around it and without the mark that some editors begin it with. Neither
/// changes it.
pub fn bare(text: &str) -> &str {
    text.trim_start_matches('\u{feff}').trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters() {
        for good in ["", "quiet\n", "a=1\tb=2\r\nc\n", "x=\"a b\"\ny", "x=\u{e4}"] {
            assert_eq!(check_characters(good), Ok(()), "{good:?}");
        }
        for (bad, at, byte) in [
            ("quiet\0 slipway.rootfs=1", 5, 0),
            ("\u{1b}[31m", 0, 0x1b),
            ("x=\"a\nb\"", 4, b'\n'),
            ("a\u{b}b", 1, 0x0b),
            ("a\u{c}b", 1, 0x0c),
            ("a\n\u{7f}", 2, 0x7f),
        ] {
            let refused = check_characters(bad);
            assert_eq!(refused, Err(ControlCharacter { at, byte }), "{bad:?}");
        }
    }
}
