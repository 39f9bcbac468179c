//! Records on the ESP about the disk as a whole: the boot chain, and the drive that it was installed on.

use super::{error::ProbeError, read};
use crate::{
    device::BlockIo,
    fat::{FatVolume, ReadError},
    transfer::{StreamError, read_back_digest},
};
use slipway_core::{
    digest::Sha256,
    disk::{
        bios,
        chain::{CHAIN, Chain, Link},
        drive_record::{DRIVE, DriveRecord},
        layout::Part,
    },
    plan::GptFacts,
    report::{ChainCheck, FileCheck, FileState},
    units::{Extent, MIB},
};

/// Digests of the files that one look at a disk has read, so that it reads nothing twice.
#[derive(Default)]
pub struct Digests(Vec<(Vec<Extent>, Sha256)>);

impl Digests {
    /// The content, read by a caller that needs more than its digest.
    pub fn know(&mut self, extents: Vec<Extent>, digest: Sha256) {
        self.0.push((extents, digest));
    }

    pub fn digest(&mut self, disk: &dyn BlockIo, extents: &[Extent]) -> Result<Sha256, StreamError> {
        if let Some((_, known)) = self.0.iter().find(|(known, _)| known == extents) {
            return Ok(*known);
        }
        let digest = read_back_digest(disk, extents, &mut |_| ())?;
        self.know(extents.to_vec(), digest);
        Ok(digest)
    }
}

/// Compare every link of the boot chain with the list on the ESP. One that cannot be read hides none of the others.
pub fn boot_chain(disk: &dyn BlockIo, gpt: &GptFacts) -> ChainCheck {
    boot_chain_by(disk, gpt, &mut Digests::default())
}

/// Compares the chain after some of it was read.
pub fn boot_chain_by(disk: &dyn BlockIo, gpt: &GptFacts, digests: &mut Digests) -> ChainCheck {
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
            Ok(chain) => chain,
            Err(e) => return unusable(format!("{CHAIN} on the ESP: {e}")),
        },
        Err(e) => return fat(e),
    };
    let mut check = ChainCheck { recorded: true, ..ChainCheck::default() };
    for alternatives in links.links() {
        let looked: Vec<_> = alternatives.iter().map(|row| look_at(disk, &volume, gpt, row, digests)).collect();
        let good = looked.iter().flatten().find(|check| check.state == FileState::Good);
        match (good, looked.first()) {
            (Some(link), _) | (None, Some(Ok(link))) => check.links.push(link.clone()),
            (None, Some(Err(why))) => check.errors.push(why.clone()),
            (None, None) => {}
        }
    }
    check
}

fn look_at(
    disk: &dyn BlockIo,
    volume: &FatVolume,
    gpt: &GptFacts,
    (link, expected): &(Link, Sha256),
    digests: &mut Digests,
) -> Result<FileCheck, String> {
    let about = |why: String| format!("{link}: {why}");
    let Some(extents) = place(disk, volume, gpt, link).map_err(about)? else { return Ok(missing(link, *expected)) };
    let actual = digests.digest(disk, &extents).map_err(|e| about(e.to_string()))?;
    Ok(compared(link, &extents, *expected, actual))
}

fn place(disk: &dyn BlockIo, volume: &FatVolume, gpt: &GptFacts, link: &Link) -> Result<Option<Vec<Extent>>, String> {
    match link {
        Link::File(path) => volume.find(path).map(|file| file.map(|f| f.extents)).map_err(|e| e.to_string()),
        Link::BootCode { len } => Ok(Some(vec![Extent { offset: 0, len: *len }])),
        Link::CoreImage { len } => {
            let bios = gpt.part(Part::Bios);
            // Boot code that starts nothing of ours is damaged itself.
            let half = started_half(disk, bios).map_err(|e| e.to_string())?.unwrap_or(0);
            let core = Extent { len: *len, ..bios::halves(bios)[half] };
            if bios.contains(core) {
                Ok(Some(vec![core]))
            } else {
                Err(format!("{len} bytes are listed, {} has {}", Part::Bios, bios.len))
            }
        }
    }
}

/// The half of the BIOS partition that the boot code starts.
fn started_half(disk: &dyn BlockIo, bios: Extent) -> Result<Option<usize>, ProbeError> {
    let mut lba0 = vec![0; disk.sector_size().bytes() as usize];
    read(disk, 0, &mut lba0)?;
    Ok(bios::started(&lba0, bios))
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

/// The drive that this disk was installed on. `None` if nothing says so, and where it cannot be read: only messages to
/// a user depend on it.
pub fn drive_record(disk: &dyn BlockIo, gpt: &GptFacts) -> Option<DriveRecord> {
    let read =
        || -> Result<Option<Vec<u8>>, ReadError> { FatVolume::open(disk, gpt.part(Part::Esp))?.read_small(DRIVE, MIB) };
    DriveRecord::parse(&read().ok()??)
}
