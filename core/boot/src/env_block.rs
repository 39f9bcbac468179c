//! GRUB environment block, the text format of `load_env` and `save_env` (GRUB manual, "The GRUB environment block";
//! `lib/envblk.c`).
//!
//! A header line, then `key=value` lines in which a backslash escapes a backslash or a newline, then `#` up to the end.

use crate::prelude::*;

const HEADER: &[u8] = b"# GRUB Environment Block\n";
/// Bytes of a block that GRUB rewrites. GRUB writes sector by sector, so one sector is replaced whole or not at all.
pub const SECTOR_BLOCK_BYTES: usize = 512;

/// Keys and values in order. If a key appears twice, the last value counts, as in GRUB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvBlock(Vec<(String, String)>);

impl EnvBlock {
    /// A block with these keys and values.
    pub fn new<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        EnvBlock(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Gives a key this value, where it stands, or at the end.
    pub fn set(&mut self, key: &str, value: &str) {
        // The last one counts. Earlier ones would only take up room.
        self.0.retain({
            let last = self.0.iter().rposition(|(k, _)| k == key);
            let mut at = 0;
            move |(k, _)| {
                at += 1;
                k != key || Some(at - 1) == last
            }
        });
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Parse as GRUB does (`grub_envblk_iterate`). `None` without the header: GRUB's "invalid environment block".
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(HEADER)?;
        let mut pairs = Vec::new();
        while let Some(first) = rest.first() {
            // A name reaches up to the next `=`, even past the end of its line.
            let name_len = match first {
                // Padding or a comment: skip the line.
                b'#' => None,
                _ => Some(rest.iter().position(|b| *b == b'=').unwrap_or(rest.len())),
            };
            let (name, line) = rest.split_at(name_len.unwrap_or(0));
            let (value, after) = unescape_line(line.get(1..).unwrap_or_default());
            rest = after;
            if name_len.is_some() && !line.is_empty() {
                pairs.push((String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(&value).into_owned()));
            }
        }
        Some(EnvBlock(pairs))
    }

    /// Text without padding, for blocks that GRUB only reads.
    pub fn render(&self) -> String {
        let mut out = String::from_utf8_lossy(HEADER).into_owned();
        for (key, value) in &self.0 {
            out.push_str(key);
            out.push('=');
            for c in value.chars() {
                if matches!(c, '\\' | '\n') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push('\n');
        }
        out
    }

    /// Whether it fits into a sector in which GRUB can save: that takes some padding.
    pub fn has_room(&self) -> bool {
        self.render().len() + 2 <= SECTOR_BLOCK_BYTES
    }

    /// One sector with padding; `None` if the text is longer.
    pub fn render_sector(&self) -> Option<String> {
        let text = self.render();
        let padding = SECTOR_BLOCK_BYTES.checked_sub(text.len())?;
        Some(text + &"#".repeat(padding))
    }
}

// Returns the text up to the next unescaped newline, with escapes removed, and the rest.
fn unescape_line(bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut value = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => return (value, &bytes[at + 1..]),
            b'\\' => {
                value.extend(bytes.get(at + 1));
                at += 2;
            }
            other => {
                value.push(*other);
                at += 1;
            }
        }
    }
    (value, &[])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden() {
        let block = EnvBlock::new([("default", "A"), ("once", ""), ("args", "a\\b")]);
        let text = block.render_sector().unwrap();
        assert_eq!(text.len(), 512);
        assert!(text.starts_with("# GRUB Environment Block\ndefault=A\nonce=\nargs=a\\\\b\n###"), "{text}");
        assert_eq!(EnvBlock::parse(text.as_bytes()), Some(block));
    }

    #[test]
    fn not_a_block() {
        for bytes in [&b""[..], &[0; 512], b"# GRUB Environment Bloc", b"default=A\n"] {
            assert_eq!(EnvBlock::parse(bytes), None);
        }
        assert!(EnvBlock::new([("k", "v".repeat(500))]).render_sector().is_none());
    }

    // Seen in grub-emu.
    #[test]
    fn read_as_grub_reads() {
        let get =
            |text: &[u8], key: &str| EnvBlock::parse(&[HEADER, text].concat()).unwrap().get(key).map(str::to_owned);
        assert_eq!(get(b"a=1\na=2\n", "a"), Some("2".into()), "the last one counts");
        assert_eq!(get(b"\nseq=1\n", "seq"), None, "the name swallows the empty line");
        assert_eq!(get(b"word\nseq=1\nb=2\n", "seq"), None, "the name swallows a line without =");
        assert_eq!(get(b"word\nseq=1\nb=2\n", "b"), Some("2".into()));
        assert_eq!(get(b"a=1\n###\xff\xfe", "a"), Some("1".into()), "padding does not count");
    }

    proptest! {
        #[test]
        fn any_value_round_trips(values in prop::collection::vec("\\PC*", 0..5)) {
            let block = EnvBlock::new(values.into_iter().enumerate().map(|(i, v)| (format!("k{i}"), v)));
            prop_assert_eq!(EnvBlock::parse(block.render().as_bytes()), Some(block));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = EnvBlock::parse(&[HEADER, &bytes].concat());
            let _ = EnvBlock::parse(&bytes);
        }
    }
}
