//! SHA-256 digests, and lists of them (`SHA256SUMS`, `boot.sha256`) in the format of coreutils.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::{fmt, str::FromStr};

use sha2::Digest as _;

/// A SHA-256 digest (FIPS 180-4), printed as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "data", serde(try_from = "String", into = "String"))]
#[cfg_attr(feature = "data", schemars(with = "String"))]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// Hash a byte string.
    pub fn of(bytes: &[u8]) -> Self {
        Sha256(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256 {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let bad = || format!("{s:?} is not a SHA-256 digest (64 hex digits)");
        if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut out = [0; 32];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Sha256(out))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = String;
    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Sha256> for String {
    fn from(d: Sha256) -> String {
        d.to_string()
    }
}

/// Why a list of digests cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SumsError {
    /// A line has another form.
    #[error("line {0}: not of the form `<64 hex digits>  <file name>` (coreutils sha256sum)")]
    Malformed(usize),
    /// A name could leave the directory.
    #[error("line {line}: {name:?} is not a plain file name: digests may only name files beside the list")]
    NotPlain {
        /// Line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A name is listed twice.
    #[error("line {line}: {name:?} is listed twice")]
    Duplicate {
        /// Line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// The text is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
}

/// A list of digests by file name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(pub BTreeMap<String, Sha256>);

impl Sums {
    /// Parse the output of `sha256sum`. Each name must be a plain file name and appear once.
    pub fn parse(bytes: &[u8]) -> Result<Self, SumsError> {
        let text = core::str::from_utf8(bytes).map_err(|_| SumsError::NotText)?;
        let mut sums = BTreeMap::new();
        for (i, row) in text.lines().enumerate() {
            let line = i + 1;
            let (digest, rest) = row.split_at_checked(64).ok_or(SumsError::Malformed(line))?;
            let digest = digest.parse().map_err(|_| SumsError::Malformed(line))?;
            // Two spaces in text mode, ` *` in binary mode.
            let name = rest.strip_prefix("  ").or_else(|| rest.strip_prefix(" *")).ok_or(SumsError::Malformed(line))?;
            // `sha256sum ./*` writes names like this.
            let name = name.strip_prefix("./").unwrap_or(name).to_owned();
            // Control characters: a list with `a\r` in it would be read differently once it is written again.
            let bad = |c: char| matches!(c, '/' | '\\') || c.is_control();
            if name.is_empty() || name == "." || name == ".." || name.contains(bad) {
                return Err(SumsError::NotPlain { line, name });
            }
            if sums.insert(name.clone(), digest).is_some() {
                return Err(SumsError::Duplicate { line, name });
            }
        }
        Ok(Sums(sums))
    }

    /// The list as text, sorted by name.
    pub fn render(&self) -> String {
        self.0.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn sha256_of_abc_is_the_standard_one() {
        assert_eq!(Sha256::of(b"abc").to_string(), ABC);
    }

    #[test]
    fn sums_round_trip() {
        let text = format!("{ABC}  rootfs.squashfs\n{ABC}  vmlinuz\n");
        let sums = Sums::parse(text.as_bytes()).unwrap();
        assert_eq!(sums.0.len(), 2);
        assert_eq!(sums.render(), text);
        let binary = format!("{ABC} *vmlinuz\n{ABC}  ./x\n");
        assert_eq!(Sums::parse(binary.as_bytes()).unwrap().0.len(), 2);
    }

    #[test]
    fn bad_lists_are_refused() {
        let bad = |text: String| Sums::parse(text.as_bytes()).unwrap_err();
        assert_eq!(bad("hello\n".into()), SumsError::Malformed(1));
        assert_eq!(bad(format!("{ABC} vmlinuz\n")), SumsError::Malformed(1));
        assert!(matches!(bad(format!("{ABC}  ../x\n")), SumsError::NotPlain { line: 1, .. }));
        assert!(matches!(bad(format!("{ABC}  /x\n")), SumsError::NotPlain { .. }));
        assert!(matches!(bad(format!("{ABC}  a\r")), SumsError::NotPlain { line: 1, .. }));
        assert!(matches!(bad(format!("{ABC}  a\n{ABC}  a\n")), SumsError::Duplicate { line: 2, .. }));
        assert_eq!(Sums::parse(&[0xff]).unwrap_err(), SumsError::NotText);
    }
}
