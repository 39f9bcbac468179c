//! From the files that were found in a source to the facts of a payload: the same rules for every kind of source.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::SourceRef;
use crate::transfer::{FileReader, digest_file};
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::{
    digest::{self, Sha256, SumsError},
    payload::manifest::{Arch, FileInfo, INITRAMFS, KERNEL, MANIFEST, Manifest, ROOTFS, SHA256SUMS, version_id},
};

/// First four bytes of a squashfs 4.0 superblock (Documentation/filesystems/squashfs.rst).
const SQUASHFS_MAGIC: &[u8] = b"hsqs";
/// `cmdline`, `os-release`, `SHA256SUMS` and `manifest.json` larger than this are not what they claim to be.
const SMALL_FILE_BYTES: u64 = 64 << 10;
/// What is kept of other files: enough for their magics, bytes.
pub const HEAD_BYTES: u64 = 1024;

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
    /// What the payload says of itself cannot be used.
    #[error("{path}: {why}", path = path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file that the list does not name, or names and is not there.
    #[error("{path}: {why} {name}; run `installer checksum` again after changing a payload", path = path.display())]
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
    #[error("{path}: missing, and --strict requires it: run `installer checksum` on the payload", path = path.display())]
    NotSealed {
        /// The list.
        path: PathBuf,
    },
}

impl PayloadError {
    /// The list of digests of the payload in `place` and what is there differ in a name.
    pub fn incomplete(place: &Path, why: &'static str, name: &str) -> Self {
        PayloadError::SumsIncomplete { path: place.join(SHA256SUMS), why, name: name.to_owned() }
    }
}

/// The optional text files of a payload.
pub const TEXTS: [&str; 2] = ["cmdline", "os-release"];

/// What to do about SHA256SUMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Compare with it if it is there.
    Compared,
    /// It must be there.
    Required,
    /// It is about to be replaced.
    Ignored,
}

impl ChecksumPolicy {
    /// By `--strict`.
    pub const fn of(strict: bool) -> Self {
        if strict { ChecksumPolicy::Required } else { ChecksumPolicy::Compared }
    }
}

/// Files whose content means something here.
fn is_small(name: &str) -> bool {
    name == SHA256SUMS || name == MANIFEST || TEXTS.contains(&name)
}

/// Files that are installed, or that say how.
pub fn is_used(name: &str) -> bool {
    is_installed(name) || is_small(name)
}

fn is_installed(name: &str) -> bool {
    name == KERNEL || name == ROOTFS || INITRAMFS.contains(&name)
}

/// Whether these first bytes are those of the kernel or the squashfs of this name, else why not; of a kernel, for what.
pub fn magic(name: &str, head: &[u8]) -> Result<Option<Arch>, &'static str> {
    match name {
        KERNEL => Arch::of_kernel(head).map(Some).ok_or(NO_KERNEL),
        ROOTFS if !head.starts_with(SQUASHFS_MAGIC) => Err(NO_SQUASHFS),
        _ => Ok(None),
    }
}

const NO_KERNEL: &str = "not a Linux kernel: neither x86 (`HdrS` at byte 514) nor arm64 (`ARM\\x64` at byte 56; one that \
     is compressed as a whole, such as Image.gz, has to be unpacked)";
const NO_SQUASHFS: &str = "not a squashfs (no magic `hsqs` at byte 0)";

/// One file of a source, read to its end.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: Sha256,
    /// Its first bytes; of small files all of them, and one more of one that is too large.
    head: Vec<u8>,
}

impl Seen {
    /// Read a file. `progress` gets bytes as they are read.
    pub fn read(name: &str, reader: &mut dyn FileReader, progress: &mut dyn FnMut(u64)) -> io::Result<Self> {
        let keep = if is_small(name) { SMALL_FILE_BYTES + 1 } else { HEAD_BYTES };
        let mut head = Vec::new();
        let (sha256, size) = digest_file(reader, |bytes| {
            let more = bytes.len().min(keep as usize - head.len());
            head.extend_from_slice(&bytes[..more]);
            progress(bytes.len() as u64);
        })?;
        Ok(Seen { size, sha256, head })
    }

    /// All of it, where it is a small file.
    pub fn small(&self) -> Option<&[u8]> {
        (self.size <= SMALL_FILE_BYTES && self.size == self.head.len() as u64).then_some(&self.head[..])
    }

    /// Its text, where it is a small file: without white space around it, as kernel arguments are taken.
    pub fn trimmed(&self) -> Option<&[u8]> {
        self.small().map(<[u8]>::trim_ascii)
    }

    fn info(&self, name: &str) -> FileInfo {
        FileInfo { name: name.to_owned(), size: self.size, sha256: self.sha256 }
    }
}

/// What was found in a source.
#[derive(Debug)]
pub struct Found {
    /// Where, for messages: a directory, or an image and a directory in it.
    pub place: PathBuf,
    /// The files by name.
    pub files: BTreeMap<String, Seen>,
}

impl Found {
    /// The list of digests, if it is there.
    pub fn sums(&self) -> Result<Option<digest::Sums>, PayloadError> {
        let Some(bytes) = self.small(SHA256SUMS)? else { return Ok(None) };
        let sums = digest::Sums::parse(bytes);
        sums.map(Some).map_err(|source| PayloadError::Sums { path: self.place.join(SHA256SUMS), source })
    }

    /// Digests of all files that were found or are listed.
    pub fn digests(&self) -> Result<BTreeMap<String, Sha256>, PayloadError> {
        let found = self.files.iter().map(|(name, seen)| (name.clone(), seen.sha256));
        Ok(self.sums()?.unwrap_or_default().0.into_iter().chain(found).collect())
    }

    /// The facts, from files that were all read and hashed: magics, and digests against SHA256SUMS.
    pub fn facts(&self, policy: ChecksumPolicy, source: &SourceRef) -> Result<PayloadFacts, PayloadError> {
        let sums = if policy == ChecksumPolicy::Ignored { None } else { self.sums()? };
        if policy == ChecksumPolicy::Required && sums.is_none() {
            return Err(PayloadError::NotSealed { path: self.place.join(SHA256SUMS) });
        }
        let mut arch = None;
        let mut files = Vec::new();
        for name in self.names()? {
            let seen = &self.files[name];
            if seen.size == 0 {
                return Err(PayloadError::Empty { path: self.place.join(name) });
            }
            arch = arch.or(magic(name, &seen.head).map_err(|why| self.wrong(name, why))?);
            files.push(seen.info(name));
        }
        let arch = arch.ok_or_else(|| self.wrong(KERNEL, NO_KERNEL))?;
        if let Some(sums) = &sums {
            self.compare(sums, &files)?;
        }
        Ok(PayloadFacts {
            source: source.to_string(),
            arch,
            version: self.text("os-release")?.and_then(version_id),
            files,
            cmdline: self.text("cmdline")?.map(|text| text.trim().to_owned()),
            checksums: sums.is_some(),
        })
    }

    /// The facts as `installer checksum` wrote them down, from SHA256SUMS and manifest.json alone; none while they, or a
    /// `cmdline` they do not hold themselves, have not been found. What they say of the files is compared when these are
    /// written.
    pub fn declared(&self, source: &SourceRef) -> Result<Option<PayloadFacts>, PayloadError> {
        let (Some(sums), Some(text)) = (self.sums()?, self.small(MANIFEST)?) else { return Ok(None) };
        let wrong = |why: String| PayloadError::Manifest { path: self.place.join(MANIFEST), why };
        let manifest = Manifest::parse(text).map_err(wrong)?;
        let names: Vec<_> = manifest.files.iter().map(|f| f.name.as_str()).collect();
        let fits =
            matches!(names[..], [KERNEL, initramfs] | [KERNEL, initramfs, ROOTFS] if INITRAMFS.contains(&initramfs));
        if !fits {
            return Err(wrong(format!("its files are {}: not those of a payload", names.join(", "))));
        }
        if let Some(empty) = manifest.files.iter().find(|f| f.size == 0) {
            return Err(PayloadError::Empty { path: self.place.join(&empty.name) });
        }
        if let Some(name) = sums.0.keys().find(|name| is_installed(name) && !names.contains(&name.as_str())) {
            return Err(wrong(format!("does not name {name}, which SHA256SUMS lists")));
        }
        self.compare_listed(&sums, &manifest.files)?;
        for (name, seen) in &self.files {
            match sums.0.get(name) {
                Some(expected) => self.matches(name, *expected, seen.sha256)?,
                None if is_used(name) && name != SHA256SUMS => return Err(self.incomplete("does not list", name)),
                None => {}
            }
        }
        let cmdline = match (&manifest.cmdline, self.text("cmdline")?.map(str::trim)) {
            (Some(own), Some(text)) if own != text => {
                return Err(wrong("its cmdline is not the file cmdline".to_owned()));
            }
            (Some(own), _) => Some(own.clone()),
            (None, Some(text)) => Some(text.to_owned()),
            (None, None) if sums.0.contains_key("cmdline") => return Ok(None),
            (None, None) => None,
        };
        let Manifest { arch, version, files, .. } = manifest;
        Ok(Some(PayloadFacts { source: source.to_string(), arch, version, files, cmdline, checksums: true }))
    }

    /// Kernel, initramfs and squashfs as they are called here.
    fn names(&self) -> Result<Vec<&'static str>, PayloadError> {
        let exists = |name: &&str| self.files.contains_key(*name);
        let missing = |name| PayloadError::Missing { path: self.place.join(name) };
        let kernel = Some(KERNEL).filter(exists).ok_or_else(|| missing(KERNEL))?;
        let initramfs = INITRAMFS.into_iter().find(exists).ok_or_else(|| missing(INITRAMFS[0]))?;
        Ok([kernel, initramfs].into_iter().chain(Some(ROOTFS).filter(exists)).collect())
    }

    fn compare(&self, sums: &digest::Sums, files: &[FileInfo]) -> Result<(), PayloadError> {
        self.compare_listed(sums, files)?;
        for name in TEXTS {
            if self.files.contains_key(name) && !sums.0.contains_key(name) {
                return Err(self.incomplete("does not list", name));
            }
        }
        for (name, expected) in &sums.0 {
            let seen = self.files.get(name).ok_or_else(|| self.incomplete("lists a file that is not there:", name))?;
            self.matches(name, *expected, seen.sha256)?;
        }
        Ok(())
    }

    fn compare_listed(&self, sums: &digest::Sums, files: &[FileInfo]) -> Result<(), PayloadError> {
        for file in files {
            let expected = *sums.0.get(&file.name).ok_or_else(|| self.incomplete("does not list", &file.name))?;
            self.matches(&file.name, expected, file.sha256)?;
        }
        Ok(())
    }

    /// The list and what is there differ in a name.
    pub fn incomplete(&self, why: &'static str, name: &str) -> PayloadError {
        PayloadError::incomplete(&self.place, why, name)
    }

    fn matches(&self, name: &str, expected: Sha256, actual: Sha256) -> Result<(), PayloadError> {
        if expected == actual {
            return Ok(());
        }
        Err(PayloadError::Mismatch { path: self.place.join(name), expected, actual })
    }

    fn text(&self, name: &str) -> Result<Option<&str>, PayloadError> {
        let text = self.small(name)?.map(std::str::from_utf8).transpose();
        text.map_err(|_| self.wrong(name, "not UTF-8 text"))
    }

    fn small(&self, name: &str) -> Result<Option<&[u8]>, PayloadError> {
        match self.files.get(name) {
            Some(seen) if seen.size > SMALL_FILE_BYTES => Err(self.wrong(name, "larger than 64 KiB")),
            seen => Ok(seen.map(|seen| &seen.head[..])),
        }
    }

    fn wrong(&self, name: &str, why: &'static str) -> PayloadError {
        PayloadError::WrongContent { path: self.place.join(name), why }
    }
}
