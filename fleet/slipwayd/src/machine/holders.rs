//! The users of a volume that cannot be unmounted: processes by working directory, root, program, open files and mapped
//! files, or by a mount in a namespace of their own; swap files, and loop devices. For people: nothing is decided by it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::mounts::{self, Dev, Mount, unescaped};

/// Holders that a message names.
const NAMED: usize = 10;

/// The mounts and devices to look for.
struct Wanted {
    /// The file systems.
    devices: BTreeSet<Dev>,
    /// Where they are mounted here.
    points: Vec<PathBuf>,
    /// Our mount namespace: a path means the same there.
    namespace: Option<PathBuf>,
}

/// The users of these mounts, or of their devices anywhere else.
pub fn describe(mounts: &[Mount], volume: &[Dev]) -> String {
    let wanted = Wanted {
        devices: mounts.iter().map(|mount| mount.dev).chain(volume.iter().copied()).collect(),
        points: mounts.iter().map(|mount| mount.point.clone()).collect(),
        namespace: fs::read_link("/proc/self/ns/mnt").ok(),
    };
    let mut found: Vec<String> = processes().filter_map(|(pid, dir)| wanted.of_process(pid, &dir)).collect();
    found.extend(
        swap_files().into_iter().filter(|file| wanted.has(file)).map(|file| format!("swap on {}", file.display())),
    );
    found.extend(
        loops()
            .into_iter()
            .filter(|(_, file)| wanted.has(file))
            .map(|(name, file)| format!("/dev/{name}, which is attached to {}", file.display())),
    );
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    if found.is_empty() { "no visible process".to_owned() } else { found.join("; ") }
}

/// The first process whose mount namespace has these devices mounted, where ours, which has the mounts `here`, has not.
/// An overlay on them has a device of its own, and its paths may mean nothing any more: so one that is nowhere here counts,
/// if nothing better is found.
pub fn elsewhere(volume: &[Dev], here: &[Mount]) -> Option<String> {
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let find = |is_wanted: &dyn Fn(&Mount) -> bool, what: &str| {
        processes().find_map(|(pid, dir)| {
            fs::read_link(dir.join("ns/mnt")).ok().filter(|namespace| *namespace != own)?;
            let point = mounted(&dir, is_wanted)?;
            Some(format!("{} has {what} mounted on {} in its mount namespace", named(pid, &dir), point.display()))
        })
    };
    let is_left = |mount: &Mount| mount.is_overlay() && here.iter().all(|of| of.dev != mount.dev);
    find(&|mount| volume.contains(&mount.dev), "it").or_else(|| find(&is_left, "an overlay that may lie on it"))
}

impl Wanted {
    fn of_process(&self, pid: u32, dir: &Path) -> Option<String> {
        let is_ours = fs::read_link(dir.join("ns/mnt")).ok() == self.namespace;
        let what = self.open(dir, is_ours).or_else(|| self.mapped(dir)).or_else(|| {
            let mount = mounted(dir, &|mount| self.devices.contains(&mount.dev)).filter(|_| !is_ours)?;
            Some(format!("mounted on {} in its mount namespace", mount.display()))
        })?;
        Some(format!("{}: {what}", named(pid, dir)))
    }

    /// Directories, the program, and open files.
    fn open(&self, dir: &Path, is_ours: bool) -> Option<String> {
        let links = [("works in", "cwd"), ("has its root in", "root"), ("runs", "exe")];
        let links = links.map(|(how, name)| (how, dir.join(name))).into_iter();
        let files = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        links.chain(files.map(|file| ("has open", file.path()))).find_map(|(how, link)| {
            let path = fs::read_link(&link).ok()?;
            // A file of an overlay need not have its device, but it has its path.
            let is_inside = is_ours && self.points.iter().any(|point| path.starts_with(point));
            (is_inside || self.has(&link)).then(|| format!("{how} {}", path.display()))
        })
    }

    fn mapped(&self, dir: &Path) -> Option<String> {
        let text = fs::read_to_string(dir.join("maps")).ok()?;
        text.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(3);
            let (major, minor) = fields.next()?.split_once(':')?;
            let number = |hex| u32::from_str_radix(hex, 16).ok();
            let dev = Dev { major: number(major)?, minor: number(minor)? };
            let path = fields.nth(1).unwrap_or("a file without a name");
            self.devices.contains(&dev).then(|| format!("has mapped {path}"))
        })
    }

    /// Whether this file lies on one of the devices, or is one.
    fn has(&self, file: &Path) -> bool {
        fs::metadata(file).is_ok_and(|of| [of.dev(), of.rdev()].into_iter().any(|n| self.devices.contains(&number(n))))
    }
}

/// As the kernel writes it.
pub fn number(dev: u64) -> Dev {
    Dev { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
}

fn mounted(dir: &Path, is_wanted: &dyn Fn(&Mount) -> bool) -> Option<PathBuf> {
    let text = fs::read(dir.join("mountinfo")).ok()?;
    let all = mounts::mounts(&String::from_utf8_lossy(&text)).ok()?;
    all.into_iter().find(is_wanted).map(|mount| mount.point)
}

fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)))
}

fn named(pid: u32, dir: &Path) -> String {
    let program = fs::read_to_string(dir.join("comm")).unwrap_or_default();
    format!("process {pid} ({})", program.trim())
}

fn swap_files() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| Some(unescaped(line.split_whitespace().next()?).into())).collect()
}

/// Loop devices, and the files behind them.
fn loops() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let behind = |entry: fs::DirEntry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), PathBuf::from(file.trim_end())))
    };
    entries.filter_map(behind).collect()
}
