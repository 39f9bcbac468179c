//! A live medium that the UEFI loader starts: what lies where on its file system for UEFI.

use crate::prelude::*;

use crate::{env_block::EnvBlock, medium_id::MediumId};

/// What the medium says about itself. Where this file is, the loader is on a live medium and on no disk.
pub const MEDIUM: &str = "slipway/medium.env";
/// The live system, a unified kernel image, where systemd-boot looks for such.
pub const SYSTEM: &str = "EFI/Linux/slipway.efi";

/// What a medium says about itself. Nobody has signed it: whatever it says, the firmware decides what starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMedium {
    /// Its name. A disk that it has installed is booted in its place.
    pub id: MediumId,
}

impl LiveMedium {
    /// The content of [`MEDIUM`].
    pub fn render(&self) -> String {
        EnvBlock::new([("medium", self.id.to_string())]).render()
    }

    /// Reads it. `None` if it names no medium.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        Some(LiveMedium { id: block.get("medium")?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let medium = LiveMedium { id: MediumId(0x12ab) };
        assert_eq!(LiveMedium::parse(medium.render().as_bytes()), Some(medium));
        assert_eq!(LiveMedium::parse(b"# GRUB Environment Block\nmedium=12ab\n"), None);
        assert_eq!(LiveMedium::parse(b"medium=00000000000012ab\n"), None);
    }
}
