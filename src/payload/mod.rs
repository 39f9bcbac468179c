//! LAYER 2: where kernel, initramfs and squashfs come from.

mod check;
mod dir;
pub mod image;
mod read_back;
pub mod registry;
mod source;
mod stream;

pub use check::{PayloadError, Sums, TEXTS};
pub use dir::DirSource;
pub use read_back::{ReadBack, read_back_digest};
pub use source::{Source, SourceRef, image_store};
pub use stream::{StreamError, digest_file, write_stream};

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::libc;

use crate::model::{
    digest::Hasher,
    manifest::{Arch, FileInfo, Manifest},
};

/// Reads one file of a payload.
///
/// It may lie in something that has a digest of its own, a layer: each of its bytes goes through both digests. Who hashes
/// the file can borrow the layer's, and feed both at once.
pub trait FileReader: Read {
    /// The digest that every byte read from here on belongs to as well, if there is one, for the reader of these bytes
    /// to feed. Until it is given back no other byte of the layer can be read to any purpose: the layer's end is an
    /// error then.
    fn lend_digest(&mut self) -> Option<Hasher> {
        None
    }

    /// Give back what was lent, fed with all that was read.
    fn return_digest(&mut self, _digest: Hasher) {}
}

impl FileReader for File {}
impl FileReader for &[u8] {}

/// Gets the name of a file and its bytes.
pub type Take<'t> = dyn FnMut(&str, &mut dyn FileReader) -> anyhow::Result<()> + 't;

/// Hands out the files of a payload for streaming.
pub trait PayloadFiles {
    /// Hand each of these files to `take`, once, in the order in which the source has them. `take` reads it to its end.
    /// Of [`TEXTS`] those that are there.
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()>;
}

/// Open a file for reading. A fifo would block in open without `O_NONBLOCK` (which means nothing to a file), a device never
/// end.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong()) }
}

/// A payload that was looked at: its files read and hashed, or listed by a seal whose digests are compared while they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where it comes from.
    pub source: SourceRef,
    /// Architecture of the kernel.
    pub arch: Arch,
    /// `VERSION_ID` of its os-release.
    pub version: Option<String>,
    /// Kernel, initramfs, squashfs if there is one.
    pub files: Vec<FileInfo>,
    /// Content of its `cmdline` file, if it has one.
    pub cmdline: Option<String>,
    /// Whether it brought a SHA256SUMS (which then agreed).
    pub sealed: bool,
}

impl Facts {
    /// The kernel's file name.
    pub fn kernel(&self) -> &FileInfo {
        &self.files[0]
    }

    /// The initramfs' file name.
    pub fn initramfs(&self) -> &FileInfo {
        &self.files[1]
    }

    /// The manifest of this payload.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            format: Manifest::FORMAT,
            version: self.version.clone(),
            arch: self.arch,
            files: self.files.clone(),
            cmdline: self.cmdline.clone(),
            kernel_args: None,
        }
    }
}
