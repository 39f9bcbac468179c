//! What the tests find: the things `hack/test` has built, and the host's programs.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
};

use tempfile::{NamedTempFile, TempDir};

use crate::times;

/// Version of the payload in `out/payload`.
pub const VERSION: &str = "1.0.0";
/// Version of the payload in `out/payload-2`.
pub const VERSION_2: &str = "1.1.0";
/// Version of the payload in `out/payload-watchdog`, whose kernel drives QEMU's watchdog.
pub const VERSION_WATCHDOG: &str = "1.2.0";

/// Paths of what `hack/test` has built.
pub struct World {
    /// The static binary.
    pub installer: PathBuf,
    /// The boot loaders, in a directory per architecture.
    pub assets: PathBuf,
    payloads: [PathBuf; 3],
    payload_arm64: PathBuf,
}

impl World {
    /// The one there is.
    pub fn get() -> &'static World {
        static WORLD: OnceLock<World> = OnceLock::new();
        times::begin();
        WORLD.get_or_init(|| World {
            installer: built("out/installer", None),
            assets: built("out/assets", Some("amd64/SHA256SUMS")),
            payloads: ["out/payload", "out/payload-2", "out/payload-watchdog"]
                .map(|path| built(path, Some("SHA256SUMS"))),
            payload_arm64: built("out/payload-arm64", Some("SHA256SUMS")),
        })
    }

    /// The payload, with checksums, of a version.
    pub fn payload(&self, version: &str) -> &Path {
        match version {
            VERSION => &self.payloads[0],
            VERSION_2 => &self.payloads[1],
            VERSION_WATCHDOG => &self.payloads[2],
            other => panic!("there is no payload {other}"),
        }
    }

    /// The payload, with checksums, of a version of one of the systems in `examples`.
    pub fn system(&self, name: &str, version: &str) -> PathBuf {
        built(&format!("out/systems/{name}-{version}"), Some("SHA256SUMS"))
    }

    /// A program that a node of the fleet has.
    pub fn node_program(&self, name: &str) -> PathBuf {
        built(&format!("out/node/{name}"), None)
    }

    /// The payload, with checksums, of the first version for an architecture.
    pub fn payload_for(&self, arch: &str) -> &Path {
        match arch {
            "amd64" => self.payload(VERSION),
            "arm64" => &self.payload_arm64,
            other => panic!("there is no payload for {other}"),
        }
    }

    /// The second version for arm64, which only the campaign has.
    pub fn next_payload_for_arm64(&self) -> PathBuf {
        built("out/payload-arm64-2", Some("SHA256SUMS"))
    }

    /// systemd's stub for an architecture, if it is not where the installer looks for it.
    pub fn stub_for(&self, arch: &str) -> Option<PathBuf> {
        (arch == "arm64").then(|| built("out/stub-arm64/linuxaa64.efi.stub", None))
    }
}

/// A path in the project that must be there, and whole: `last` is the file in it that is made last.
fn built(path: &str, last: Option<&str>) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let probe = last.map_or_else(|| path.clone(), |last| path.join(last));
    assert!(probe.exists(), "{} is missing: run hack/test, it builds what these tests need", probe.display());
    // mksquashfs names what it packs by the last part of the path.
    path.canonicalize().expect("a path that exists can be resolved")
}

/// A firmware file of the host.
pub fn firmware_file(path: &str) -> &Path {
    let path = Path::new(path);
    assert!(path.exists(), "{} is missing: run hack/test, it installs what these tests need", path.display());
    path
}

/// A new directory for large files, in cargo's target directory: /tmp may be in memory.
pub fn scratch_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory can be made")
}

/// A directory of this name in the same place, for what the tests of this process share. It is left there at the end, and
/// removed by the next process: what is in it is of this installer and this QEMU.
pub fn fresh_dir(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in fs::read_dir(place).expect("cargo made it").flatten() {
        let file = entry.file_name();
        let owner = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('.')?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let dir = place.join(format!("{name}.{}", process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("a directory can be made");
    dir
}

/// A new empty file in the same place.
pub fn scratch_file() -> NamedTempFile {
    NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file can be made")
}

/// The result of a program that ran to its end.
pub struct Ended {
    /// Exit code; -1 for one killed by a signal.
    pub code: i32,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: String,
}

/// Run a program to its end, whatever that is.
pub fn run_to_end<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Ended {
    let name = program.as_ref().display().to_string();
    let output = Command::new(program.as_ref()).args(args).output();
    let output = output
        .unwrap_or_else(|e| panic!("{name} cannot be started ({e}): run hack/test, it installs what these tests need"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ended { code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
}

/// Run a program that must succeed; its stdout.
pub fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Vec<u8> {
    let name = program.as_ref().display().to_string();
    let ended = run_to_end(program, args);
    let stdout = || String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.code == 0, "{name} failed, exit code {}:\n{}{}", ended.code, stdout(), ended.stderr);
    ended.stdout
}
