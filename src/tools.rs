//! LAYER 2: the external programs, all of them, and the only place that starts one.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

/// A program the installer relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Makes XFS file systems.
    MkfsXfs,
    /// Converts disk images.
    QemuImg,
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
            Tool::QemuImg => ("qemu-img", "qemu-utils"),
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
    pub fn run<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Result<(), ToolError> {
        self.run_heard(args, &mut |_| ())
    }

    /// Run it to its end; `heard` gets its stdout piece by piece, as carriage returns divide it.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn run_heard<S: AsRef<OsStr>>(
        self,
        args: impl IntoIterator<Item = S>,
        heard: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ToolError> {
        let (program, _) = self.names();
        let failed = |why: String| ToolError::Failed { program, why };
        let mut command = Command::new(self.find()?);
        command.args(args).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once: a program waits for the one that nobody reads.
        let text = thread::scope(|scope| {
            let errors = scope.spawn(|| {
                let mut text = Vec::new();
                stderr.map(|mut pipe| pipe.read_to_end(&mut text));
                text
            });
            let pieces = stdout.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\r'));
            pieces.map_while(Result::ok).for_each(|piece| heard(&piece));
            errors.join().unwrap_or_default()
        });
        let status = child.wait().map_err(|e| failed(e.to_string()))?;
        if status.success() {
            return Ok(());
        }
        // The first line says what is wrong; mkfs.xfs lets all its options follow.
        let text = String::from_utf8_lossy(&text);
        Err(failed(format!("{status}: {}", text.trim().lines().next().unwrap_or_default())))
    }
}
