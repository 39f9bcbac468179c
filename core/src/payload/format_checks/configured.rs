//! Checks that the kernel of a payload was built with the options that its files need.

use super::{Unbootable, squashfs::COMPRESSORS};
use crate::{
    kernel::config::{KernelOptions, MESSAGES},
    prelude::*,
};

/// An option that a file needs, and of which its kernel says neither that it has it nor that it lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The name of the file.
    pub file: String,
    /// Such as `CONFIG_SQUASHFS_ZSTD`.
    pub option: &'static str,
}

/// Options that this file needs and the kernel's own list leaves open. An error if the kernel lacks one of them.
pub fn configured(file: &str, needs: &[&'static str], kernel: &KernelOptions) -> Result<Vec<Unconfirmed>, Unbootable> {
    let mut unconfirmed = Vec::new();
    for option in needs {
        match kernel.has(option) {
            Some(true) => {}
            Some(false) => return Err(Unbootable::NotConfigured { option, instead: instead(option, kernel) }),
            None => unconfirmed.push(Unconfirmed { file: file.to_owned(), option }),
        }
    }
    Ok(unconfirmed)
}

/// The remedy for a kernel without this option.
fn instead(option: &str, kernel: &KernelOptions) -> String {
    let has = |option: &&str| kernel.has(option) == Some(true);
    let (how, names): (_, Vec<_>) = if option.starts_with("CONFIG_RD_") {
        // "CONFIG_RD_XZ" is for `xz`.
        let of = |option: &str| option.trim_start_matches("CONFIG_RD_").to_lowercase();
        ("compress it with", MESSAGES.iter().map(|(_, option)| *option).filter(has).map(of).collect())
    } else if option.starts_with("CONFIG_SQUASHFS_") {
        let known = COMPRESSORS.iter().filter(|(_, option)| has(option));
        ("make it with `mksquashfs -comp` and", known.map(|(name, _)| (*name).to_owned()).collect())
    } else {
        // The reason lies in the filters of xz.
        return "make it by xz without a filter for programs, or take a kernel that has this option".to_owned();
    };
    if names.is_empty() {
        return "take a kernel that has it".to_owned();
    }
    format!("{how} {}, which that kernel reads, or take a kernel that has this option", names.join(" or "))
}

/// One note about all of them.
pub fn unconfirmed_note(all: &[Unconfirmed]) -> Option<String> {
    let each =
        all.iter().map(|Unconfirmed { file, option }| format!("{file} can be read only by a kernel with {option}"));
    let each = each.collect::<Vec<_>>().join(", ");
    let why = "whether this payload's kernel has that is not known: its configuration is not in it (CONFIG_IKCONFIG)";
    (!each.is_empty()).then(|| format!("{each}; {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_and_what_to_do() {
        let kernel = KernelOptions::of_config(
            "CONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\nCONFIG_SQUASHFS_ZLIB=y\nCONFIG_SQUASHFS_LZ4=y\n",
        );
        let check = |option| configured("x", &[option], &kernel);
        for option in ["CONFIG_RD_GZIP", "CONFIG_SQUASHFS_LZ4"] {
            assert_eq!(check(option), Ok(vec![]), "{option}");
        }
        for (option, text) in [
            (
                "CONFIG_RD_XZ",
                "built without CONFIG_RD_XZ, which reading it takes; compress it with gzip or zstd, which that kernel",
            ),
            ("CONFIG_SQUASHFS_XZ", "mksquashfs -comp` and gzip or lz4, which that kernel reads"),
            ("CONFIG_XZ_DEC_X86", "without a filter for programs"),
        ] {
            let error = check(option).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let bare = configured("x", &["CONFIG_RD_XZ"], &KernelOptions::of_config("")).unwrap_err().to_string();
        assert!(bare.ends_with("; take a kernel that has it"), "{bare}");
    }

    #[test]
    fn what_is_not_known() {
        let kernel = KernelOptions::of_messages(["CONFIG_RD_XZ"]);
        assert_eq!(configured("initramfs.xz", &["CONFIG_RD_XZ"], &kernel), Ok(vec![]));
        let unconfirmed = configured("rootfs.squashfs", &["CONFIG_SQUASHFS_ZSTD"], &kernel).unwrap();
        assert_eq!(unconfirmed.len(), 1);
        // What is said of both is said once.
        let other = configured("initramfs.zst", &["CONFIG_RD_ZSTD"], &kernel).unwrap();
        let note = unconfirmed_note(&[unconfirmed, other].concat()).unwrap();
        assert!(
            note.starts_with(
                "rootfs.squashfs can be read only by a kernel with CONFIG_SQUASHFS_ZSTD, initramfs.zst can be read only by a \
                 kernel with CONFIG_RD_ZSTD; whether"
            ),
            "{note}"
        );
        assert_eq!(note.matches("CONFIG_IKCONFIG").count(), 1);
        assert_eq!(unconfirmed_note(&[]), None);
    }
}
