//! LAYER 2: the external programs, all of them, and the only place that starts one.

use std::{ffi::OsStr, path::PathBuf, process::Command};

/// A program the installer relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Makes XFS file systems.
    MkfsXfs,
}

/// A program that is missing or failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// Not installed.
    #[error("{0} is not installed: it comes with the package {1}")]
    Missing(&'static str, &'static str),
    /// It could not be started, or ended with an error.
    #[error("{program} failed: {why}")]
    Failed {
        /// Name of the program.
        program: &'static str,
        /// Its last words.
        why: String,
    },
}

impl Tool {
    /// Name and Debian package.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Tool::MkfsXfs => ("mkfs.xfs", "xfsprogs"),
        }
    }

    /// Where it is: in `PATH`, or where administrators' programs are (often not in a container's `PATH`).
    pub fn find(self) -> Result<PathBuf, ToolError> {
        let (name, package) = self.names();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        let mut candidates = dirs.map(|dir| dir.join(name));
        candidates.find(|c| c.is_file()).ok_or(ToolError::Missing(name, package))
    }

    /// Run it to its end.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn run<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Result<(), ToolError> {
        let (program, _) = self.names();
        let failed = |why: String| ToolError::Failed { program, why };
        let mut command = Command::new(self.find()?);
        let output = command.args(args).env("LC_ALL", "C").output().map_err(|e| failed(e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        // The first line says what is wrong; mkfs.xfs lets all its options follow.
        let text = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("{}: {}", output.status, text.trim().lines().next().unwrap_or_default())))
    }
}
