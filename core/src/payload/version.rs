//! Allowed sequences of versions, as in Talos: the same major version, at most two minor versions up or one down.

use core::fmt;

/// Major and minor number of a version such as `1.9.3`, `v1.10.0-alpha.1` or `12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    major: u64,
    minor: u64,
}

const MAX_UP: u64 = 2;
const MAX_DOWN: u64 = 1;

impl Version {
    /// Parse a version. Ignores a leading `v` and everything after the minor number, which defaults to 0. `None` if the
    /// text does not begin with a number.
    pub fn parse(text: &str) -> Option<Self> {
        let core = text.strip_prefix('v').unwrap_or(text);
        let core = core.split(['-', '+', '~']).next()?;
        let mut numbers = core.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().map_or(Some(0), |minor| minor.parse().ok())?;
        Some(Version { major, minor })
    }

    /// Checks that `new` may follow this version; the error says why not.
    pub fn may_become(self, new: Version) -> Result<(), &'static str> {
        if new.major != self.major {
            Err("another major version")
        } else if new.minor > self.minor.saturating_add(MAX_UP) {
            Err("more than two minor versions up")
        } else if new.minor.saturating_add(MAX_DOWN) < self.minor {
            Err("more than one minor version down")
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn versions_are_read() {
        let v = |text| Version::parse(text).map(|v| v.to_string());
        for (text, expected) in [("1.9.3", "1.9"), ("v1.10.0-alpha.1", "1.10"), ("12", "12.0"), ("1.2~rc1", "1.2")] {
            assert_eq!(v(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "v", "x", "1.x", "-1.2", "latest", "1..2"] {
            assert_eq!(v(bad), None, "{bad}");
        }
    }

    /// The rule behind the table of versions that Talos' installer carries.
    #[test]
    fn two_up_one_down() {
        let running = Version::parse("1.9.2").unwrap();
        for good in ["1.8.0", "1.9.0", "1.9.9", "1.10.0", "1.11.5"] {
            assert_eq!(running.may_become(Version::parse(good).unwrap()), Ok(()), "{good}");
        }
        for bad in ["1.7.9", "1.12.0", "2.9.0", "0.9.0"] {
            assert!(running.may_become(Version::parse(bad).unwrap()).is_err(), "{bad}");
        }
        assert_eq!(Version::parse("1.0.0").unwrap().may_become(running), Err("more than two minor versions up"));
    }
}
