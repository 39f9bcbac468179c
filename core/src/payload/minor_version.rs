//! The part of a version by which etcd and Kubernetes say what goes together: major and minor number.

use crate::prelude::*;

use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Major and minor number: 3.5 of 3.5.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MinorVersion {
    major: u32,
    minor: u32,
}

impl MinorVersion {
    /// With these numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The one before; `None` for the first of a major version.
    pub fn before(self) -> Option<Self> {
        Some(Self { minor: self.minor.checked_sub(1)?, ..self })
    }

    /// Whether none lies between `old` and this one, which may be older.
    pub fn follows(self, old: Self) -> bool {
        self <= old || self.before() == Some(old)
    }

    /// Number of minor versions that this one is behind `newer`; `None` if their major versions differ. 0 if it is not behind.
    pub fn behind(self, newer: Self) -> Option<u32> {
        (self.major == newer.major).then(|| newer.minor.saturating_sub(self.minor))
    }
}

impl FromStr for MinorVersion {
    type Err = String;

    /// Of `3.5.16`, `v3.5.16-rc.1` or `3.5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let mut part = || -> Option<u32> {
            let part = parts.next()?.split(['-', '+']).next()?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
        };
        let both = part().zip(part());
        both.map(|(major, minor)| Self { major, minor }).ok_or_else(|| format!("{text:?} is no version: 1.31.2"))
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_first_two_numbers() {
        let texts =
            [("3.5.16", "3.5"), ("v3.6.0-rc.1", "3.6"), ("3.7", "3.7"), ("3.10.0+git", "3.10"), ("3.6-dev", "3.6")];
        for (text, of) in texts {
            assert_eq!(text.parse::<MinorVersion>().map(|version| version.to_string()), Ok(of.to_owned()));
        }
        for wrong in ["", "3", "3.", ".5", "three.five", "3.x", "3.-5", "3.5x", "99999999999999999999.1"] {
            assert!(wrong.parse::<MinorVersion>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = MinorVersion::new;
        assert!(of(3, 9) < of(3, 10) && of(3, 10) < of(4, 0));
        assert_eq!((of(3, 5).before(), of(4, 0).before()), (Some(of(3, 4)), None));
        assert!(of(3, 6).follows(of(3, 5)) && of(3, 4).follows(of(3, 7)) && !of(3, 7).follows(of(3, 5)));
        assert!(!of(4, 0).follows(of(3, 9)), "nobody says which is the one before");
        assert_eq!((of(1, 31).behind(of(1, 34)), of(1, 34).behind(of(1, 31))), (Some(3), Some(0)));
        assert_eq!(of(1, 31).behind(of(2, 0)), None);
    }
}
