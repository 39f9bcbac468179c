//! Starts of this machine in a row, each of which came before the one before it had lasted. A system that starts again and
//! again is ill. Without this it would never be seen so: it would always still be starting.
//!
//! A file names the boot that runs, and how many boots before it did not last. It is there only while this boot is young.
//! A boot that an operation waits for begins a new row: the operation proves that system itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::durable::{self, Disk};

/// So many boots that did not last are no accident.
const MANY: u32 = 3;

/// The boots before this one.
#[derive(Debug)]
pub struct Starts {
    path: PathBuf,
    /// The number of boots in a row, just before this one, that did not last.
    short: u32,
}

impl Starts {
    /// Note this boot in `dir`. `is_awaited` says that an operation waits for it.
    pub fn note(dir: &Path, boot: &str, is_awaited: bool) -> io::Result<Self> {
        let path = dir.join("starts");
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            read => read.unwrap_or_default(),
        };
        let short = match text.trim().split_once(' ') {
            Some((last, short)) if !is_awaited => {
                let short: u32 = short.parse().unwrap_or_default();
                short.saturating_add(u32::from(last != boot))
            }
            _ => 0,
        };
        durable::replace(&mut Disk, &path, &dir.join("starts.new"), format!("{boot} {short}\n").as_bytes())?;
        Ok(Self { path, short })
    }

    /// This boot lasts. What comes after it begins a new row.
    pub fn last(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Why a machine that has not run for `lasts` seconds yet is ill, if it is.
    pub fn fault(&self, lasts: u64) -> Option<String> {
        let starts = self.short.saturating_add(1);
        (self.short >= MANY)
            .then(|| format!("the machine has started {starts} times in a row, and never ran for {lasts} s in between"))
    }
}
