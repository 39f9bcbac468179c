//! Writes to stdout and stderr that do not block for ever.
//!
//! A write to a full pipe blocks until it is read. An installer that is blocked there keeps a half-written disk locked. So
//! poll(2) is asked for room before each piece. A piece is one page: a pipe that reports room takes a whole page without
//! blocking (pipe(7)). Only another program that writes to the same pipe could take that room in between.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::{SFlag, fstat},
    unistd,
};
use slipway_core::{
    report::{Document, Report},
    text::printable_lines,
};

/// A text for people on its way out, with escapes in place of what a terminal would obey. None of our texts has any;
/// names, versions and messages from outside may.
pub fn human(text: &str) -> String {
    printable_lines(text) + "\n"
}

/// JSON on its way out. It has escapes for most control characters; a terminal obeys DEL and those of C1, too. They can
/// only be inside of its strings.
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown + "\n"
}

/// A report as one document.
#[inline(never)]
pub fn document(report: Report, told: Vec<String>) -> serde_json::Result<String> {
    Ok(json(&serde_json::to_string_pretty(&Document { told, ..Document::from(report) })?))
}

/// Longest wait for room for an error or a report. It is enough for a slow reader. It is limited because the caller must get
/// the exit code even without a reader.
pub const PATIENCE: Duration = Duration::from_secs(10);

// PIPE_BUF of Linux.
const PIECE_BYTES: usize = 4096;

/// Fails with `TimedOut` and drops the rest if there is no room for as long as `patience`.
pub fn write(to: &impl AsFd, bytes: &[u8], patience: Duration) -> io::Result<()> {
    let can_be_full = fstat(to.as_fd()).is_ok_and(|stat| {
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        // Others are not polled: /dev/kmsg never reports room.
        kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
    });
    let mut rest = bytes;
    while !rest.is_empty() {
        if can_be_full {
            wait_for_room(to, patience)?;
        }
        match unistd::write(to, &rest[..rest.len().min(PIECE_BYTES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(Errno::EINTR) => {}
            // The caller made it non-blocking, and there is less room than one piece.
            Err(Errno::EAGAIN) if can_be_full && !patience.is_zero() => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn wait_for_room(to: &impl AsFd, patience: Duration) -> io::Result<()> {
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, patience) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("file descriptor {} has no reader", to.as_fd().as_raw_fd()),
        )),
        // If poll reports an error, the write that follows returns it.
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_full_pipe_makes_nobody_wait() {
        let (mut reader, writer) = io::pipe().unwrap();
        let line = [b'x'; 99];
        let mut written = 0;
        let full = loop {
            match write(&writer, &line, Duration::ZERO) {
                Ok(()) => written += line.len(),
                Err(e) => break e,
            }
            assert!(written < 1 << 24, "no pipe is as large");
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        // Once there is room, more gets through than a piece, while a reader reads.
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all.len()
        });
        let much = vec![b'y'; 1 << 20];
        write(&writer, &much, Duration::from_secs(60)).unwrap();
        drop(writer);
        assert!(reading.join().unwrap() >= written + much.len());
    }

    #[test]
    fn a_reader_who_is_gone_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(write(&writer, b"x", Duration::ZERO).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
