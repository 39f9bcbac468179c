//! Programs that get only so much time: health checks, and systemd when a machine is about to be reset.

use std::{
    collections::VecDeque,
    io::{self, PipeReader, Read as _},
    os::fd::AsFd as _,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::in_child;
use crate::cleanup;

/// Bytes that are kept of the end of an output.
const TAIL_BYTES: usize = 4096;
/// Interval of checks whether the program has ended. Its children may keep its output open.
const LOOK: Duration = Duration::from_millis(20);

/// End of a program.
pub struct Ended {
    /// `None`: it was killed after its time.
    pub status: Option<ExitStatus>,
    /// The end of its output on stdout and stderr.
    pub said: Vec<u8>,
}

/// Run a program for at most `limit`. Then it and all that it has started get a SIGTERM, and after `grace` a SIGKILL.
/// `each` gets its output as it comes.
#[expect(clippy::disallowed_methods, reason = "this is a part of `tools`")]
pub fn run(
    program: &Path,
    args: &[&str],
    limit: Duration,
    grace: Duration,
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<Ended> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    in_child(&mut command);
    let (mut child, _running) = cleanup::started(|| command.spawn())?;
    // The ends for writing that are in it would keep the pipe open.
    drop(command);
    let mut output = Output { reader, said: VecDeque::new(), each, open: true };
    let until = Instant::now() + limit;
    let group = Pid::from_raw(child.id().cast_signed());
    loop {
        output.read_some()?;
        if let Some(status) = child.try_wait()? {
            output.read_rest()?;
            return Ok(Ended { status: Some(status), said: output.said.into() });
        }
        if Instant::now() >= until {
            break;
        }
    }
    // The child is not waited for until the end, so no other process can have got the number of its group.
    killpg(group, Signal::SIGTERM)?;
    let until = Instant::now() + grace;
    while output.open && Instant::now() < until {
        output.read_some()?;
    }
    killpg(group, Signal::SIGKILL)?;
    child.wait()?;
    output.read_rest()?;
    Ok(Ended { status: None, said: output.said.into() })
}

struct Output<'e> {
    reader: PipeReader,
    said: VecDeque<u8>,
    each: &'e mut dyn FnMut(&[u8]),
    open: bool,
}

impl Output<'_> {
    /// Whether anything came.
    fn read(&mut self, patience: Duration) -> io::Result<bool> {
        if !self.open {
            std::thread::sleep(patience);
            return Ok(false);
        }
        let mut fds = [PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, patience)? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 4096];
        let n = self.reader.read(&mut bytes)?;
        self.open = n > 0;
        (self.each)(&bytes[..n]);
        self.said.extend(&bytes[..n]);
        self.said.drain(..self.said.len().saturating_sub(TAIL_BYTES));
        Ok(n > 0)
    }

    fn read_some(&mut self) -> io::Result<()> {
        self.read(LOOK).map(drop)
    }

    /// Reads the rest in the pipe. Other programs may go on writing to it for ever.
    fn read_rest(&mut self) -> io::Result<()> {
        const PIECES: usize = 32;
        for _ in 0..PIECES {
            if !self.open || !self.read(Duration::ZERO)? {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: u64) -> (Ended, usize) {
        let mut bytes = 0;
        let (limit, grace) = (Duration::from_millis(limit), Duration::from_millis(300));
        let ended = run(Path::new("/bin/sh"), &["-c", script], limit, grace, &mut |piece| bytes += piece.len());
        (ended.unwrap(), bytes)
    }

    #[test]
    fn a_program_that_ends() {
        let (ended, _) = shell("echo out; echo err >&2; exit 3", 20_000);
        assert_eq!((ended.status.unwrap().code(), ended.said.as_slice()), (Some(3), &b"out\nerr\n"[..]));
        let (ended, bytes) = shell("yes | head -c 1000000; echo end", 20_000);
        assert!(ended.status.unwrap().success() && ended.said.ends_with(b"y\nend\n"));
        assert_eq!((ended.said.len(), bytes), (TAIL_BYTES, 1_000_004), "all of it is handed on, the end is kept");
    }

    /// A child that it leaves behind has its output, and is not waited for.
    #[test]
    fn a_program_that_leaves_another_one() {
        let begun = Instant::now();
        let (ended, _) = shell("sleep 20 & echo done", 20_000);
        assert!(ended.status.unwrap().success() && begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_that_hangs_goes_with_all_that_it_started() {
        let begun = Instant::now();
        let (ended, _) = shell("trap '' TERM; (trap '' TERM; echo $$; sleep 50) & echo begun; sleep 50", 300);
        assert!(ended.status.is_none() && begun.elapsed() < Duration::from_secs(10));
        let said = String::from_utf8(ended.said).unwrap();
        assert!(said.contains("begun"), "{said}");
        let group: i32 = said.lines().find_map(|line| line.parse().ok()).unwrap();
        let left = || killpg(Pid::from_raw(group), None).is_ok();
        (0..100).take_while(|_| left()).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
        assert!(!left(), "a process of group {group} is still there");
    }

    #[test]
    fn a_program_that_is_none() {
        let missing = run(Path::new("/no/such"), &[], Duration::ZERO, Duration::ZERO, &mut |_| ());
        assert_eq!(missing.err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
    }
}
