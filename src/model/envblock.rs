//! GRUB environment block: the text format `load_env` and `save_env` understand (GRUB manual,
//! "The GRUB environment block"; `lib/envblk.c`).
//!
//! A header line, `key=value` lines in which a backslash protects a backslash or a newline, and `#` up
//! to the end. GRUB rewrites a block in place and never changes its size. Ours that it rewrites are 512
//! bytes, one sector: GRUB writes sector by sector, so a block of one sector is replaced whole or not at
//! all.

const HEADER: &[u8] = b"# GRUB Environment Block\n";
/// Bytes of a block that GRUB rewrites.
pub const SECTOR_BLOCK_BYTES: usize = 512;

/// Keys and values in order of appearance. Of a key that stands twice the last one counts, as in GRUB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvBlock(Vec<(String, String)>);

impl EnvBlock {
    /// A block of these pairs.
    pub fn new<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        EnvBlock(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Parse; `None` where the header is not there or the text is not UTF-8, which GRUB calls an
    /// "invalid environment block".
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.strip_prefix(HEADER)?).ok()?;
        let mut pairs = Vec::new();
        let mut chars = text.chars();
        let mut line = String::new();
        let mut take = |line: &mut String| {
            if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                pairs.push((key.to_owned(), value.to_owned()));
            }
            line.clear();
        };
        while let Some(c) = chars.next() {
            match c {
                '\n' => take(&mut line),
                '\\' => line.extend(chars.next()),
                other => line.push(other),
            }
        }
        Some(EnvBlock(pairs))
    }

    /// Text without padding: for blocks GRUB only reads.
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

    /// One sector, padded; `None` where the text is longer.
    pub fn render_sector(&self) -> Option<String> {
        let text = self.render();
        let padding = SECTOR_BLOCK_BYTES.checked_sub(text.len())?;
        Some(text + &"#".repeat(padding))
    }
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
