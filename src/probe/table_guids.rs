//! The GUIDs of a partition table that is to be written again: what is left on the disk tells most of them.

use uuid::Uuid;

use super::{files::slot_boots, gpt::raw_table, head, own_lists::own_lists, table_bytes};
use crate::{device::BlockIo, fat::FatVolume};
use slipway_core::{
    boot::{env_block::EnvBlock, slot::Slot, slot_cfg::SLOT_CFG},
    disk::{
        gpt::{Entry, SIGNATURE},
        gpt_mend::OurEntries,
        layout::{BIOS_BYTES, BIOS_OFFSET, ESP_OFFSET, Part, gpt_bytes},
        xfs::uuid_of,
    },
    payload::{manifest::MANIFEST, partuuids::named_partuuids},
    seeded_guid::seeded_guid,
    units::{Lba, MIB},
};

/// The GUID of the disk, as its slots have it. A boot loader passes it to the kernel, and a system that finds another one on the
/// disk is of no use: it is not confirmed, and takes no upgrade.
pub fn disk_guid(disk: &dyn BlockIo, ours: &OurEntries) -> Option<Uuid> {
    let at = |slot: Slot| ours.parts[Part::from(slot).index()];
    let says = |slot: Slot| guid_in(&FatVolume::open(disk, at(slot)).ok()?);
    let boots = Slot::BOTH.into_iter().filter(|slot| slot_boots(disk, at(*slot), *slot)).find_map(says);
    boots.or_else(|| Slot::BOTH.into_iter().find_map(says))
}

/// The GUID of the disk, as a slot hands it over to the kernel.
pub fn guid_in(slot: &FatVolume) -> Option<Uuid> {
    let cfg = slot.read_small(SLOT_CFG, MIB).ok()??;
    EnvBlock::parse(&cfg)?.get("guid")?.parse().ok()
}

/// The PARTUUIDs, as far as anything says them.
pub fn found_guids(disk: &dyn BlockIo, ours: &OurEntries, both_lost: bool) -> [Option<Uuid>; 7] {
    let lost = || Part::ALL.into_iter().any(|part| ours.guids[part.index()].is_none());
    let named = if lost() { named_by_slots(disk, ours) } else { vec![] };
    let found = with(ours.guids, |part| Some(named.iter().find(|(named, _)| *named == part)?.1));
    let found = with(found, |part| own_guid(disk, ours, part));
    let old = if both_lost { old_backup(disk, ours.parts[Part::Ephemeral.index()].end()) } else { vec![] };
    let guid = |part: Part| Some(old.iter().find(|e| e.number == part.number() && e.name == part.name())?.guid);
    // It is of this installation if a volume says the same.
    let is_ours = Part::ALL.into_iter().any(|part| found[part.index()].is_some() && found[part.index()] == guid(part));
    with(found, |part| guid(part).filter(|_| is_ours))
}

// The PARTUUIDs that are known, and what a source says of the others. Two partitions never get the same one.
fn with(known: [Option<Uuid>; 7], says: impl Fn(Part) -> Option<Uuid>) -> [Option<Uuid>; 7] {
    let said = Part::ALL.map(|part| known[part.index()].or_else(|| says(part)));
    let is_alone = |guid: Option<Uuid>| said.iter().filter(|other| **other == guid).count() == 1;
    Part::ALL.map(|part| known[part.index()].or(said[part.index()].filter(|guid| is_alone(Some(*guid)))))
}

// A system finds no partition under another PARTUUID than its kernel command line names. One that boots counts more.
fn named_by_slots(disk: &dyn BlockIo, ours: &OurEntries) -> Vec<(Part, Uuid)> {
    let at = |slot: Slot| ours.parts[Part::from(slot).index()];
    let mut slots = Slot::BOTH;
    slots.sort_by_key(|slot| !slot_boots(disk, at(*slot), *slot));
    let named = |slot: Slot| {
        let manifest = own_lists(&FatVolume::open(disk, at(slot)).ok()?).manifest?;
        Some(named_partuuids(&manifest, slot))
    };
    slots.into_iter().filter_map(named).flatten().collect()
}

// An image that was written to a larger disk has its second copy where it ended.
fn old_backup(disk: &dyn BlockIo, end: u64) -> Vec<Entry> {
    let block = disk.sector_size().bytes();
    let room = (MIB + gpt_bytes(disk.sector_size())).min(table_bytes(disk).saturating_sub(end));
    let mut bytes = vec![0; (room / block * block) as usize];
    if disk.read_back(end, &mut bytes).is_err() {
        return vec![];
    }
    let blocks = (end / block..).zip(bytes.chunks(block as usize));
    let mut headers = blocks.filter(|(_, bytes)| bytes.starts_with(SIGNATURE));
    headers.find_map(|(lba, _)| Some(raw_table(disk, Lba(lba))?.entries())).unwrap_or_default()
}

// The PARTUUID that what lies in a partition says: an XFS file system has the same UUID, and a kernel command line may name
// that of its slot, which begins with the serial number of the volume.
fn own_guid(disk: &dyn BlockIo, ours: &OurEntries, part: Part) -> Option<Uuid> {
    let extent = ours.parts[part.index()];
    match part {
        Part::State | Part::Ephemeral => uuid_of(&head(disk, extent)?).map(Uuid::from_bytes),
        Part::BootA | Part::BootB => {
            let volume = FatVolume::open(disk, extent).ok()?;
            let manifest = volume.read_small(MANIFEST, MIB).ok()??;
            named(&String::from_utf8_lossy(&manifest), volume.serial())
        }
        Part::Esp | Part::Bios | Part::Meta => None,
    }
}

fn named(text: &str, serial: u32) -> Option<Uuid> {
    let begin = format!("{serial:08x}-");
    let mut places = text.match_indices(&begin).map(|(at, _)| at);
    places.find_map(|at| text.get(at..at + Uuid::from_u128(0).hyphenated().to_string().len())?.parse().ok())
}

/// A GUID that is the same at every look. The beginnings of the file systems tell disks apart, by their serial numbers.
pub fn seeded(disk: &dyn BlockIo, label: &str) -> Uuid {
    let volumes = [ESP_OFFSET, BIOS_OFFSET + BIOS_BYTES];
    let mut seed = label.as_bytes().to_vec();
    for offset in volumes {
        let mut sector = vec![0; disk.sector_size().bytes() as usize];
        if disk.read_back(offset, &mut sector).is_ok() {
            seed.extend(sector);
        }
    }
    seeded_guid(&seed)
}
