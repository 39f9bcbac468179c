//! Files in a payload's directory that nothing uses: a misspelt name is otherwise found when the system does not start.

use crate::prelude::*;

use super::{
    format_checks::is_initramfs,
    manifest::{INITRAMFS, KERNEL, MANIFEST, ROOTFS, SHA256SUMS, SHA256SUMS_SIG, UKI},
};
use crate::text::printable;

/// The optional text files of a payload.
pub const TEXTS: [&str; 2] = ["cmdline", "os-release"];

// A directory that holds much else is not told file by file.
const MOST_NAMED: usize = 8;
// Limit of wrong letters in a name.
const MISSPELT: usize = 2;

/// Whether a file of this name goes into a slot.
pub fn is_installed(name: &str) -> bool {
    name == KERNEL || name == ROOTFS || name == UKI || is_initramfs(name)
}

/// Whether a file of this name is used, so that SHA256SUMS has to list it. Of several initramfs, only the first is.
pub fn is_used(name: &str) -> bool {
    is_installed(name) || (is_small(name) && name != SHA256SUMS_SIG)
}

/// Whether this file is read into memory.
pub fn is_small(name: &str) -> bool {
    name == SHA256SUMS || name == SHA256SUMS_SIG || name == MANIFEST || TEXTS.contains(&name)
}

/// Whether distributions call a kernel so, as `vmlinuz-6.1.0`, `bzImage` or `kernel`. `vmlinux` is one that nothing starts.
pub fn is_other_kernel(name: &str) -> bool {
    let name = name.to_lowercase();
    ["vmlinuz", "bzimage", "kernel", "linux", "image"].iter().any(|stem| is_called(&name, stem))
}

/// The same of an initramfs.
pub fn is_other_initramfs(name: &str) -> bool {
    let name = name.to_lowercase();
    ["initrd", "initramfs"].iter().any(|stem| name.starts_with(stem))
}

/// The same of a root file system, of whatever name.
pub fn is_other_rootfs(name: &str) -> bool {
    let name = name.to_lowercase();
    name != ROOTFS && [".squashfs", ".sqfs", ".sfs", ".squash"].iter().any(|end| name.ends_with(end))
}

/// Alone, with a version, or packed.
fn is_called(name: &str, stem: &str) -> bool {
    let is_end = |rest: &str| rest.starts_with(['-', '_']) || ["", ".efi", ".gz", ".xz", ".zst"].contains(&rest);
    name.strip_prefix(stem).is_some_and(is_end)
}

/// A note on the files that nothing uses; none if there are no such files.
pub fn unused(names: &[String]) -> Option<String> {
    let there = |name: &str| names.iter().any(|n| n == name);
    let initramfs = INITRAMFS.into_iter().find(|name| there(name));
    let hint = |name: &str| match initramfs {
        Some(first) if is_initramfs(name) => format!(" ({first} is used instead)"),
        _ => meant(name, &there).map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default(),
    };
    let is_unused = |name: &&String| {
        !(is_used(name) || *name == SHA256SUMS_SIG) || (is_initramfs(name) && initramfs != Some(name.as_str()))
    };
    let all: Vec<&String> = names.iter().filter(is_unused).collect();
    let mut told: Vec<String> =
        all.iter().take(MOST_NAMED).map(|name| format!("{}{}", printable(name), hint(name))).collect();
    if all.len() > MOST_NAMED {
        told.push(format!("{} more", all.len() - MOST_NAMED));
    }
    (!told.is_empty()).then(|| format!("nothing uses these files of the payload: {}", told.join(", ")))
}

/// The name that this one may have been meant for: it is not there, and looks the same up to the first dot, or nearly.
fn meant(name: &str, there: &dyn Fn(&str) -> bool) -> Option<&'static str> {
    let used = [ROOTFS, KERNEL, UKI, "cmdline", "os-release", SHA256SUMS, MANIFEST];
    let missing_initramfs = (!INITRAMFS.into_iter().any(there)).then_some(INITRAMFS[0]);
    let missing = used.into_iter().filter(|used| !there(used)).chain(missing_initramfs);
    let own = stem(name);
    let distances = missing.map(|used| (distance(&own, &stem(used)), used));
    distances.filter(|(distance, _)| *distance <= MISSPELT).min().map(|(_, used)| used)
}

// Letters and digits before the first dot.
fn stem(name: &str) -> Vec<char> {
    let stem = name.split('.').next().unwrap_or(name);
    stem.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(32).collect()
}

// Letters to add, drop or change (Levenshtein).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(names: &[&str]) -> Option<String> {
        unused(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_of_a_payload_is_used() {
        let all = [KERNEL, INITRAMFS[1], ROOTFS, UKI, "cmdline", "os-release", SHA256SUMS, SHA256SUMS_SIG, MANIFEST];
        assert_eq!(note(&all), None);
        assert_eq!(note(&[]), None);
    }

    #[test]
    fn what_may_have_been_meant() {
        let hint = |name: &str| {
            let note = note(&[KERNEL, "initramfs.xz", name]).unwrap();
            note.split_once("did you mean ").map(|(_, rest)| rest.trim_end_matches("?)").to_owned())
        };
        for (name, meant) in [
            ("rootfs.sqfs", Some(ROOTFS)),
            ("rootfs.squashfs.bak", Some(ROOTFS)),
            ("root.squashfs", Some(ROOTFS)),
            ("cmd-line", Some("cmdline")),
            ("cmdline.txt", Some("cmdline")),
            ("CMDLINE", Some("cmdline")),
            ("os_release", Some("os-release")),
            ("SHA256SUM", Some(SHA256SUMS)),
            ("manifest.yaml", Some(MANIFEST)),
            ("README.md", None),
            ("vmlinux", None),
        ] {
            assert_eq!(hint(name).as_deref(), meant, "{name}");
        }
    }

    #[test]
    fn what_distributions_call_them() {
        for name in ["vmlinuz-6.1", "VMLINUZ", "bzImage", "Image.gz", "kernel", "linux-6.12.1"] {
            assert!(is_other_kernel(name), "{name}");
        }
        for name in ["vmlinux", "kernel.config", "image.txt", "linuxrc", "README.md"] {
            assert!(!is_other_kernel(name), "{name}");
        }
        assert!(is_other_initramfs("initrd.img-6.1") && !is_other_initramfs("init"));
        assert!(is_other_rootfs("filesystem.squashfs") && !is_other_rootfs(ROOTFS) && !is_other_rootfs("root.img"));
    }

    #[test]
    fn a_second_initramfs_and_many_others() {
        assert_eq!(
            note(&["initramfs.zst", "initramfs.xz", "initrd\x1b[2J", KERNEL]).unwrap(),
            "nothing uses these files of the payload: initramfs.zst (initramfs.xz is used instead), initrd\\x1b[2J"
        );
        let many: Vec<String> = (0..20).map(|n| format!("file-{n}")).collect();
        let text = unused(&many).unwrap();
        assert!(text.contains("file-7") && text.ends_with(", 12 more"), "{text}");
    }
}
