//! Writing to stdout and stderr without waiting for ever for whoever reads them.
//!
//! A pipe that is full makes a writer wait until somebody reads. An installer that waits there holds the disk, half
//! written. So before each piece is written the pipe is asked whether it has room; a piece is small enough to fit then
//! (pipe(7): room is told in whole pages, and up to a page is written at once). Only a second program that writes to
//! the same pipe could take the room in between.

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

/// Longest wait for room for what matters: the error, the report. Long enough for a slow reader, and not for ever: the
/// exit code is to reach whoever waits for it.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes written at once (`PIPE_BUF` of Linux).
const PIECE_BYTES: usize = 4096;

/// Write all of it. Where there is no room for a piece for as long as `patience`, the rest is dropped: `TimedOut`.
pub fn write(to: &impl AsFd, bytes: &[u8], patience: Duration) -> io::Result<()> {
    let can_be_full = fstat(to.as_fd()).is_ok_and(|stat| {
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        // Of others, /dev/kmsg does not even answer the question.
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
            // Somebody has made it non-blocking, and there is less room than a piece.
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
            format!("nobody reads file descriptor {}", to.as_fd().as_raw_fd()),
        )),
        // With an error set, the write tells which.
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
        // Once there is room, more gets through than a piece, while somebody reads.
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
