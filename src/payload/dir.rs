//! A payload in a directory: `dir:/usr/install/amd64` in the container image, or any other.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::libc;

use super::{Facts, SourceRef, stream::digest_file};
use crate::model::{
    digest::{self, Sha256, SumsError},
    manifest::{Arch, FileInfo, INITRAMFS, KERNEL, ROOTFS, SHA256SUMS, version_id},
};

/// First four bytes of a squashfs 4.0 superblock (Documentation/filesystems/squashfs.rst).
const SQUASHFS_MAGIC: &[u8] = b"hsqs";
/// `cmdline`, `os-release` and `SHA256SUMS` larger than this are not what they claim to be.
const SMALL_FILE_BYTES: u64 = 64 << 10;

/// What is wrong with a payload. Nothing has been written.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// A file that must be there is not.
    #[error("{path}: missing; a payload has {KERNEL}, one of {}, and (optional) {ROOTFS}", INITRAMFS.join(", "), path = path.display())]
    Missing {
        /// The file or directory.
        path: PathBuf,
    },
    /// It cannot be read, or is no regular file.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Zero bytes long.
    #[error("{path}: empty (0 bytes)", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Not what its name says.
    #[error("{path}: {why}", path = path.display())]
    WrongContent {
        /// The file.
        path: PathBuf,
        /// What it is not.
        why: &'static str,
    },
    /// The list of digests is malformed.
    #[error("{path}: {source}", path = path.display())]
    Sums {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        source: SumsError,
    },
    /// A file that the list does not name, or names and is not there.
    #[error("{path}: {why} {name}; run `installer seal` again after changing a payload", path = path.display())]
    SumsIncomplete {
        /// The list.
        path: PathBuf,
        /// How they differ.
        why: &'static str,
        /// The file.
        name: String,
    },
    /// A digest differs.
    #[error("{path}: SHA-256 is {actual}, {SHA256SUMS} says {expected}", path = path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// As listed.
        expected: Sha256,
        /// As computed.
        actual: Sha256,
    },
    /// No list, and one is required.
    #[error("{path}: missing, and --strict requires it: run `installer seal` on the payload", path = path.display())]
    NotSealed {
        /// The list.
        path: PathBuf,
    },
}

/// The optional text files of a payload.
pub const TEXTS: [&str; 2] = ["cmdline", "os-release"];

/// What to do about SHA256SUMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// Compare with it if it is there.
    Compared,
    /// It must be there.
    Required,
    /// It is about to be replaced.
    Ignored,
}

impl Sums {
    /// By `--strict`.
    pub const fn wanted(strict: bool) -> Self {
        if strict { Sums::Required } else { Sums::Compared }
    }
}

/// Whether a name is there, be it a link to nowhere: that is an error when it is opened, not an absent file.
fn present(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A directory with a payload.
#[derive(Clone, Debug)]
pub struct DirSource {
    dir: PathBuf,
}

impl DirSource {
    /// The payload in `dir`.
    pub fn new(dir: &Path) -> Self {
        DirSource { dir: dir.to_owned() }
    }

    /// Open one of its files for reading.
    pub fn open(&self, name: &str) -> io::Result<File> {
        // A fifo would block in open without O_NONBLOCK (which means nothing to a file), a device never end.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(self.dir.join(name))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// Read and hash everything, and compare with SHA256SUMS. `progress` gets bytes as they are read.
    pub fn facts(&self, wanted: Sums, mut progress: impl FnMut(u64)) -> Result<Facts, PayloadError> {
        let sums = if wanted == Sums::Ignored { None } else { self.sums()? };
        if wanted == Sums::Required && sums.is_none() {
            return Err(PayloadError::NotSealed { path: self.dir.join(SHA256SUMS) });
        }
        let names = self.file_names()?;
        let mut arch = None;
        let mut files = Vec::new();
        for name in &names {
            let (info, head) = self.examine(name, &mut progress)?;
            if info.size == 0 {
                return Err(PayloadError::Empty { path: self.dir.join(name) });
            }
            if *name == KERNEL {
                arch = Arch::of_kernel(&head);
            } else if *name == ROOTFS && !head.starts_with(SQUASHFS_MAGIC) {
                return Err(self.wrong(name, "not a squashfs (no magic `hsqs` at byte 0)"));
            }
            files.push(info);
        }
        let arch = arch.ok_or_else(|| {
            self.wrong(KERNEL, "not a Linux kernel: neither x86 (`HdrS` at byte 514) nor arm64 (`ARM\\x64` at byte 56)")
        })?;
        if let Some(sums) = &sums {
            self.compare(sums, &files)?;
        }
        Ok(Facts {
            source: SourceRef::Dir(self.dir.clone()),
            arch,
            version: self.small("os-release")?.as_deref().and_then(version_id),
            files,
            cmdline: self.small("cmdline")?.map(|text| text.trim().to_owned()),
            sealed: sums.is_some(),
        })
    }

    /// Kernel, initramfs and squashfs as they are called here.
    fn file_names(&self) -> Result<Vec<&'static str>, PayloadError> {
        let exists = |name: &&str| present(&self.dir.join(name));
        if !self.dir.is_dir() {
            return Err(PayloadError::Missing { path: self.dir.clone() });
        }
        let missing = |name| PayloadError::Missing { path: self.dir.join(name) };
        let kernel = Some(KERNEL).filter(exists).ok_or_else(|| missing(KERNEL))?;
        let initramfs = INITRAMFS.into_iter().find(exists).ok_or_else(|| missing(INITRAMFS[0]))?;
        Ok([kernel, initramfs].into_iter().chain(Some(ROOTFS).filter(exists)).collect())
    }

    fn examine(&self, name: &str, progress: &mut dyn FnMut(u64)) -> Result<(FileInfo, Vec<u8>), PayloadError> {
        let io = |source| self.io(name, source);
        let mut file = self.open(name).map_err(io)?;
        let mut head = Vec::new();
        io::Read::by_ref(&mut file).take(1024).read_to_end(&mut head).map_err(io)?;
        let (sha256, size) = digest_file(&mut head.chain(file), progress).map_err(io)?;
        Ok((FileInfo { name: name.to_owned(), size, sha256 }, head))
    }

    fn compare(&self, sums: &digest::Sums, files: &[FileInfo]) -> Result<(), PayloadError> {
        let incomplete = |why, name: &str| PayloadError::SumsIncomplete {
            path: self.dir.join(SHA256SUMS),
            why,
            name: name.to_owned(),
        };
        for file in files {
            let expected = *sums.0.get(&file.name).ok_or_else(|| incomplete("does not list", &file.name))?;
            self.matches(&file.name, expected, file.sha256)?;
        }
        for name in TEXTS {
            if present(&self.dir.join(name)) && !sums.0.contains_key(name) {
                return Err(incomplete("does not list", name));
            }
        }
        for (name, expected) in &sums.0 {
            if files.iter().any(|f| f.name == *name) {
                continue;
            }
            if !present(&self.dir.join(name)) {
                return Err(incomplete("lists a file that is not there:", name));
            }
            let (other, _) = self.examine(name, &mut |_| ())?;
            self.matches(name, *expected, other.sha256)?;
        }
        Ok(())
    }

    fn matches(&self, name: &str, expected: Sha256, actual: Sha256) -> Result<(), PayloadError> {
        if expected == actual {
            return Ok(());
        }
        Err(PayloadError::Mismatch { path: self.dir.join(name), expected, actual })
    }

    fn sums(&self) -> Result<Option<digest::Sums>, PayloadError> {
        let Some(bytes) = self.small_bytes(SHA256SUMS)? else { return Ok(None) };
        let sums = digest::Sums::parse(&bytes);
        sums.map(Some).map_err(|source| PayloadError::Sums { path: self.dir.join(SHA256SUMS), source })
    }

    fn small(&self, name: &str) -> Result<Option<String>, PayloadError> {
        let text = self.small_bytes(name)?.map(String::from_utf8).transpose();
        text.map_err(|_| self.wrong(name, "not UTF-8 text"))
    }

    fn small_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, PayloadError> {
        if !present(&self.dir.join(name)) {
            return Ok(None);
        }
        let io = |source| self.io(name, source);
        let mut bytes = Vec::new();
        self.open(name).map_err(io)?.take(SMALL_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > SMALL_FILE_BYTES {
            return Err(self.wrong(name, "larger than 64 KiB"));
        }
        Ok(Some(bytes))
    }

    fn io(&self, name: &str, source: io::Error) -> PayloadError {
        PayloadError::Io { path: self.dir.join(name), source }
    }

    fn wrong(&self, name: &str, why: &'static str) -> PayloadError {
        PayloadError::WrongContent { path: self.dir.join(name), why }
    }
}
