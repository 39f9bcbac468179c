//! The last words of a kernel that panicked, where the firmware kept them. They say how a trial ended.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use slipway_core::{
    boot::{history::Ending, running::Running},
    plan::SystemFacts,
};

/// The directory where the kernel shows the firmware's records, and the one where systemd-pstore(8) moves them.
const PSTORE: [&str; 2] = ["/sys/fs/pstore", "/var/lib/systemd/pstore"];
/// The end of a kernel's log: a panic comes with a backtrace.
const TAIL_BYTES: u64 = 16 << 10;
/// Directories below that of systemd-pstore, and files in each.
const MAX_DEPTH: usize = 2;
const MAX_FILES: usize = 256;

/// The last words of the kernel whose trial is over, as far as this machine kept them.
pub fn panic(system: &SystemFacts) -> Option<String> {
    let env = system.env.as_ref()?;
    // On any other disk it would be another machine's.
    let Running::This { .. } = system.running else { return None };
    let (slot, how) = system.history.as_ref()?.over(env, system.running)?;
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(env.since[slot]?))?;
    (how == Ending::NotConfirmed).then(|| last_panic(&PSTORE.map(Path::new), since)).flatten()
}

/// The kernels' last words that this machine kept.
pub fn dumps() -> Vec<PathBuf> {
    let mut dumps = Vec::new();
    PSTORE.iter().for_each(|dir| find_dumps(Path::new(dir), MAX_DEPTH, &mut dumps));
    dumps.sort();
    dumps.into_iter().map(|(_, path)| path).collect()
}

/// The line that says why the kernel panicked, in the oldest of the dumps that are not older than `since`: the trial is
/// the first boot after that. Later ones are another system's.
fn last_panic(dirs: &[&Path], since: SystemTime) -> Option<String> {
    let mut dumps = Vec::new();
    dirs.iter().for_each(|dir| find_dumps(dir, MAX_DEPTH, &mut dumps));
    dumps.retain(|(time, _)| *time >= since);
    dumps.sort();
    dumps.iter().find_map(|(_, path)| panic_line(&tail(path).ok()?))
}

fn find_dumps(dir: &Path, depth: usize, dumps: &mut Vec<(SystemTime, PathBuf)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_FILES) {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() && depth > 0 {
            find_dumps(&entry.path(), depth - 1, dumps);
        } else if meta.is_file() && entry.file_name().to_string_lossy().starts_with("dmesg") {
            dumps.extend(meta.modified().ok().map(|time| (time, entry.path())));
        }
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    // Files of pstore cannot be read from the middle on some kernels; they are small.
    let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(from)).is_err() {
        file.rewind()?;
    }
    file.take(TAIL_BYTES * 4).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `Kernel panic - not syncing: …`, without the kernel's prefix of a line.
fn panic_line(log: &str) -> Option<String> {
    const BEGINS: [&str; 3] = ["Kernel panic", "Oops", "BUG:"];
    BEGINS.iter().find_map(|begin| {
        let mut lines = log.lines().filter_map(|line| line.find(begin).map(|at| line[at..].trim_end().to_owned()));
        // The kernel says it once more at the end.
        lines.find(|line| !line.starts_with("Kernel panic - end"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_since_the_trial_was_armed() {
        let dir = tempfile::TempDir::new().unwrap();
        let (sys, var) = (dir.path().join("sys"), dir.path().join("var"));
        let boot = var.join("1700000000/0");
        [&sys, &boot].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        let write = |path: PathBuf, text: &str, at: u64| {
            fs::write(&path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        let found = |since: u64| last_panic(&[&sys, &var], SystemTime::UNIX_EPOCH + Duration::from_secs(since));
        assert_eq!(found(0), None);
        let log = "Panic#1 Part1\n<0>[    3.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x100\n\
                   <4>[    3.2] CPU: 0\n<0>[ 3.3] ---[ end Kernel panic - not syncing: Attempted to kill init! ]---\n";
        write(boot.join("dmesg.txt"), log, 1000);
        write(sys.join("console-ramoops-0"), "Kernel panic - not syncing: of another kind\n", 3000);
        let text = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x100";
        assert_eq!(found(1000).as_deref(), Some(text));
        assert_eq!(found(1001), None, "it is older than the trial");
        write(sys.join("dmesg-efi_pstore-1"), "<0>[1.0] Kernel panic - not syncing: VFS\n", 2000);
        assert_eq!(found(0).as_deref(), Some(text), "the next one is of a later boot");
        assert_eq!(found(1001).as_deref(), Some("Kernel panic - not syncing: VFS"));
        write(sys.join("dmesg-efi_pstore-0"), "no such line\n", 1500);
        assert_eq!(found(1001).as_deref(), Some("Kernel panic - not syncing: VFS"));
    }
}
