//! An OCI runtime, runc or crun, on a node without containerd. Its containers are kept in a directory of our own, and all
//! that is in it goes when the work is done. OCI runtime specification 1.0.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::{Value, json};
use slipway_core::digest::Sha256;

use super::{
    image::{EFIVARS, Engine, PROGRAM, WITHOUT, container_name},
    installer::{InstallError, Place},
    unpack::unpack,
};
use crate::world::Watcher;

/// All Linux capabilities, in the order of their numbers. capability.h of Linux 5.9, which is the last that has new ones.
const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The configuration's part about a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The program.
    pub program: PathBuf,
    /// Where an image lies while its installer runs, in directories that are removed afterwards.
    pub images: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self { program: "/usr/bin/runc".into(), images: "/var/lib/slipway".into() }
    }
}

/// The runtime, with its containers.
#[derive(Debug)]
pub struct Runtime {
    program: PathBuf,
    /// The runtime's state of containers.
    containers: PathBuf,
    /// An image's root, and how its installer runs.
    bundle: PathBuf,
}

impl Runtime {
    /// Nothing is run yet.
    pub fn new(config: &Config) -> Self {
        let at = |name: &str| config.images.join(name);
        Self { program: config.program.clone(), containers: at("containers"), bundle: at("bundle") }
    }

    /// Run it and return its standard output.
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let shown = || format!("{} {}", self.program.display(), args.join(" "));
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.containers).args(args).stdin(Stdio::null());
        let output = command.output().map_err(|e| format!("{} cannot be run: {e}", shown()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.trim().lines().next_back().unwrap_or_default();
        Err(format!("{} ended with {}: {last}", shown(), output.status))
    }

    fn list(&self) -> Result<Vec<String>, String> {
        if !self.containers.exists() {
            return Ok(Vec::new());
        }
        Ok(self.run(&["list", "--quiet"])?.lines().map(str::to_owned).collect())
    }
}

impl Engine for Runtime {
    fn is_there(&self) -> bool {
        self.run(&["--version"]).is_ok()
    }

    fn clear(&self) -> Result<(), String> {
        let mut why = String::new();
        for name in self.list()? {
            if let Err(e) = self.run(&["delete", "--force", &name]) {
                why = e;
            }
        }
        if let Some(name) = self.list()?.first() {
            return Err(format!("an earlier installer is left in the container {name}: {why}"));
        }
        [&self.bundle, &self.containers].into_iter().try_for_each(|directory| match fs::remove_dir_all(directory) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("{}: {e}", directory.display())),
            _ => Ok(()),
        })
    }

    fn import(&self, layout: &Path, manifest: Sha256, watcher: &dyn Watcher) -> Result<String, InstallError> {
        let unpacked = unpack(layout, manifest, &self.bundle.join("rootfs"), watcher);
        let env = unpacked.map_err(|e| match e.kind() {
            _ if watcher.wants_end() => InstallError::Transient("the operation is to end".to_owned()),
            io::ErrorKind::InvalidData => InstallError::Permanent(format!("the image cannot be unpacked: {e}")),
            _ => InstallError::Transient(format!("the image cannot be unpacked into {}: {e}", self.bundle.display())),
        })?;
        let held = held().map_err(|e| InstallError::Transient(format!("/proc/self/status cannot be read: {e}")))?;
        let text = spec(&env, held, Path::new(EFIVARS).is_dir()).to_string();
        fs::write(self.bundle.join("config.json"), text)
            .map_err(|e| InstallError::Transient(format!("{}: {e}", self.bundle.display())))?;
        Ok(self.bundle.display().to_string())
    }

    fn place(&self, _image: &str) -> Arc<dyn Place> {
        let (program, containers, bundle) = (self.program.clone(), self.containers.clone(), self.bundle.clone());
        Arc::new(Run { program, containers, bundle })
    }

    fn judged(&self, why: String) -> InstallError {
        match self.run(&["--version"]) {
            Ok(_) => InstallError::Permanent(why),
            Err(gone) => InstallError::Transient(format!("{why}; {gone}")),
        }
    }
}

/// `run` of a bundle. It passes signals on to the installer.
#[derive(Debug)]
struct Run {
    program: PathBuf,
    containers: PathBuf,
    bundle: PathBuf,
}

impl Place for Run {
    /// A container's arguments are in its bundle.
    fn command(&self, args: &[OsString]) -> io::Result<Command> {
        let path = self.bundle.join("config.json");
        let mut spec: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
        spec["process"]["args"] = [PROGRAM.to_owned()].into_iter().chain(args).collect();
        fs::write(&path, spec.to_string())?;
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.containers).args(["run", "--bundle"]).arg(&self.bundle).arg(container_name());
        Ok(command)
    }
}

/// The capabilities that this process has, as bits: more cannot be given away.
fn held() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).ok_or_else(|| io::Error::other("it has no CapEff"))
}

/// The settings of the installer's run, but for its arguments.
fn spec(env: &[String], held: u64, has_efivars: bool) -> Value {
    let held = CAPABILITIES.into_iter().enumerate().filter(|(bit, _)| held >> bit & 1 == 1);
    let capabilities: Vec<_> = held.map(|(_, name)| name).filter(|name| !WITHOUT.contains(name)).collect();
    let quiet = ["nosuid", "noexec", "nodev"];
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": quiet}),
        json!({"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind", "rw"]}),
        json!({"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=755"]}),
    ];
    if has_efivars {
        let options = [&quiet[..], &["rw", "relatime"]].concat();
        mounts.push(json!({"destination": EFIVARS, "type": "efivarfs", "source": "efivarfs", "options": options}));
    }
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [PROGRAM],
            "env": env,
            "cwd": "/",
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        // Namespaces that are not named here are the host's. Devices that are not allowed are forbidden.
        "linux": {
            "namespaces": [{"type": "mount"}],
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        },
    })
}
