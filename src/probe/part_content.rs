//! What lies at the place of a partition of ours: it bears out what a partition table says, or contradicts it.

use std::{cell::RefCell, collections::BTreeMap};

use uuid::Uuid;

use super::{
    files::{has_boot_state, slot_boots},
    head, twice,
};
use crate::{
    device::BlockIo,
    fat::{FatVolume, ReadError},
};
use slipway_core::{
    boot::slot::Slot,
    disk::{
        gpt_choice::{Begins, Content},
        layout::{BIOS_BYTES, BIOS_OFFSET, META_BYTES, Part},
        magic::{Kind, recognise},
        meta::{ADV_BYTES, Adv},
        xfs::{XfsSize, is_intact, uuid_of},
    },
    units::{Extent, MIB},
};

type Place = (Part, u64, u64);
type Seen<K, T> = RefCell<BTreeMap<K, T>>;

/// Each question about a place is put to the disk once, whatever the answer: a read that fails takes long, and thousands of answers
/// are weighed.
pub struct PartContent<'d> {
    disk: &'d dyn BlockIo,
    begins: Seen<Place, Begins>,
    whole: Seen<Place, bool>,
    ids: Seen<Place, Option<Id>>,
    volumes: Seen<u64, Option<u64>>,
}

impl<'d> PartContent<'d> {
    pub fn new(disk: &'d dyn BlockIo) -> Self {
        let (begins, whole, ids, volumes) = Default::default();
        PartContent { disk, begins, whole, ids, volumes }
    }
}

fn once<K: Ord, T: Copy>(seen: &Seen<K, T>, place: K, look: impl FnOnce() -> T) -> T {
    *seen.borrow_mut().entry(place).or_insert_with(look)
}

const fn key(part: Part, place: Extent) -> Place {
    (part, place.offset, place.len)
}

/// By what a file system says the PARTUUID of its partition: the serial number of a FAT32 is its beginning.
#[derive(Clone, Copy)]
enum Id {
    Serial(u32),
    Whole([u8; 16]),
}

impl Content for PartContent<'_> {
    fn begins(&self, part: Part, place: Extent) -> Begins {
        let look = || begins(self.disk, part, place);
        once(&self.begins, key(part, place), || twice(look, |begins| *begins == Begins::Unreadable))
    }

    fn is_whole(&self, part: Part, place: Extent) -> bool {
        let look = || match part {
            Part::Esp => has_boot_state(self.disk, place),
            Part::BootA => slot_boots(self.disk, place, Slot::A),
            Part::BootB => slot_boots(self.disk, place, Slot::B),
            Part::Bios | Part::Meta => true,
            Part::State | Part::Ephemeral => head(self.disk, place)
                .and_then(|head| XfsSize::from_superblock(&head)?.bytes()?.checked_next_multiple_of(MIB))
                .is_some_and(|bytes| bytes == place.len),
        };
        once(&self.whole, key(part, place), || twice(look, |is_whole| !is_whole))
    }

    fn says(&self, part: Part, place: Extent, guid: Uuid) -> bool {
        let look = || id(self.disk, part, place);
        match once(&self.ids, key(part, place), || twice(look, Option::is_none)) {
            Some(Id::Serial(serial)) => serial == guid.as_fields().0,
            Some(Id::Whole(id)) => id == guid.into_bytes(),
            None => false,
        }
    }

    fn volume(&self, begin: u64) -> Option<u64> {
        once(&self.volumes, begin, || twice(|| volume(self.disk, begin), Option::is_none))
    }
}

fn id(disk: &dyn BlockIo, part: Part, place: Extent) -> Option<Id> {
    match part {
        Part::Esp | Part::BootA | Part::BootB => Some(Id::Serial(FatVolume::open(disk, place).ok()?.serial())),
        Part::State | Part::Ephemeral => uuid_of(&head(disk, place)?).map(Id::Whole),
        Part::Bios | Part::Meta => None,
    }
}

/// Bytes of a whole XFS file system that begins here. Its last superblock is at the beginning of its last group.
pub(super) fn volume(disk: &dyn BlockIo, begin: u64) -> Option<u64> {
    let room = disk.size().checked_sub(begin)?;
    let head = head(disk, Extent { offset: begin, len: room }).filter(|head| is_intact(head))?;
    let size = XfsSize::from_superblock(&head)?;
    let bytes = size.bytes().filter(|bytes| *bytes <= room)?;
    let Some(last) = size.last_group() else { return Some(bytes) };
    let mut copy = vec![0; disk.sector_size().bytes() as usize];
    disk.read_back(begin + last, &mut copy).ok()?;
    (uuid_of(&copy) == uuid_of(&head)).then_some(bytes)
}

fn begins(disk: &dyn BlockIo, part: Part, place: Extent) -> Begins {
    let Some(head) = head(disk, place) else { return Begins::Unreadable };
    let found = recognise(&head);
    let sized =
        |bytes: Option<u64>| if bytes.is_some_and(|bytes| bytes > place.len) { Begins::Other } else { Begins::Ours };
    match part {
        // The boot code and the core image contain this place.
        Part::Bios if place == (Extent { offset: BIOS_OFFSET, len: BIOS_BYTES }) => Begins::Ours,
        Part::Bios => Begins::Nothing,
        Part::Esp | Part::BootA | Part::BootB => match FatVolume::open(disk, place) {
            Ok(volume) => sized(Some(volume.bytes())),
            Err(ReadError::Io { .. }) => Begins::Unreadable,
            Err(_) if found.is_none_or(|magic| matches!(magic.short, "FAT32" | "boot sector")) => Begins::Nothing,
            Err(_) => Begins::Other,
        },
        Part::Meta if place.len == META_BYTES && has_meta(disk, place) => Begins::Ours,
        Part::Meta => Begins::Nothing,
        // What people make of it is theirs.
        Part::State | Part::Ephemeral => match (XfsSize::from_superblock(&head), found) {
            (Some(size), _) => sized(size.bytes()),
            (None, Some(magic)) if magic.kind == Kind::Volume => Begins::Ours,
            (None, _) => Begins::Nothing,
        },
    }
}

/// Whether one copy of META is valid at least.
pub fn has_meta(disk: &dyn BlockIo, extent: Extent) -> bool {
    let mut copies = [0, ADV_BYTES].map(|at| (extent.offset + at as u64, vec![0; ADV_BYTES]));
    copies.iter_mut().any(|(at, copy)| disk.read_back(*at, copy).is_ok() && Adv::decode(copy).is_some())
}
