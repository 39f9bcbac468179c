//! The locks of a disk: `flock`, as installers and udev take it, and for writers an open-file-description lock on all of it,
//! as QEMU has on bytes of an image that it uses.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, Flock, FlockArg, fcntl},
    libc,
};

use super::OpenError;
use crate::device::busy::{Store, processes};

/// Waiting for less than this is not worth a word.
const WORTH_A_WORD: Duration = Duration::from_millis(500);

/// A wait for the program that has a disk.
pub struct Wait<'s> {
    name: String,
    start: Instant,
    patience: Duration,
    said: bool,
    says: &'s mut dyn FnMut(&str),
}

impl<'s> Wait<'s> {
    pub fn new(name: &str, patience: Duration, says: &'s mut dyn FnMut(&str)) -> Self {
        Wait { name: name.to_owned(), start: Instant::now(), patience, said: false, says }
    }

    /// Waits for a moment, and names the holder once that is worth it. False if there is no patience left.
    pub fn goes_on(&mut self, holder: &dyn Fn() -> String) -> bool {
        let patient = self.start.elapsed() < self.patience;
        if patient && !self.said && self.start.elapsed() >= WORTH_A_WORD {
            self.said = true;
            let (name, holder, most) = (&self.name, holder(), self.patience.as_secs_f64());
            (self.says)(&format!("waiting for the lock on {name}, which {holder} holds; up to {most} s"));
        }
        if patient {
            thread::sleep(Duration::from_millis(50));
        }
        patient
    }

    pub fn given_up(&self, holder: String) -> OpenError {
        OpenError::Locked { path: self.name.clone(), holder, waited: self.start.elapsed() }
    }
}

pub fn lock(
    mut file: File,
    name: &str,
    exclusive: bool,
    patience: Duration,
    says: &mut dyn FnMut(&str),
) -> Result<Flock<File>, OpenError> {
    let how = if exclusive { FlockArg::LockExclusiveNonblock } else { FlockArg::LockSharedNonblock };
    let mut wait = Wait::new(name, patience, says);
    let lock = loop {
        match Flock::lock(file, how) {
            Ok(lock) => break lock,
            Err((back, nix::Error::EWOULDBLOCK)) if wait.goes_on(&|| named(&back, &["FLOCK"])) => file = back,
            Err((back, nix::Error::EWOULDBLOCK)) => return Err(wait.given_up(named(&back, &["FLOCK"]))),
            Err((_, e)) => return Err(OpenError::Io { path: name.to_owned(), source: e.into() }),
        }
    };
    let of_bytes = ["OFDLCK", "POSIX"];
    while exclusive && !lock_all_bytes(&lock) {
        if !wait.goes_on(&|| named(&lock, &of_bytes)) {
            return Err(wait.given_up(named(&lock, &of_bytes)));
        }
    }
    Ok(lock)
}

// False while another program has a lock on any byte. It lasts until the file is closed.
fn lock_all_bytes(file: &File) -> bool {
    let all = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // If a file system knows no such locks, no program has one.
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&all)), Err(nix::Error::EAGAIN | nix::Error::EACCES))
}

/// The process that holds a lock of one of these kinds on a file (proc_locks(5)).
pub fn holder(file: &File, kinds: &[&str]) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (nix::sys::stat::major(meta.dev()), nix::sys::stat::minor(meta.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    // `1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF`
    let of_kind = |line: &str| line.split_whitespace().any(|word| kinds.contains(&word));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| of_kind(line) && line.split(' ').any(|word| word == inode))?;
    let pid = line.split_whitespace().skip_while(|word| !matches!(*word, "READ" | "WRITE")).nth(1)?;
    // An open-file-description lock belongs to no process (-1), but shows where the description is open.
    let shows = |info: &str| info.lines().any(|line| line.starts_with("lock:") && of_kind(line));
    // 0 is a process of another PID namespace.
    let pid = pid.parse().ok().filter(|pid| *pid != 0);
    pid.or_else(|| Some(processes::with_open(&[Store::of_metadata(&meta)?], shows)?.0))
}

fn named(file: &File, kinds: &[&str]) -> String {
    in_words(holder(file, kinds))
}

/// Its holder, if that can be seen.
pub fn in_words(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another program".to_owned(), processes::named)
}
