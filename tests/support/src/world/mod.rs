//! The parts that the tests of the finished program share: a payload, disk images, block devices, other programs.
//!
//! Whatever is made here goes away with its guard, also when a test panics, and no device is touched that
//! was not made here. They need root: loop devices, mounts and partition nodes are the kernel's own.

mod content;
mod devices;
mod nobody;
mod node;
mod payload;
mod programs;

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use assert_cmd::Command;
use serde_json::Value;
use slipway_core::units::MIB;
use tempfile::TempDir;

pub use self::{
    content::{Content, Range, extract, flip, read_at, write_at},
    devices::{Loop, Mount, Partition, Running, SmallFs, Swap, wait_until_unclaimed},
    nobody::{NOBODY, Nobody},
    node::Node,
    payload::{Payload, noise},
    programs::{Outcome, assert_clean_fat, finished, finished_bytes, program, tool},
};
use crate::project;

/// Room for two slots of [`SLOT`] and the smallest EPHEMERAL of an image file.
pub const IMAGE_BYTES: u64 = 600 * MIB;
/// The slot size tests install with unless they say otherwise.
pub const SLOT: &str = "--slot-size=64MiB";
/// The same on 4096-byte sectors, where FAT32 needs larger slots.
pub const SLOT_4096: &str = "--slot-size=260MiB";
/// [`IMAGE_BYTES`] for slots of [`SLOT_4096`].
pub const IMAGE_BYTES_4096: u64 = 1000 * MIB;
/// Room for [`SLOT`] or [`SLOT_4096`] and the smallest EPHEMERAL of a real disk.
pub const DISK_BYTES: u64 = 3072 * MIB;
/// No command of these tests takes anywhere near this long; one that does hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A directory with a payload, and room for images. Gone when dropped.
pub struct World {
    dir: TempDir,
    pub payload: Payload,
}

impl World {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let payload = Payload::new(&dir.path().join("payload"));
        World { dir, payload }
    }

    /// A path for whatever a test makes.
    pub fn path(&self, name: &str) -> PathBuf {
        // The program reports paths with links resolved.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// An empty disk image.
    pub fn image(&self) -> PathBuf {
        self.sparse("disk.img", IMAGE_BYTES)
    }

    /// A file of zeros that takes no room.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// Run `install` with this payload onto a disk. Unless `extra` says otherwise: small slots, no data file
    /// systems, no progress.
    pub fn install(&self, disk: &Path, extra: &[&str]) -> Outcome {
        Outcome::of(&mut self.install_command(disk, extra))
    }

    /// The same, not run yet.
    pub fn install_command(&self, disk: &Path, extra: &[&str]) -> Command {
        installer(self.install_args(disk, extra))
    }

    /// Its arguments.
    pub fn install_args(&self, disk: &Path, extra: &[&str]) -> Vec<String> {
        let mut args = vec!["install".to_owned(), format!("--disk={}", disk.display())];
        let source = format!("--source={}", self.payload.source());
        let flag = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        for default in [source.as_str(), SLOT, "--format-data=false", "--progress=none"] {
            if !extra.iter().any(|arg| flag(arg) == flag(default)) {
                args.push(default.to_owned());
            }
        }
        args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        args
    }

    /// The program under a kernel command line, in a mount namespace of its own and after these commands (`&& …`) in it.
    pub fn command_under(&self, cmdline: impl AsRef<[u8]>, before: &str, args: &[&str]) -> Command {
        let file = self.path("cmdline");
        fs::write(&file, cmdline).unwrap();
        installer_in(&format!("mount --bind {} /proc/cmdline {before} && exec \"$@\"", file.display()), args)
    }

    /// An image with this payload installed.
    pub fn installed(&self, extra: &[&str]) -> PathBuf {
        let image = self.image();
        self.install(&image, extra).succeeds();
        image
    }
}

/// The boot assets. Only hack/test makes them, so a test that lacks them says so and fails.
pub fn assets() -> PathBuf {
    let dir = project().join("out/assets");
    assert!(dir.is_dir(), "{} is missing: run hack/test, which builds the boot assets first", dir.display());
    dir
}

/// Bytes of one boot asset.
pub fn asset(name: &str) -> Vec<u8> {
    fs::read(assets().join("amd64").join(name)).unwrap()
}

/// The kernel of a payload that `hack/test` builds: `payload`, `payload-arm64`.
pub fn real_kernel(payload: &str) -> Vec<u8> {
    let path = project().join("out").join(payload).join(Payload::KERNEL);
    fs::read(&path)
        .unwrap_or_else(|e| panic!("{}: {e}: run hack/test, which builds the payloads first", path.display()))
}

/// The program under test: cargo builds it into the directory above that of the test programs.
pub fn installer_path() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("installer");
    assert!(path.is_file(), "{} is missing: only cargo runs these tests, which builds it first", path.display());
    path
}

/// The program under test.
pub fn installer<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(installer_path());
    command.args(args).env("SLIPWAY_ASSETS", assets()).timeout(PATIENCE);
    command
}

/// The program under test as `"$@"` of a shell script in a mount namespace of its own.
pub fn installer_in<S: AsRef<OsStr>>(script: &str, args: impl IntoIterator<Item = S>) -> Command {
    installer_by(&["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, "sh"], args)
}

/// The program under test, started by another one, which gets it behind its own arguments.
pub fn installer_by<S: AsRef<OsStr>>(starter: &[&str], args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(installer_path());
    command.args(args).env("SLIPWAY_ASSETS", assets()).timeout(PATIENCE);
    command
}

/// Run a verb that takes `--disk`.
pub fn on_disk(disk: &Path, args: &[&str]) -> Outcome {
    Outcome::of(installer(args).arg("--disk").arg(disk))
}

/// What `--output json` of a verb that takes `--disk` says. It succeeds, or is a `status` that lists problems.
#[track_caller]
pub fn json_of(disk: &Path, args: &[&str]) -> Value {
    let outcome = Outcome::of(installer(args).args(["--output", "json", "--disk"]).arg(disk));
    if args.first() != Some(&"status") || outcome.code == 0 {
        return outcome.succeeds().json();
    }
    let report = outcome.exits(7).json();
    assert_ne!(report["problems"], Value::Array(vec![]), "exit code 7, and no problem is listed");
    report
}

/// Offset and length of a partition, as `status` tells them.
pub fn partition(disk: &Path, name: &str) -> Range {
    let status = json_of(disk, &["status"]);
    let part = &status["partitions"][name];
    Range { offset: part["offset"].as_u64().unwrap(), len: part["len"].as_u64().unwrap() }
}

/// Refused with this exit code and these words, and not a byte written.
#[track_caller]
pub fn refused(disk: &Path, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = Content::of(disk);
    attempt().exits(code).says(texts);
    assert!(Content::of(disk) == before, "{} was written to", disk.display());
}

/// The same for a block device.
#[track_caller]
pub fn refused_on(disk: &Loop, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = disk.content();
    attempt().exits(code).says(texts);
    assert!(disk.content() == before, "{} was written to", disk.node.display());
}
