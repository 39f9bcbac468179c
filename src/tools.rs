//! All external programs. No other module starts one.

pub mod limited;
mod no_zeroing;
pub mod shell;
pub mod systemd;

use std::{
    ffi::{CStr, OsStr},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _},
    os::unix::process::CommandExt as _,
    path::{self, Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    signal::SigSet,
};

use crate::cleanup;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    MkfsXfs,
    QemuImg,
    Xorrisofs,
    // The same program as xorrisofs. Under this name it reads ISOs.
    Xorriso,
    Systemctl,
    SystemdAnalyze,
    SystemdRun,
    Busctl,
    Journalctl,
    Openssl,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{name} is not installed: {}", package(.1), name = .0)]
    Missing(&'static str, &'static str),
    #[error("{program} failed: {why}")]
    Failed { program: &'static str, why: String },
}

fn package(name: &str) -> String {
    format!("install the Debian package {name}")
}

impl ToolError {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            ToolError::Missing(_, name) => Some(package(name)),
            ToolError::Failed { .. } => None,
        }
    }
}

impl Tool {
    // Name and Debian package.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Tool::MkfsXfs => ("mkfs.xfs", "xfsprogs"),
            Tool::QemuImg => ("qemu-img", "qemu-utils"),
            Tool::Xorrisofs => ("xorrisofs", "xorriso"),
            Tool::Xorriso => ("xorriso", "xorriso"),
            Tool::Systemctl => ("systemctl", "systemd"),
            Tool::SystemdAnalyze => ("systemd-analyze", "systemd"),
            Tool::SystemdRun => ("systemd-run", "systemd"),
            Tool::Busctl => ("busctl", "systemd"),
            Tool::Journalctl => ("journalctl", "systemd"),
            Tool::Openssl => ("openssl", "openssl"),
        }
    }

    /// Searches `PATH`, then `/usr/sbin` and `/sbin`, which a container's `PATH` often lacks.
    pub fn find(self) -> Result<PathBuf, ToolError> {
        let (name, package) = self.names();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        let mut candidates = dirs.map(|dir| dir.join(name));
        candidates.find(|c| c.is_file()).ok_or(ToolError::Missing(name, package))
    }

    pub fn run<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Result<(), ToolError> {
        self.run_with_progress(args, &mut |_| ())
    }

    /// Run it to its end, and return its output.
    pub fn stdout(self, args: &[&str]) -> Result<String, ToolError> {
        let mut text = String::new();
        self.run_piped(Path::new("."), args, |mut stdout| _ = stdout.read_to_string(&mut text))?;
        Ok(text)
    }

    /// Run it to its end. `piece` gets its stdout in pieces that end with a carriage return, as progress meters print
    /// them.
    pub fn run_with_progress<S: AsRef<OsStr>>(
        self,
        args: impl IntoIterator<Item = S>,
        piece: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ToolError> {
        self.run_piped(Path::new("."), args, |stdout| {
            BufReader::new(stdout).split(b'\r').map_while(Result::ok).for_each(|bytes| piece(&bytes));
        })
    }

    /// Run it in `dir` to its end. `take` gets its stdout, and ends the program if it drops the pipe early.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn run_piped<S: AsRef<OsStr>>(
        self,
        dir: &Path,
        args: impl IntoIterator<Item = S>,
        take: impl FnOnce(ChildStdout),
    ) -> Result<(), ToolError> {
        let (program, _) = self.names();
        let failed = |why: String| ToolError::Failed { program, why };
        // Entries of PATH may be relative to our directory, and the program starts in `dir`.
        let path = path::absolute(self.find()?).map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(path);
        // The output must not depend on this machine's language and time zone.
        command.args(args).current_dir(dir).env("LC_ALL", "C").env("TZ", "UTC");
        // In memory: a pipe that fills up unread would block the program for ever, and to read two takes a thread, which not
        // every machine lets us have.
        let mut errors = memory_file(c"stderr").map_err(|e| failed(e.to_string()))?;
        let stderr = errors.try_clone().map_err(|e| failed(e.to_string()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        in_child(&mut command);
        let start = || if self == Tool::MkfsXfs { no_zeroing::spawn(&mut command) } else { command.spawn() };
        let (mut child, running) = cleanup::started(start).map_err(|e| failed(e.to_string()))?;
        child.stdout.take().map(take);
        let status = child.wait().map_err(|e| failed(e.to_string()))?;
        drop(running);
        if status.success() {
            return Ok(());
        }
        let mut text = Vec::new();
        errors.rewind().and_then(|()| errors.read_to_end(&mut text)).map_err(|e| failed(e.to_string()))?;
        Err(failed(format!("{status}: {}", self.complaint(&String::from_utf8_lossy(&text)))))
    }

    // The line of stderr that names the fault.
    fn complaint(self, text: &str) -> &str {
        let mut lines = text.trim().lines();
        let severe = |line: &&str| [" : SORRY :", " : FAILURE :", " : FATAL :"].iter().any(|word| line.contains(word));
        match self {
            Tool::Xorrisofs | Tool::Xorriso => lines.find(severe).or_else(|| text.trim().lines().last()),
            // It draws how far it is in front of its errors.
            Tool::Openssl => text.trim().lines().find(|line| line.contains("rror")),
            // mkfs.xfs prints the error first and then its usage.
            _ => lines.next(),
        }
        .unwrap_or_default()
    }
}

/// A file in memory, which is freed however we end.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // MFD_NOEXEC_SEAL: since Linux 6.3 some machines allow no others (vm.memfd_noexec). Older kernels do not know it.
    let sealed = MFdFlags::MFD_CLOEXEC | MFdFlags::from_bits_retain(0x8);
    let file = memfd_create(name, sealed).or_else(|_| memfd_create(name, MFdFlags::MFD_CLOEXEC))?;
    Ok(file.into())
}

/// Prepares a program that can be ended by signals as usual. Ctrl-C ends this program, which ends the child. So the child fails by itself
/// only for reasons of its own.
fn in_child(command: &mut Command) {
    command.process_group(0);
    unblocked_in_child(command);
}

/// Prepares a program that talks with its user: it stays in the group that the terminal listens to.
///
/// This program blocks the signals that it waits for in a thread of their own (`cli/signals.rs`). A child would inherit that.
#[expect(unsafe_code, reason = "what a child does before it executes a program has no safe form")]
fn unblocked_in_child(command: &mut Command) {
    // Only where it is needed: with it, the whole process is copied to start a program.
    if SigSet::thread_get_mask().is_ok_and(|blocked| blocked == SigSet::empty()) {
        return;
    }
    // SAFETY: between fork and exec: one system call, no allocation.
    unsafe { command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?)) };
}
