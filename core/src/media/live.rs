//! Live media: their titles, and the text files on them.
//!
//! The initramfs of a live medium is the payload's own with an archive appended to it. The archive has the payload with
//! its checksums in `/slipway/payload/`, and the installer's container image, if one was given, as
//! `/slipway/image.tar`. So the live system runs from memory, needs no driver for the medium it came from, and has its
//! payload at hand.

use crate::prelude::*;

use uuid::Uuid;

use crate::{
    boot::env_block::EnvBlock,
    kernel::{
        arch::Arch,
        cmdline::{Cmdline, QuoteError},
    },
    media::medium_id::MediumId,
    payload::manifest::KERNEL,
    seeded_guid::seeded_guid,
};

/// The kernel's file name on every live medium.
pub const LIVE_KERNEL: &str = KERNEL;
/// The initramfs' file name on every live medium, whatever its compression.
pub const LIVE_INITRAMFS: &str = "initramfs";
/// The whole live system as one program, on a medium for the network that starts with Secure Boot.
pub const LIVE_UKI: &str = "slipway.efi";
/// Directory of the payload in the initramfs.
pub const PAYLOAD_DIR: &str = "slipway/payload";
/// Directory of boot assets in the initramfs: those whose loader is signed.
pub const ASSETS_DIR: &str = "slipway/assets";
/// The container image in the initramfs (OCI archive).
pub const CONTAINER: &str = "slipway/image.tar";
/// The file in `boot/` of an ISO that tells GRUB its task.
pub const MEDIUM_ENV: &str = "medium.env";
/// The largest initramfs in bytes that GRUB can load: kernel and initramfs must both lie below 2 GiB.
/// (`initrd_addr_max`, Documentation/arch/x86/boot.rst)
pub const MAX_INITRAMFS_BYTES: u64 = (2 << 30) - (128 << 20);

/// Disk GUID for the partition table of an ISO, derived from the ID of its medium.
pub fn disk_guid(id: MediumId) -> Uuid {
    seeded_guid(id.to_string().as_bytes())
}

/// A live medium's description of itself.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct Medium {
    pub id: MediumId,
    pub version: Option<String>,
    pub arch: Arch,
    pub cmdline: Cmdline,
}

impl Medium {
    /// The title for people. Characters that could mean something to GRUB, iPXE or a terminal are replaced.
    pub fn title(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".+~-_".contains(c) { c } else { '_' };
        match &self.version {
            Some(version) => format!("Slipway {}", version.chars().map(plain).collect::<String>()),
            None => "Slipway".to_owned(),
        }
    }

    /// `medium.env`: a GRUB environment block that GRUB only reads.
    pub fn env(&self) -> Result<String, QuoteError> {
        let args = self.cmdline.quote_for_grub()?;
        let (medium, efi) = (self.id.to_string(), self.arch.efi_image().to_owned());
        Ok(EnvBlock::new([("medium", medium), ("title", self.title()), ("efi", efi), ("args", args)]).render())
    }

    /// `boot.ipxe`. File names are relative to the script's own address. `initrd=` is for UEFI, where the kernel asks for
    /// the initramfs by name. (<https://ipxe.org/scripting>)
    pub fn ipxe(&self) -> Result<String, QuoteError> {
        Ok(format!(
            "#!ipxe\n\
             # {}, medium {}\n\
             kernel {LIVE_KERNEL} initrd={LIVE_INITRAMFS} {} || goto failed\n\
             initrd {LIVE_INITRAMFS} || goto failed\n\
             boot || goto failed\n\
             :failed\n\
             echo slipway: this network boot failed; rebooting in 15 s\n\
             sleep 15\n\
             reboot\n",
            self.title(),
            self.id,
            self.cmdline.for_ipxe()?
        ))
    }

    /// Volume identifier of an ISO: at most 32 of `A` to `Z`, digits and `_` (ECMA-119, 8.4.9).
    pub fn volume_id(&self) -> String {
        let version = self.version.iter().flat_map(|version| ['_'].into_iter().chain(version.chars()));
        let upper = version.map(|c| c.to_ascii_uppercase());
        "SLIPWAY".chars().chain(upper.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })).take(32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Sha256, Sums};

    fn medium(version: Option<&str>) -> Medium {
        let content = Sums([("x".to_owned(), Sha256::of(b"x"))].into());
        let cmdline = Cmdline::parse("console=tty0 dyndbg=\"file x +p\"");
        Medium { id: MediumId::new(&content, None), version: version.map(str::to_owned), arch: Arch::Amd64, cmdline }
    }

    #[test]
    fn names_follow_content_and_seed() {
        let content = |text: &str| Sums([("x".to_owned(), Sha256::of(text.as_bytes()))].into());
        let id = MediumId::new(&content("1"), None);
        assert_eq!(id.to_string().len(), 16);
        assert!(id.to_string().bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
        assert_eq!(id, MediumId::new(&content("1"), None));
        assert_ne!(id, MediumId::new(&content("2"), None));
        assert_ne!(id, MediumId::new(&content("1"), Some("seed")));
        assert_eq!(disk_guid(id).get_version_num(), 8);
    }

    #[test]
    fn texts_golden() {
        let medium = medium(Some("1.2"));
        assert_eq!(
            medium.env().unwrap(),
            format!(
                "# GRUB Environment Block\nmedium={}\ntitle=Slipway 1.2\nefi=BOOTX64.EFI\n\
                 args='console=tty0' 'dyndbg=file x +p'\n",
                medium.id
            )
        );
        let script = medium.ipxe().unwrap();
        assert!(script.starts_with("#!ipxe\n"), "{script}");
        let line = "kernel vmlinuz initrd=initramfs console=tty0 dyndbg=\"file x +p\" || goto failed\n";
        assert!(script.contains(line), "{script}");
    }

    #[test]
    fn odd_versions() {
        assert_eq!(medium(None).volume_id(), "SLIPWAY");
        assert_eq!(medium(Some("1.2-rc.1")).volume_id(), "SLIPWAY_1_2_RC_1");
        assert_eq!(medium(Some(&"9".repeat(40))).volume_id().len(), 32);
        assert_eq!(medium(None).title(), "Slipway");
        assert_eq!(medium(Some("1 \n\u{1b}${x}'\u{e9}-2")).title(), "Slipway 1____{x}__-2".replace(['{', '}'], "_"));
    }
}
