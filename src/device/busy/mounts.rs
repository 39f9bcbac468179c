//! Mounts and swap, of all mount namespaces that can be seen.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    devices::{Store, device_number},
    processes::{self, named},
};
use crate::device::kernel_text;

pub struct Mount {
    pub rdev: u64,
    /// Where, for people.
    pub place: String,
    /// A process that sees it there, if this one does not.
    pub seen_by: Option<u32>,
}

/// Every mount of a block device. A namespace without a process is not seen; the kernel's claim (`O_EXCL`) finds its
/// mounts all the same.
pub fn mounts() -> Vec<Mount> {
    let (mut mounts, mut seen) = (Vec::new(), BTreeSet::new());
    // A process that has another root sees other mounts of the same namespace.
    let view =
        |process: &Path| Some((fs::read_link(process.join("ns/mnt")).ok()?, fs::read_link(process.join("root")).ok()?));
    let mut views: BTreeSet<(PathBuf, PathBuf)> = BTreeSet::new();
    let own = PathBuf::from("/proc/self");
    let own_namespace = fs::read_link(own.join("ns/mnt")).ok();
    // Mounts whose paths people know come first: one path is told for each.
    for (pid, process) in [(0, own)].into_iter().chain(processes::all()) {
        // A view that may not be examined is read all the same.
        let view = view(&process);
        if view.as_ref().is_some_and(|view| !views.insert(view.clone())) {
            continue;
        }
        let Ok(text) = kernel_text(process.join("mountinfo")) else { continue };
        let ours = pid == 0 || view.is_some_and(|(namespace, _)| Some(namespace) == own_namespace);
        for (rdev, point) in text.lines().flat_map(mounted) {
            if seen.insert((rdev, point.clone())) {
                let whose = if ours { String::new() } else { format!(" in the mount namespace of {}", named(pid)) };
                mounts.push(Mount { rdev, place: format!("{point}{whose}"), seen_by: (!ours).then_some(pid) });
            }
        }
    }
    mounts
}

/// Where a device is mounted that [`xfs_mounts`] does not find, and what helps, in words.
pub fn out_of_reach(rdev: u64) -> Option<String> {
    let Mount { place, seen_by, .. } = mounts().into_iter().find(|mount| mount.rdev == rdev)?;
    Some(match seen_by {
        Some(pid) => {
            format!("it is mounted on {place}: run the same command there, as `nsenter --target {pid} --mount` does")
        }
        None => format!(
            "it is mounted on {place}, but for reading only, or another mount lies over it there: `mount -o remount,rw`, and run \
             the same command again"
        ),
    })
}

/// Mount points where this process sees the device's XFS mounted for writing.
pub fn xfs_mounts(rdev: u64) -> Vec<PathBuf> {
    let text = kernel_text("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|line| xfs_mount(line, rdev)).collect()
}

fn xfs_mount(line: &str, rdev: u64) -> Option<PathBuf> {
    let (mount, file_system) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let writable = |options: &str| options.split(',').any(|option| option == "rw");
    let mut of = file_system.split(' ');
    let is_xfs = of.next()? == "xfs" && writable(of.nth(1)?);
    let is_it = is_xfs && device_number(fields.get(2)?)? == rdev && writable(fields.get(5)?);
    is_it.then(|| unescaped(fields[4]).into())
}

// The kernel writes space, tab, newline and backslash as octal escapes.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (escape, is)| text.replace(escape, is))
}

// The device numbers that a line of mountinfo names, and the mount point (proc_pid_mountinfo(5)).
fn mounted(line: &str) -> Vec<(u64, String)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let (Some(number), Some(point)) = (fields.get(2), fields.get(4)) else { return vec![] };
    let point = unescaped(point);
    // btrfs and overlays have device numbers of their own. Their source field names the device.
    let source = fields.iter().position(|f| *f == "-").and_then(|dash| fields.get(dash + 2));
    let source = source.filter(|s| s.starts_with("/dev/")).and_then(|s| fs::metadata(s).ok()).map(|m| m.rdev());
    device_number(number).into_iter().chain(source).map(|rdev| (rdev, point.clone())).collect()
}

/// The devices and files that are used as swap.
pub fn swaps() -> Vec<Store> {
    let text = kernel_text("/proc/swaps").unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.filter_map(|path| Store::of_metadata(&fs::metadata(path.replace("\\040", " ")).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_xfs_for_writing() {
        let at = |line: &str| xfs_mount(line, nix::sys::stat::makedev(253, 7));
        let line = "36 35 253:7 / /a\\040b rw,noatime shared:1 - xfs /dev/vda7 rw,attr2";
        assert_eq!(at(line), Some("/a b".into()));
        for other in [("253:7", "253:6"), ("xfs", "ext4"), (" rw,noatime", " ro,noatime"), (" rw,attr2", " ro,attr2")] {
            assert_eq!(at(&line.replace(other.0, other.1)), None, "{other:?}");
        }
        assert_eq!(at(""), None);
    }
}
