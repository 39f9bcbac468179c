//! A FAT32 file system to be written: its files, and where their bytes come from.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use crate::{
    boot::history::{Entry, new_file},
    digest::Sha256,
    disk::{
        fat::{FatError, FatTime, FileSpec, VolumeLayout, VolumeSpec, new_file::empty_directory},
        layout::Part,
    },
    payload::manifest::FileInfo,
    units::{Extent, SectorSize},
};

/// Where the bytes of a file come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// The plan itself carries them.
    Text(String),
    /// A new history with this entry in it.
    History(Entry),
    /// The payload's file of the same name.
    Payload,
    /// The UEFI boot image.
    EfiImage,
    /// A directory without files: its first cluster, that of the directory above it, and its time stamp.
    #[expect(missing_docs, reason = "the fields are what their names say")]
    Directory { first: u32, above: u32, time: u64 },
}

/// One file of a file system to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct VolumeFile {
    /// Path from the root.
    pub path: String,
    pub size: u64,
    pub sha256: Sha256,
    pub from: Content,
}

impl VolumeFile {
    /// A file whose content is part of the plan.
    pub fn text(path: &str, text: String) -> Self {
        VolumeFile {
            path: path.to_owned(),
            size: text.len() as u64,
            sha256: Sha256::of(text.as_bytes()),
            from: Content::Text(text),
        }
    }

    /// A new history.
    pub fn history(path: &str, first: Entry, sector: SectorSize) -> Self {
        let bytes = new_file(&first, sector.bytes() as usize).into_bytes();
        let (size, sha256) = (bytes.len() as u64, Sha256::of(&bytes));
        VolumeFile { path: path.to_owned(), size, sha256, from: Content::History(first) }
    }

    /// A new directory, of one cluster of so many bytes.
    pub fn directory(path: &str, size: u64, first: u32, above: u32, time: u64) -> Self {
        let sha256 = Sha256::of(&empty_directory(size, first, above, FatTime(time)));
        VolumeFile { path: path.to_owned(), size, sha256, from: Content::Directory { first, above, time } }
    }

    /// A file copied from the payload or the boot assets.
    pub fn copied(path: &str, info: &FileInfo, from: Content) -> Self {
        VolumeFile { path: path.to_owned(), size: info.size, sha256: info.sha256, from }
    }
}

/// A FAT32 file system to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Volume {
    pub serial: u32,
    /// Time stamp of its files, seconds since 1970 UTC.
    pub time: u64,
    /// Its files, in the order in which their data lies.
    pub files: Vec<VolumeFile>,
}

impl Volume {
    /// Lays out every file. Planning, writing and reading back all use this one answer.
    pub fn lay_out(&self, part: Part, extent: Extent, sector: SectorSize) -> Result<VolumeLayout, FatError> {
        let files = self.files.iter().map(|f| FileSpec { path: f.path.clone(), size: f.size });
        let spec = VolumeSpec {
            label: part.name().to_owned(),
            serial: self.serial,
            time: FatTime(self.time),
            files: files.collect(),
        };
        VolumeLayout::new(extent, sector, &spec)
    }

    /// Size of all files together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }
}
