//! A command of the user's own.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    process::{Command, Stdio},
    thread,
};

use super::{ToolError, unblocked_in_child};
use crate::cleanup;

// A signature has at most 1 KiB.
const MAX_OUTPUT_BYTES: u64 = 1 << 16;

/// Output of `sh -c COMMAND` for these bytes on stdin. The command keeps stderr and the terminal: it may have to ask
/// its user for something. It need not read all of its input.
#[expect(clippy::disallowed_methods, reason = "this is a part of `tools`")]
pub fn filter(command: &str, input: &[u8]) -> Result<Vec<u8>, ToolError> {
    let failed = |why: String| ToolError::Failed { program: "the signing command", why };
    let broken = |e: std::io::Error| failed(e.to_string());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
    unblocked_in_child(&mut shell);
    let (mut child, _running) = cleanup::started(|| shell.spawn()).map_err(broken)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut output = Vec::new();
    let (written, read) = thread::scope(|scope| {
        // Both at once: it may print before it has read everything.
        let write = move || stdin.map_or(Ok(()), |mut pipe| pipe.write_all(input));
        // Without the thread the pipe is closed, and the command ends without its input.
        let writer = thread::Builder::new().spawn_scoped(scope, write);
        let read = stdout.map_or(Ok(0), |pipe| pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut output));
        (writer.and_then(|writer| writer.join().unwrap_or(Ok(()))), read)
    });
    let status = child.wait().map_err(broken)?;
    read.map_err(broken)?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    match written {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(broken(e)),
        _ => Ok(output),
    }
}
