//! The boot chain: the programs that the firmware starts before any slot. An install lists its digests on the ESP, so
//! that `verify` and `status` can tell whether it is unchanged.

use crate::prelude::*;

use core::fmt;

use super::gpt::BOOT_CODE_BYTES;
use crate::digest::Sha256;

/// The list, as a path on the ESP.
pub const CHAIN: &str = "slipway/chain.sha256";

// Names in the list of entries that are not files. FAT has no name with a colon.
const BOOT_CODE: &str = "boot-code:";
const CORE_IMAGE: &str = "core-image:";

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// A file on the ESP, by its path: the UEFI image.
    File(String),
    /// The BIOS boot code: the first bytes of LBA 0.
    BootCode {
        /// Bytes.
        len: u64,
    },
    /// GRUB's core image for BIOS: in the half of partition 2 that the boot code starts ([`super::bios`]).
    CoreImage {
        /// Bytes.
        len: u64,
    },
}

impl Link {
    /// Whether two rows are about the same link. Two core images need not be of one size.
    fn is_same(&self, other: &Link) -> bool {
        match (self, other) {
            (Link::File(one), Link::File(other)) => one.eq_ignore_ascii_case(other),
            (Link::BootCode { .. }, Link::BootCode { .. }) | (Link::CoreImage { .. }, Link::CoreImage { .. }) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::File(path) => path,
            Link::BootCode { .. } => "boot code",
            Link::CoreImage { .. } => "core image",
        })
    }
}

/// Every link of the boot chain of a disk with its digest. Links that the disk does not have are not listed: a disk
/// that no BIOS boots has neither boot code nor a core image.
///
/// While a link is replaced it is listed with both digests, and either is good: at no moment does the list call a disk
/// damaged that boots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(pub Vec<(Link, Sha256)>);

/// Why a list cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// A line has another form.
    #[error("line {0}: not of the form `<64 hex digits>  <path, boot-code:BYTES or core-image:BYTES>`")]
    Malformed(usize),
    /// It lists nothing.
    #[error("it is empty")]
    Empty,
    /// The text is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
}

impl Chain {
    /// The list as text, in the form of coreutils' `sha256sum`.
    pub fn render(&self) -> String {
        let name = |link: &Link| match link {
            Link::File(path) => path.clone(),
            Link::BootCode { len } => format!("{BOOT_CODE}{len}"),
            Link::CoreImage { len } => format!("{CORE_IMAGE}{len}"),
        };
        self.0.iter().map(|(link, digest)| format!("{digest}  {}\n", name(link))).collect()
    }

    /// This list, and the entries of another one that it lacks.
    pub fn and(&self, other: &Chain) -> Chain {
        let more = other.0.iter().filter(|row| !self.0.contains(row));
        Chain(self.0.iter().chain(more).cloned().collect())
    }

    /// The links, each with the digests that it may have.
    pub fn links(&self) -> Vec<Vec<&(Link, Sha256)>> {
        let mut links: Vec<Vec<&(Link, Sha256)>> = Vec::new();
        for row in &self.0 {
            match links.iter_mut().find(|rows| rows.iter().any(|(link, _)| link.is_same(&row.0))) {
                Some(rows) => rows.push(row),
                None => links.push(vec![row]),
            }
        }
        links
    }

    /// Read the list. One that proves nothing is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, ChainError> {
        let text = core::str::from_utf8(bytes).map_err(|_| ChainError::NotText)?;
        let links = (1..).zip(text.lines()).map(|(line, row)| link(row).ok_or(ChainError::Malformed(line)));
        let links: Vec<_> = links.collect::<Result<_, _>>()?;
        if links.is_empty() { Err(ChainError::Empty) } else { Ok(Chain(links)) }
    }
}

fn link(row: &str) -> Option<(Link, Sha256)> {
    let (digest, name) = row.split_at_checked(64)?;
    let name = name.strip_prefix("  ")?;
    // Digits only: `+5` and `05` are other texts for the same number.
    let bytes = |digits: &str| digits.parse().ok().filter(|n: &u64| *n > 0 && n.to_string() == digits);
    let link = if let Some(digits) = name.strip_prefix(BOOT_CODE) {
        Link::BootCode { len: bytes(digits).filter(|len| *len <= BOOT_CODE_BYTES as u64)? }
    } else if let Some(digits) = name.strip_prefix(CORE_IMAGE) {
        Link::CoreImage { len: bytes(digits)? }
    } else {
        let plain = |c: char| !c.is_control() && !matches!(c, ':' | '\\');
        Link::File(Some(name).filter(|name| !name.is_empty() && name.chars().all(plain))?.to_owned())
    };
    Some((link, digest.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain() -> Chain {
        Chain(vec![
            (Link::File("EFI/BOOT/BOOTX64.EFI".to_owned()), Sha256::of(b"efi")),
            (Link::BootCode { len: 440 }, Sha256::of(b"code")),
            (Link::CoreImage { len: 182_272 }, Sha256::of(b"core")),
        ])
    }

    #[test]
    fn golden() {
        let [efi, code, core] = [b"efi".as_slice(), b"code", b"core"].map(Sha256::of);
        let text = format!("{efi}  EFI/BOOT/BOOTX64.EFI\n{code}  boot-code:440\n{core}  core-image:182272\n");
        assert_eq!(chain().render(), text);
        assert_eq!(Chain::parse(text.as_bytes()), Ok(chain()));
        let names: Vec<String> = chain().0.iter().map(|(link, _)| link.to_string()).collect();
        assert_eq!(names, ["EFI/BOOT/BOOTX64.EFI", "boot code", "core image"]);
    }

    #[test]
    fn a_link_may_be_one_of_two() {
        let [old, new] = [b"old", b"new"].map(|bytes| Sha256::of(bytes));
        let one = Chain(vec![(Link::File("A".to_owned()), old), (Link::CoreImage { len: 5 }, old)]);
        let other = Chain(vec![(Link::File("A".to_owned()), new), (Link::CoreImage { len: 7 }, new)]);
        let both = one.and(&other);
        assert_eq!((both.0.len(), both.links().len()), (4, 2));
        assert!(both.links().iter().all(|rows| rows.len() == 2 && rows[0].1 == old && rows[1].1 == new));
        assert_eq!(both.and(&one), both);
        assert_eq!(Chain::parse(both.render().as_bytes()), Ok(both));
    }

    #[test]
    fn bad_lists_are_refused() {
        let digest = Sha256::of(b"x");
        assert_eq!(Chain::parse(b""), Err(ChainError::Empty));
        assert_eq!(Chain::parse(&[0xff]), Err(ChainError::NotText));
        for name in [
            "",
            "boot-code:",
            "boot-code:441",
            "boot-code:0",
            "boot-code:+4",
            "core-image:-1",
            "core-image:07",
            "boot-sector:3",
            "a\\b",
            "a\tb",
        ] {
            let text = format!("{digest}  A\n{digest}  {name}\n");
            assert_eq!(Chain::parse(text.as_bytes()), Err(ChainError::Malformed(2)), "{name:?}");
        }
        for row in ["A", &format!("{digest} A"), &format!("{}  A", "g".repeat(64))] {
            assert_eq!(Chain::parse(row.as_bytes()), Err(ChainError::Malformed(1)), "{row:?}");
        }
        assert_eq!(Chain::parse(&[0; 512]), Err(ChainError::Malformed(1)));
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_as_it_was(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
            let mut bytes = chain().render().into_bytes();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(read) = Chain::parse(&bytes) {
                prop_assert_eq!(Chain::parse(read.render().as_bytes()), Ok(read));
            }
        }
    }
}
