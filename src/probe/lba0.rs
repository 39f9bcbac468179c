//! LBA 0 says whether a disk has a GPT. If it has none: the content of the disk instead, and the remedy that brings the
//! table back.

use super::{
    error::ProbeError,
    files::{has_boot_state, is_free_of_others, slot_boots},
    gpt::{Gpt, ours},
    head,
    mend_table::mended_table,
    read, read_lba0, table_bytes,
};
use crate::{device::BlockIo, fat::FatVolume};
use slipway_core::{
    boot::{
        env::{BootEnv, PATHS},
        slot::{Slot, SlotState},
    },
    bytes::{le16, le32},
    digest::Sha256,
    disk::{
        chain::{CHAIN, Chain, Link},
        foreign_mbr,
        gpt::{BOOT_CODE_BYTES, is_bootable, is_protective_mbr, protective_mbr_of, with_status_byte},
        layout::{BIOS_BYTES, BIOS_OFFSET, ESP_BYTES, ESP_OFFSET, META_BYTES, Part, STATE_BYTES},
        magic::recognise,
        xfs::was_mounted,
    },
    plan::{GptFacts, Lba0Facts},
    units::{Extent, Lba, MIB},
    zeros::are_zeros,
};

/// LBA 0 as it shall be.
pub struct MendedLba0 {
    pub facts: Lba0Facts,
    pub bytes: Vec<u8>,
}

/// The partition table of an installed disk. A table with other partitions than ours is [`ProbeError::Foreign`].
pub fn gpt(disk: &dyn BlockIo) -> Result<GptFacts, ProbeError> {
    let found = read_gpt(disk).and_then(|gpt| ours(disk, &gpt));
    let mut found = found.map_err(|e| match e {
        ProbeError::NoTable(_) | ProbeError::Foreign(_) | ProbeError::Shrunk { .. } => table_lost(disk).unwrap_or(e),
        e => e,
    })?;
    if with_status_byte(&read_lba0(disk).0).is_some() {
        found
            .faults
            .push("the protective MBR in LBA 0 has a wrong status byte, so that UEFI takes no table".to_owned());
    }
    Ok(found)
}

// A table of ours that `repair` can write again, or could if the disk were as large as it was.
fn table_lost(disk: &dyn BlockIo) -> Option<ProbeError> {
    match mended_table(disk) {
        Ok(mended) => Some(ProbeError::TableLost(mended?.facts.faults.join("; "))),
        Err(shrunk @ ProbeError::Shrunk { .. }) => Some(shrunk),
        Err(_) => None,
    }
}

/// Both copies of the GPT of a disk that has one.
pub(super) fn read_gpt(disk: &dyn BlockIo) -> Result<Gpt, ProbeError> {
    if disk.size() == 0 {
        return Err(ProbeError::NoTable("it is smaller than one sector".to_owned()));
    }
    let (lba0, is_read) = read_lba0(disk);
    match is_read {
        Ok(()) if is_protective_mbr(&lba0) => Ok(Gpt::tables(disk)),
        Ok(()) => Err(no_table(disk)),
        Err(unreadable) => match behind_lost_lba0(disk)? {
            Some(_) => Err(ProbeError::Lba0Lost),
            None => Err(unreadable),
        },
    }
}

/// Why there is no table, of a disk whose LBA 0 is no protective MBR.
fn no_table(disk: &dyn BlockIo) -> ProbeError {
    match behind_lost_lba0(disk) {
        Ok(Some(_)) => return ProbeError::Lba0Lost,
        Err(shrunk) => return shrunk,
        Ok(None) => {}
    }
    if let Some(lost) = table_lost(disk) {
        return lost;
    }
    const WHY: &str = "LBA 0 carries no protective MBR";
    let Some(head) = head(disk, Extent { offset: 0, len: disk.size() }) else {
        return ProbeError::NoTable(WHY.to_owned());
    };
    // Others have partitions on it.
    if let Some(mbr) = foreign_mbr::partitions(&head).and_then(|_| recognise(&head)) {
        return ProbeError::Foreign(format!("{WHY}; the disk begins with {}", mbr.name));
    }
    let tables = Gpt::tables(disk);
    let is = match (recognise(&head), tables.for_other_sectors()) {
        (Some(s), _) if s.is_other_format() => {
            format!("it is {}: unpack it, or convert it with qemu-img convert -O raw", s.name)
        }
        (Some(s), _) => format!("the disk begins with {}", s.name),
        (None, Some(other)) => other.to_owned(),
        (None, None) if !are_zeros(&head) => "the disk begins with data of no known format".to_owned(),
        (None, None) => match without_table(disk) {
            Some(Behind::Unfinished) => return ProbeError::Unproven { was_used: false },
            Some(Behind::Used) => return ProbeError::Unproven { was_used: true },
            Some(Behind::Data(what)) => what,
            None => format!("the disk begins with {} zeros: it is empty, or erased", head.len()),
        },
    };
    ProbeError::NoTable(format!("{WHY}; {is}"))
}

/// The data behind the place of a missing partition table.
pub(super) enum Behind {
    /// An installation that has not ended.
    Unfinished,
    /// A system of ours that was in use.
    Used,
    /// What begins where a first partition usually does, in words.
    Data(String),
}

/// Whether an installation on it has not ended. An install clears LBA 0 before all else, and writes it last. When META is there,
/// so is all that boots, and `repair` may finish it; but nothing is lost if it begins again.
pub(super) fn is_unfinished(disk: &dyn BlockIo) -> Result<bool, ProbeError> {
    let mut lba0 = vec![0; disk.sector_size().bytes() as usize];
    read(disk, 0, &mut lba0)?;
    Ok(are_zeros(&lba0) && matches!(without_table(disk), Some(Behind::Unfinished)))
}

/// Looks behind the place of a partition table. None if nothing known stands there.
pub(super) fn without_table(disk: &dyn BlockIo) -> Option<Behind> {
    // An install writes the ESP, at the same place on every disk, long before the table.
    if let Some(env) = boot_state(disk) {
        return Some(if is_used(disk, &env) { Behind::Used } else { Behind::Unfinished });
    }
    let first = Extent { offset: ESP_OFFSET, len: disk.size().checked_sub(ESP_OFFSET)? };
    let found = head(disk, first).and_then(|head| recognise(&head))?;
    Some(Behind::Data(format!("{} at byte {ESP_OFFSET}, without a partition table", found.name)))
}

// The boot state on an ESP at its usual place.
fn boot_state(disk: &dyn BlockIo) -> Option<BootEnv> {
    let volume = FatVolume::open(disk, Extent { offset: ESP_OFFSET, len: ESP_BYTES }).ok()?;
    PATHS.iter().find_map(|path| BootEnv::parse(&volume.read_small(path, MIB).ok()??))
}

// Whether there is more than an install that has not ended can have written.
fn is_used(disk: &dyn BlockIo, env: &BootEnv) -> bool {
    let is_changed =
        env.history.is_some_and(|n| n > 1) || env.states[Slot::B] != SlotState::Empty || env.last_trial.is_some();
    is_changed || has_data(disk).unwrap_or(true)
}

// Whether STATE or EPHEMERAL holds something else than a file system that was never mounted. The volume of slot A tells where
// they lie. None if it cannot be read.
fn has_data(disk: &dyn BlockIo) -> Option<bool> {
    let slot = BIOS_OFFSET + BIOS_BYTES;
    let mut boot_sector = vec![0; disk.sector_size().bytes() as usize];
    disk.read_back(slot, &mut boot_sector).ok()?;
    // The disk may be shown with sectors of another size than those it was installed for.
    let sector = u64::from(le16(&boot_sector, 11));
    let sectors = le32(&boot_sector, 32);
    // Not written yet: the data volumes come later.
    if sectors == 0 {
        return Some(false);
    }
    let state = slot + 2 * u64::from(sectors) * sector + META_BYTES;
    let mut found = [state, state + STATE_BYTES].into_iter().map(|offset| {
        let head = head(disk, Extent { offset, len: disk.size().checked_sub(offset)? })?;
        Some(recognise(&head).is_some_and(|magic| magic.short != "XFS" || was_mounted(&head)))
    });
    found.try_fold(false, |any, one| Some(any || one?))
}

// The table of a disk of ours that only lacks LBA 0: no other program has begun to use the disk, and our boot state or a slot
// that boots is where the table says. The error is that the disk is smaller than it was.
fn behind_lost_lba0(disk: &dyn BlockIo) -> Result<Option<GptFacts>, ProbeError> {
    if !is_free_of_others(disk) {
        return Ok(None);
    }
    let gpt = match ours(disk, &Gpt::tables(disk)) {
        Ok(gpt) => gpt,
        Err(shrunk @ ProbeError::Shrunk { .. }) => return Err(shrunk),
        Err(_) => return Ok(None),
    };
    let boots = |slot: Slot| slot_boots(disk, gpt.part(slot.into()), slot);
    let is_known = has_boot_state(disk, gpt.part(Part::Esp)) || Slot::BOTH.into_iter().any(boots);
    Ok(is_known.then_some(gpt))
}

/// Boot code that starts a core image at a block, and that core image.
pub type Shipped<'s> = dyn Fn(Lba) -> Option<([u8; BOOT_CODE_BYTES], Vec<u8>)> + 's;

/// LBA 0 of a disk that lacks only that. `shipped`: the installer's boot code, in case the disk has lost its own. None if LBA 0
/// is not lost.
pub fn mended_lba0(disk: &dyn BlockIo, shipped: &Shipped<'_>) -> Result<Option<MendedLba0>, ProbeError> {
    let sector = disk.sector_size();
    if disk.size() == 0 {
        return Ok(None);
    }
    let (found, is_read) = read_lba0(disk);
    if is_protective_mbr(&found) {
        return Ok(mended_status_byte(disk, &found));
    }
    let Some(gpt) = behind_lost_lba0(disk)? else { return is_read.map(|()| None) };
    let recorded = recorded(disk, &gpt);
    let halves = slipway_core::disk::bios::halves(gpt.part(Part::Bios)).map(|half| half.first_lba(sector));
    let own: Option<[u8; BOOT_CODE_BYTES]> = found.first_chunk().copied();
    let is_recorded = |code: &[u8; BOOT_CODE_BYTES]| recorded.contains(&Sha256::of(code));
    let of_half = |half: Lba| {
        let (code, core) = shipped(half)?;
        // Without the list, the core image that lies there says which code started it.
        let is_it = if recorded.is_empty() { holds(disk, half.offset(sector), &core) } else { is_recorded(&code) };
        is_it.then_some(code)
    };
    let code = own.filter(is_recorded).or_else(|| halves.into_iter().find_map(of_half));
    let boot_code_lost = code.is_none() && !recorded.is_empty();
    // What stands beside our boot code is ours, too.
    let bootable = is_bootable(&found).filter(|_| code.is_some() && code == own);
    let flag_lost = bootable.is_none() && (code.is_some() || boot_code_lost);
    let blocks = table_bytes(disk) / sector.bytes();
    let code = code.unwrap_or([0; BOOT_CODE_BYTES]);
    let bytes = protective_mbr_of(sector, blocks, &code, bootable == Some(true));
    let (found, mended) = (Sha256::of(&found), Sha256::of(&bytes));
    let facts = Lba0Facts { disk_guid: gpt.disk_guid, sector, found, mended, boot_code_lost, flag_lost };
    Ok(Some(MendedLba0 { facts, bytes }))
}

// Only UEFI minds it, and all else in LBA 0 stays, whoever wrote that.
fn mended_status_byte(disk: &dyn BlockIo, lba0: &[u8]) -> Option<MendedLba0> {
    let bytes = with_status_byte(lba0)?;
    let (disk_guid, sector) = (gpt(disk).ok()?.disk_guid, disk.sector_size());
    let (found, mended) = (Sha256::of(lba0), Sha256::of(&bytes));
    let facts = Lba0Facts { disk_guid, sector, found, mended, boot_code_lost: false, flag_lost: false };
    Some(MendedLba0 { facts, bytes })
}

fn holds(disk: &dyn BlockIo, offset: Option<u64>, bytes: &[u8]) -> bool {
    let mut found = vec![0; bytes.len()];
    offset.is_some_and(|offset| read(disk, offset, &mut found).is_ok()) && found == bytes
}

// The boot code that the disk was installed with, or renewed; none if a BIOS does not start it.
fn recorded(disk: &dyn BlockIo, gpt: &GptFacts) -> Vec<Sha256> {
    let list = FatVolume::open(disk, gpt.part(Part::Esp)).and_then(|volume| volume.read_small(CHAIN, MIB));
    let chain = list.ok().flatten().and_then(|bytes| Chain::parse(&bytes).ok()).unwrap_or_default();
    let code = |(link, digest): &(Link, Sha256)| {
        matches!(link, Link::BootCode { len } if *len == BOOT_CODE_BYTES as u64).then_some(*digest)
    };
    chain.0.iter().filter_map(code).collect()
}
