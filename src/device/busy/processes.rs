//! Processes that have a file or a device open.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::devices::Store;
use crate::device::kernel_text;

/// All that can be seen, but for this one: their numbers and directories in /proc.
pub fn all() -> impl Iterator<Item = (u32, PathBuf)> {
    let number = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<(u32, PathBuf)> = entries.filter_map(|path| Some((number(&path)?, path))).collect();
    all.retain(|(pid, _)| *pid != std::process::id());
    all.sort_unstable();
    all.into_iter()
}

/// Name of the program.
pub fn comm(pid: u32) -> String {
    kernel_text(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// As `process 123 (dd)`.
pub fn named(pid: u32) -> String {
    format!("process {pid} ({})", comm(pid))
}

/// The process that has one of these open, or the first of several, with a descriptor whose `fdinfo` is as wanted (proc_pid_fdinfo(5)), and
/// which of them.
pub fn with_open(stores: &[Store], wanted: impl Fn(&str) -> bool) -> Option<(u32, usize)> {
    let opened = |process: &Path| {
        let mut descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        descriptors.find_map(|descriptor| {
            // Follows the link to the open file, also if its path is gone.
            let open = Store::at(&descriptor.path())?;
            let which = stores.iter().position(|store| *store == open)?;
            let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).unwrap_or_default();
            wanted(&info).then_some(which)
        })
    };
    if stores.is_empty() {
        return None;
    }
    let found: Vec<_> = all().filter_map(|(pid, process)| Some((pid, opened(&process)?))).collect();
    // A child has its parent's descriptors, too, until it runs another program. Name the parent, which opened them.
    let is_heir = |pid| parent(pid).is_some_and(|parent| found.iter().any(|(other, _)| *other == parent));
    found.iter().find(|(pid, _)| !is_heir(*pid)).copied()
}

/// The process that has started this one (proc_pid_stat(5)).
fn parent(pid: u32) -> Option<u32> {
    let stat = kernel_text(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in brackets, may have anything in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a descriptor was opened for writing, by its `fdinfo`.
pub fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
    flags.and_then(|octal| u32::from_str_radix(octal, 8).ok()).is_some_and(|flags| flags & 3 != 0)
}
