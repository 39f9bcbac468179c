//! The ID of a live medium.
//!
//! The live system has it on its kernel command line (`slipway.medium=`). An unattended installation records it in the
//! disk's boot state (`medium=`). So a medium recognises its own work and does not install twice.

use crate::prelude::*;

use core::{fmt, str::FromStr};

use crate::digest::{Sha256, Sums};

/// ID of a live medium: 64 bits, written as 16 lower-case hex digits. Equal content has an equal ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "data", serde(try_from = "String", into = "String"))]
#[cfg_attr(feature = "data", schemars(with = "String"))]
pub struct MediumId(pub u64);

impl MediumId {
    /// The ID of a medium with this content. A `seed` gives another ID to the same content.
    pub fn new(content: &Sums, seed: Option<&str>) -> Self {
        let digest = Sha256::of(format!("{}{}", content.render(), seed.unwrap_or_default()).as_bytes());
        MediumId(digest.0[..8].iter().fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }
}

impl fmt::Display for MediumId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for MediumId {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let digits = s.len() == 16 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let id = u64::from_str_radix(s, 16).ok().filter(|_| digits);
        id.map(MediumId).ok_or_else(|| format!("{s:?} is not the ID of a live medium (16 lower-case hex digits)"))
    }
}

impl TryFrom<String> for MediumId {
    type Error = String;
    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<MediumId> for String {
    fn from(id: MediumId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for text in ["0123456789abcdef", "0000000000000000", "ffffffffffffffff"] {
            assert_eq!(text.parse::<MediumId>().unwrap().to_string(), text);
        }
        for bad in
            ["", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "+123456789abcdef", "0x23456789abcdef"]
        {
            assert!(bad.parse::<MediumId>().unwrap_err().contains("16 lower-case hex digits"), "{bad}");
        }
    }
}
