//! Configuration of a kernel, as far as its image tells, and its place in the image.

use crate::prelude::*;

use alloc::collections::BTreeSet;
use core::ops::Range;

use crate::bytes::{get_le16, get_le32};

/// A kernel's own list of the options that it was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelOptions {
    /// Options that are built in or modules, if its `.config` is in it (CONFIG_IKCONFIG).
    config: Option<BTreeSet<String>>,
    /// Options whose messages are in it.
    seen: BTreeSet<&'static str>,
}

/// The bytes before and behind the `.config` in a kernel (kernel/configs.c). The last three bytes of the first one are
/// those that any gzip stream begins with: the configuration is one.
pub const CONFIG_MARKS: [&[u8]; 2] = [b"IKCFG_ST\x1f\x8b\x08", b"IKCFG_ED"];

/// Messages of a kernel's decoders when they fail (lib/decompress_*.c), and the option that each is built with. No
/// other part of Linux has them.
pub const MESSAGES: [(&str, &str); 7] = [
    ("Not a gzip file", "CONFIG_RD_GZIP"),
    ("Compressed file ends unexpectedly", "CONFIG_RD_BZIP2"),
    ("LZMA data is corrupt", "CONFIG_RD_LZMA"),
    ("XZ-compressed data is corrupt", "CONFIG_RD_XZ"),
    ("dest len longer than block size", "CONFIG_RD_LZO"),
    ("chunk length is longer than allocated", "CONFIG_RD_LZ4"),
    ("ZSTD-compressed data is probably corrupt", "CONFIG_RD_ZSTD"),
];

// The needed lines, of some thousand.
const KEPT: [&str; 3] = ["CONFIG_RD_", "CONFIG_SQUASHFS_", "CONFIG_XZ_DEC_"];

impl KernelOptions {
    /// By its `.config`: an option that has no line there is off.
    pub fn of_config(text: &str) -> Self {
        let kept = text.lines().filter(|line| KEPT.iter().any(|kept| line.starts_with(kept)));
        let on = kept.filter_map(|line| line.strip_suffix("=y").or_else(|| line.strip_suffix("=m")));
        KernelOptions { config: Some(on.map(str::to_owned).collect()), seen: BTreeSet::new() }
    }

    /// By the [`MESSAGES`] in it.
    pub fn of_messages(seen: impl IntoIterator<Item = &'static str>) -> Self {
        KernelOptions { config: None, seen: seen.into_iter().collect() }
    }

    /// Whether it was built with this option, `CONFIG_RD_XZ` for example. `None`: unknown.
    pub fn has(&self, option: &str) -> Option<bool> {
        match &self.config {
            Some(on) => Some(on.contains(option)),
            None => self.seen.contains(option).then_some(true),
        }
    }
}

/// Range of the kernel proper in a kernel's file, in bytes, by the first 1 KiB of the file: compressed on x86
/// (Documentation/arch/x86/boot.rst, `payload_offset`) and in a program that unpacks itself under UEFI
/// (drivers/firmware/efi/libstub/zboot-header.S); else it is the whole file.
pub fn kernel_proper(head: &[u8]) -> Range<u64> {
    const WITH_PAYLOAD: u16 = 0x208;
    let number = |at: usize| u64::from(get_le32(head, at).unwrap_or(0));
    let (from, bytes) = if head.get(0x202..0x206) == Some(b"HdrS") {
        let version = get_le16(head, 0x206).unwrap_or(0);
        let setup = match head[0x1f1] {
            0 => 4,
            sectors => u64::from(sectors),
        };
        if version < WITH_PAYLOAD { (0, 0) } else { ((setup + 1) * 512 + number(0x248), number(0x24c)) }
    } else if head.starts_with(b"MZ\0\0zimg") {
        (number(8), number(12))
    } else {
        return 0..u64::MAX;
    };
    from..from + bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_its_configuration() {
        let text = "CONFIG_RD_XZ=y\n# CONFIG_RD_LZ4 is not set\nCONFIG_SQUASHFS_ZSTD=m\nCONFIG_RD_ZSTD=n\n\
                    CONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE=3\nCONFIG_PREEMPT=y\n";
        let options = KernelOptions::of_config(text);
        for (option, expected) in [
            ("CONFIG_RD_XZ", true),
            ("CONFIG_RD_LZ4", false),
            ("CONFIG_RD_ZSTD", false),
            ("CONFIG_RD_LZO", false),
            ("CONFIG_SQUASHFS_ZSTD", true),
            ("CONFIG_SQUASHFS_XZ", false),
        ] {
            assert_eq!(options.has(option), Some(expected), "{option}");
        }
        assert!(options.config.unwrap().iter().all(|option| option != "CONFIG_PREEMPT"), "kept without need");
    }

    #[test]
    fn by_its_messages_only_what_it_has() {
        let options = KernelOptions::of_messages(["CONFIG_RD_XZ"]);
        assert_eq!((options.has("CONFIG_RD_XZ"), options.has("CONFIG_RD_LZ4")), (Some(true), None));
        assert_eq!(KernelOptions::default().has("CONFIG_RD_XZ"), None);
    }

    #[test]
    fn where_it_lies() {
        let mut x86 = vec![0; 1024];
        x86[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
        x86[0x1f1] = 27;
        x86[0x248..0x24c].copy_from_slice(&700_u32.to_le_bytes());
        x86[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(kernel_proper(&x86), 28 * 512 + 700..28 * 512 + 700 + u64::from(u32::MAX));
        x86[0x206] = 7;
        assert!(kernel_proper(&x86).is_empty(), "older than this field");
        let zboot = [&b"MZ\0\0zimg"[..], &[0, 0x10, 0, 0, 9, 0, 0, 0], &[0; 64]].concat();
        assert_eq!(kernel_proper(&zboot), 0x1000..0x1009);
        assert_eq!(kernel_proper(b"MZ\0\0zimg"), 0..0);
        assert_eq!(kernel_proper(b"ARM"), 0..u64::MAX);
    }
}
