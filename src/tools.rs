//! LAYER 2: the external programs, all of them, and the only place that starts one.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    path::{self, Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    thread,
};

/// A program the installer relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Makes XFS file systems.
    MkfsXfs,
    /// Converts disk images.
    QemuImg,
    /// Makes ISO 9660 file systems that machines start from.
    Xorrisofs,
    /// Reads them: the same program under its other name.
    Xorriso,
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
            Tool::Xorrisofs => ("xorrisofs", "xorriso"),
            Tool::Xorriso => ("xorriso", "xorriso"),
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
    pub fn run_heard<S: AsRef<OsStr>>(
        self,
        args: impl IntoIterator<Item = S>,
        heard: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ToolError> {
        self.run_piped(Path::new("."), args, |stdout| {
            BufReader::new(stdout).split(b'\r').map_while(Result::ok).for_each(|piece| heard(&piece));
        })
    }

    /// Run it in a directory, to its end; `take` gets its stdout. A program whose stdout is dropped before its end is ended by that.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn run_piped<S: AsRef<OsStr>>(
        self,
        dir: &Path,
        args: impl IntoIterator<Item = S>,
        take: impl FnOnce(ChildStdout),
    ) -> Result<(), ToolError> {
        let (program, _) = self.names();
        let failed = |why: String| ToolError::Failed { program, why };
        // PATH may have names of directories that are relative, to another one than `dir`.
        let path = path::absolute(self.find()?).map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(path);
        // Nothing of this machine's language and time zone.
        command.args(args).current_dir(dir).env("LC_ALL", "C").env("TZ", "UTC");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once: a program waits for the one that nobody reads.
        let text = thread::scope(|scope| {
            let errors = scope.spawn(|| {
                let mut text = Vec::new();
                stderr.map(|mut pipe| pipe.read_to_end(&mut text));
                text
            });
            stdout.map(take);
            errors.join().unwrap_or_default()
        });
        let status = child.wait().map_err(|e| failed(e.to_string()))?;
        if status.success() {
            return Ok(());
        }
        Err(failed(format!("{status}: {}", self.complaint(&String::from_utf8_lossy(&text)))))
    }

    /// The line that says what is wrong.
    fn complaint(self, text: &str) -> &str {
        let mut lines = text.trim().lines();
        let severe = |line: &&str| [" : SORRY :", " : FAILURE :", " : FATAL :"].iter().any(|word| line.contains(word));
        match self {
            // mkfs.xfs lets all its options follow.
            Tool::MkfsXfs | Tool::QemuImg => lines.next(),
            Tool::Xorrisofs | Tool::Xorriso => lines.find(severe).or_else(|| text.trim().lines().last()),
        }
        .unwrap_or_default()
    }
}
