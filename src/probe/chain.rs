//! What the ESP says about the disk as a whole: the boot chain, and the drive that it was installed on.

use super::error::ProbeError;
use crate::{
    device::BlockIo,
    fat::{FatVolume, ReadError},
    transfer::read_back_digest,
};
use slipway_core::{
    digest::Sha256,
    disk::{
        chain::{CHAIN, Chain, Link},
        drive::{DRIVE, DriveRecord},
        layout::Part,
    },
    plan::GptFacts,
    report::{ChainCheck, FileCheck, FileState},
    units::{Extent, MIB},
};

/// Compare every link of the boot chain with the list on the ESP. One that cannot be read hides none of the others.
pub fn boot_chain(disk: &dyn BlockIo, gpt: &GptFacts) -> ChainCheck {
    let esp = gpt.part(Part::Esp);
    let unusable = |why: String| ChainCheck { recorded: true, errors: vec![why], ..ChainCheck::default() };
    let fat = |source| unusable(ProbeError::Fat { part: Part::Esp, source }.to_string());
    let volume = match FatVolume::open(disk, esp) {
        Ok(volume) => volume,
        Err(e) => return fat(e),
    };
    let links = match volume.read_small(CHAIN, MIB) {
        // A disk of an installer that made no list.
        Ok(None) => return ChainCheck::default(),
        Ok(Some(bytes)) => match Chain::parse(&bytes) {
            Ok(chain) => chain.0,
            Err(e) => return unusable(format!("{CHAIN} on the ESP: {e}")),
        },
        Err(e) => return fat(e),
    };
    let mut check = ChainCheck { recorded: true, ..ChainCheck::default() };
    for (link, expected) in links {
        match place(&volume, gpt, &link) {
            Ok(None) => check.links.push(missing(&link, expected)),
            Ok(Some(extents)) => match read_back_digest(disk, &extents, &mut |_| ()) {
                Ok(actual) => check.links.push(compared(&link, &extents, expected, actual)),
                Err(e) => check.errors.push(format!("{link}: {e}")),
            },
            Err(why) => check.errors.push(format!("{link}: {why}")),
        }
    }
    check
}

fn place(volume: &FatVolume, gpt: &GptFacts, link: &Link) -> Result<Option<Vec<Extent>>, String> {
    let bios = gpt.part(Part::Bios);
    match link {
        Link::File(path) => volume.find(path).map(|file| file.map(|f| f.extents)).map_err(|e| e.to_string()),
        Link::BootCode { len } => Ok(Some(vec![Extent { offset: 0, len: *len }])),
        Link::CoreImage { len } if *len <= bios.len => Ok(Some(vec![Extent { len: *len, ..bios }])),
        Link::CoreImage { len } => Err(format!("{len} bytes are listed, {} has {}", Part::Bios, bios.len)),
    }
}

fn missing(link: &Link, expected: Sha256) -> FileCheck {
    let name = link.to_string();
    FileCheck { name, state: FileState::Missing, size: None, expected: Some(expected), actual: None, offset: None }
}

fn compared(link: &Link, extents: &[Extent], expected: Sha256, actual: Sha256) -> FileCheck {
    FileCheck {
        name: link.to_string(),
        state: if actual == expected { FileState::Good } else { FileState::Damaged },
        size: Some(extents.iter().map(|e| e.len).sum()),
        expected: Some(expected),
        actual: Some(actual),
        offset: extents.first().map(|e| e.offset),
    }
}

/// The drive that this disk was installed on. `None` if nothing says so, and where it cannot be read: nothing depends on
/// it but what a user is told.
pub fn drive_record(disk: &dyn BlockIo, gpt: &GptFacts) -> Option<DriveRecord> {
    let read =
        || -> Result<Option<Vec<u8>>, ReadError> { FatVolume::open(disk, gpt.part(Part::Esp))?.read_small(DRIVE, MIB) };
    DriveRecord::parse(&read().ok()??)
}
