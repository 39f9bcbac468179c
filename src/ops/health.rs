//! Health checks: programs in a directory that say whether the system on trial is well.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use slipway_core::{
    boot::trial::{Failed, last_words},
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::Observer,
};

use super::{Change, ChangeOptions, DiskRequest, installed_disk};
use crate::{device::Access, error::Failure, lookup::is_there, tools::limited};

/// Time between the SIGTERM and the SIGKILL for a check whose time is up.
const GRACE: Duration = Duration::from_secs(5);
/// Limit of a check's output that is shown.
const MAX_SHOWN: usize = 16 << 10;
/// Linux looks for the interpreter in so many bytes of a program (`BINPRM_BUF_SIZE`).
const READ_BY_KERNEL: u64 = 256;

/// The directory of the checks, and the time that each may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    pub dir: PathBuf,
    pub limit: Duration,
}

/// The trial is not confirmed, because a check says that the system is not well.
#[derive(Debug, thiserror::Error)]
#[error("the trial is not confirmed: {0}")]
pub struct NotWell(pub Failed);

impl Checks {
    /// Run them all, up to the first that fails. Doubt counts as failure.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<(), NotWell> {
        let shown = self.dir.display();
        let names =
            self.names().map_err(|e| NotWell(Failed::check(&shown.to_string(), &format!("cannot be read: {e}"))))?;
        let Some(names) = names else {
            observer.note(&format!("{shown} is not there: no check was run"));
            return Ok(());
        };
        let mut any = false;
        for name in names {
            let path = self.dir.join(&name);
            let is_one = is_check(&name, &path, observer).map_err(|e| NotWell(Failed::check(&name, &e.to_string())))?;
            if is_one {
                any = true;
                self.one(&name, &path, observer)?;
            }
        }
        if !any {
            observer.note(&format!("{shown} has no check: none was run"));
        }
        Ok(())
    }

    /// In the order of their bytes. None if there is no such directory.
    fn names(&self) -> io::Result<Option<Vec<String>>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound && !is_there(&self.dir)? => return Ok(None),
            entries => entries?,
        };
        let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        let mut names: Vec<_> = names?.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(Some(names))
    }

    fn one(&self, name: &str, path: &Path, observer: &mut dyn Observer) -> Result<(), NotWell> {
        observer.phase(&format!("check      {name}"), 0);
        let mut lines = Lines { name, line: Vec::new(), left: MAX_SHOWN };
        let ended = limited::run(path, &[], self.limit, GRACE, &mut |piece| lines.take(piece, observer));
        lines.end(observer);
        let failed = |message: String| Err(NotWell(Failed::check(name, &message)));
        let ended = match ended {
            Ok(ended) => ended,
            Err(e) => return failed(format!("cannot be run: {}", missing(path, &e).unwrap_or_else(|| e.to_string()))),
        };
        let said = last_words(&ended.said);
        match ended.status {
            Some(status) if status.success() => Ok(()),
            // Its own words say more than a number.
            Some(_) if !said.is_empty() => failed(said),
            Some(status) => failed(status.to_string()),
            None => failed(
                format!("still ran after {} s; {said}", self.limit.as_secs_f64()).trim_end_matches("; ").to_owned(),
            ),
        }
    }
}

/// As run-parts(8) has it, which cron has taught to people: names of letters, digits, `_` and `-`. A check that is
/// left out by mistake would never fail, so it is named. Hidden files are not: editors and package managers leave
/// them.
fn is_check(name: &str, path: &Path, observer: &mut dyn Observer) -> io::Result<bool> {
    if name.starts_with('.') {
        return Ok(false);
    }
    let meta = fs::metadata(path)?;
    let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let why = match () {
        () if !meta.is_file() => "it is no file",
        () if !named => "its name has other characters than letters, digits, _ and -",
        () if meta.permissions().mode() & 0o111 == 0 => "it is not executable",
        () => return Ok(true),
    };
    observer.note(&format!("{} is not run as a check: {why}", path.display()));
    Ok(false)
}

/// What a check needs to start and is not there, where the kernel says only that something is not.
fn missing(check: &Path, error: &io::Error) -> Option<String> {
    let file = File::open(check).ok().filter(|_| error.kind() == ErrorKind::NotFound)?;
    let mut head = Vec::new();
    file.take(READ_BY_KERNEL).read_to_end(&mut head).ok()?;
    let Some(rest) = head.strip_prefix(b"#!") else {
        let is_program = head.starts_with(b"\x7fELF");
        return is_program.then(|| "the dynamic linker that it names is not there".to_owned());
    };
    let line = rest.split(|byte| b"\n\0".contains(byte)).next()?;
    let named = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty())?;
    let (path, shown) = (Path::new(OsStr::from_bytes(named)), String::from_utf8_lossy(named));
    let why = if named.ends_with(b"\r") { ": line 1 ends in CR LF" } else { "" };
    // One that is there may be a script itself, and miss its own.
    (!path.exists()).then(|| format!("its interpreter {shown:?} is not there{why}"))
}

/// The output of a check, line by line.
struct Lines<'n> {
    name: &'n str,
    line: Vec<u8>,
    left: usize,
}

impl Lines<'_> {
    fn take(&mut self, piece: &[u8], observer: &mut dyn Observer) {
        if self.left == 0 {
            return;
        }
        let shown = &piece[..piece.len().min(self.left)];
        self.left -= shown.len();
        for part in shown.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part);
            if part.ends_with(b"\n") {
                self.say(observer);
            }
        }
        if self.left == 0 {
            self.say(observer);
            observer.note(&format!("{}: the rest of its output is not shown", self.name));
        }
    }

    fn say(&mut self, observer: &mut dyn Observer) {
        let line = std::mem::take(&mut self.line);
        observer.quote(&format!("{}: {}", self.name, String::from_utf8_lossy(&line).trim_end()));
    }

    fn end(&mut self, observer: &mut dyn Observer) {
        if !self.line.is_empty() {
            self.say(observer);
        }
    }
}

/// The record that the system on trial leaves on the disk for the next one.
pub struct Record<'f>(pub &'f Failed);

impl Change for Record<'_> {
    // The next boot is not touched, so no slot has to be verified.
    fn to_verify(&self, _: &SystemFacts) -> Option<slipway_core::boot::slot::Slot> {
        None
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::record_failure(base, system, self.0)
    }
}

/// Record on the disk why the trial is not confirmed.
pub fn record(disk: &DiskRequest, failed: &Failed, observer: &mut dyn Observer) -> Result<(), Failure> {
    let options = ChangeOptions::default();
    installed_disk::change(disk, Access::BootState, &Record(failed), options, observer).map(drop)
}
