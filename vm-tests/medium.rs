//! Media that the reference OS finds something on.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    qemu::Drive,
    world::{World, run, scratch_dir},
};

/// Media are as large as a multiple of this.
const SIZES: u64 = 128 << 20;

/// A squashfs with a payload and more. It is gone when this is dropped.
pub struct Medium {
    _dir: TempDir,
    file: PathBuf,
    serial: &'static str,
}

impl Medium {
    /// For the agent: it upgrades to this version, with more arguments for `installer upgrade`.
    pub fn with_upgrade(version: &str, args: &[&str]) -> Self {
        Self::with_upgrade_to(World::get().payload(version), args)
    }

    /// The same to any payload.
    pub fn with_upgrade_to(payload: &Path, args: &[&str]) -> Self {
        let dir = scratch_dir();
        let list = dir.path().join("upgrade-args");
        let lines: String = args.iter().map(|arg| format!("{arg}\n")).collect();
        fs::write(&list, lines).expect("a temporary file can be written");
        let payload = copy_directory(&dir, payload);
        Self::pack(dir, "slipway-payload", &[&list, &payload])
    }

    /// A payload in the directory `payload`, for tests that look for it there.
    pub fn with_payload(payload: &Path) -> Self {
        let dir = scratch_dir();
        let payload = copy_directory(&dir, payload);
        Self::pack(dir, "slipway-payload", &[&payload])
    }

    /// A job, the script that is run, and files for it; a payload is among them.
    pub fn with_job(script: &Path, version: &str, files: &[&Path]) -> Self {
        Self::with_job_and(World::get().payload(version), script, files)
    }

    /// The same with any payload.
    pub fn with_job_and(payload: &Path, script: &Path, files: &[&Path]) -> Self {
        let dir = scratch_dir();
        let payload = copy_directory(&dir, payload);
        Self::job(dir, script, &[&[payload.as_path()], files].concat())
    }

    /// A job, the script that is run, and files for it, which may lie in `dir`.
    pub fn job(dir: TempDir, script: &Path, files: &[&Path]) -> Self {
        let job = dir.path().join("run.sh");
        fs::copy(script, &job).expect("the script can be copied");
        fs::set_permissions(&job, fs::Permissions::from_mode(0o755)).expect("the script can be made executable");
        Self::pack(dir, "slipway-run", &[&[job.as_path()], files].concat())
    }

    /// As a disk to plug in.
    pub fn drive(&self) -> Drive<'_> {
        Drive::new(&self.file).serial(self.serial)
    }

    fn pack(dir: TempDir, serial: &'static str, files: &[&Path]) -> Self {
        let file = dir.path().join("medium.squashfs");
        // Not compressed: that takes longer than it saves.
        let options =
            ["-noI", "-noD", "-noF", "-noX", "-no-xattrs", "-all-root", "-keep-as-directory", "-quiet", "-no-progress"];
        let paths = files.iter().copied().chain([file.as_path()]).map(Path::as_os_str);
        run("mksquashfs", paths.chain(options.map(OsStr::new)));
        // Disks of one size make machines of one shape: see `firmware`.
        let medium = File::options().write(true).open(&file).expect("the medium can be opened");
        let bytes = medium.metadata().expect("it has a size").len();
        medium.set_len(bytes.next_multiple_of(SIZES)).expect("it can be made larger");
        Medium { _dir: dir, file, serial }
    }
}

/// A payload in a directory `payload`: mksquashfs takes the name of a directory as it is.
fn copy_directory(dir: &TempDir, from: &Path) -> PathBuf {
    let payload = dir.path().join("payload");
    run("cp", [OsStr::new("-r"), from.as_os_str(), payload.as_os_str()]);
    payload
}

/// A cpio archive of these files of a directory.
pub fn cpio(dir: &Path, names: &[&str]) -> Vec<u8> {
    let mut command = Command::new("cpio");
    command.args(["--quiet", "-o", "-H", "newc", "-R", "0:0"]).current_dir(dir);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cpio is installed");
    let mut stdin = child.stdin.take().expect("the pipe was asked for");
    writeln!(stdin, "{}", names.join("\n")).expect("cpio reads names");
    drop(stdin);
    let output = child.wait_with_output().expect("cpio ends");
    assert!(output.status.success(), "cpio failed");
    output.stdout
}
