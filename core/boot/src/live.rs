//! A live medium that the UEFI loader starts: the places on its file system for UEFI.

use crate::prelude::*;

use crate::{digest::Sha256, enroll_mode::EnrollMode, env_block::EnvBlock, medium_id::MediumId};

/// The medium's description of itself. Where this file is, the loader is on a live medium and on no disk.
pub const MEDIUM: &str = "slipway/medium.env";
/// The live system, a unified kernel image, where systemd-boot looks for such.
pub const SYSTEM: &str = "EFI/Linux/slipway.efi";

/// The medium's own words. They are not signed: in any case the firmware decides which programs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMedium {
    /// Its name. A disk that it has installed is booted in its place.
    pub id: MediumId,
    /// The keys on it, for a firmware in setup mode.
    pub keys: Option<Keys>,
}

/// The keys on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// When to enrol them.
    pub mode: EnrollMode,
    /// Digest of the three files together, in the order in which they are written. Firmware in setup mode takes a
    /// damaged db.
    pub digest: Sha256,
}

impl LiveMedium {
    /// The content of [`MEDIUM`].
    pub fn render(&self) -> String {
        let mut pairs = vec![("medium", self.id.to_string())];
        if let Some(keys) = self.keys {
            pairs.extend([("enroll", keys.mode.name().to_owned()), ("keys", keys.digest.to_string())]);
        }
        EnvBlock::new(pairs).render()
    }

    /// Reads it. `None` if it names no medium.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        let keys = || {
            let mode = EnrollMode::by_name(block.get("enroll")?)?;
            Some(Keys { mode, digest: block.get("keys")?.parse().ok()? })
        };
        Some(LiveMedium { id: block.get("medium")?.parse().ok()?, keys: keys() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let keys = EnrollMode::ALL.map(|(mode, ..)| Some(Keys { mode, digest: Sha256::of(b"keys") }));
        for keys in keys.into_iter().chain([None]) {
            let medium = LiveMedium { id: MediumId(0x12ab), keys };
            assert_eq!(LiveMedium::parse(medium.render().as_bytes()), Some(medium));
        }
        // Keys that cannot be read are not enrolled.
        let odd = LiveMedium::parse(b"# GRUB Environment Block\nmedium=00000000000012ab\nenroll=force\nkeys=12\n");
        assert_eq!(odd, Some(LiveMedium { id: MediumId(0x12ab), keys: None }));
        assert_eq!(LiveMedium::parse(b"# GRUB Environment Block\nmedium=12ab\n"), None);
        assert_eq!(LiveMedium::parse(b"medium=00000000000012ab\n"), None);
    }
}
