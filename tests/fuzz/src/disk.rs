//! What stands on a disk with checksums: the partition table and META. Valid ones are made first, then spoiled, with the
//! checksums repaired or not.

use slipway::probe;
use slipway_core::{
    disk::{
        gpt::{BOOT_CODE_BYTES, Gpt, Header, protective_mbr},
        identity::{DiskIdentity, DiskKind},
        layout::{ENTRY_ARRAY_BYTES, Layout, META_BYTES, MIN_EPHEMERAL_IMAGE, Part},
        meta::{ADV_BYTES, Adv, Meta},
        region::{Region, misplaced},
    },
    report::{LayoutReport, Style},
    units::{GIB, Lba, MIB, SectorSize},
};
use uuid::Uuid;

use super::sparse::Sparse;

/// Byte offset of the digest in one copy of the ADV.
const DIGEST_AT: usize = ADV_BYTES - 36;

/// The input: a byte of flags, then records, or edits of three bytes (offset, value).
pub fn adv(mut bytes: &[u8]) -> bool {
    let flags = super::take(&mut bytes);
    let mut partition = vec![0; META_BYTES as usize];
    partition[META_BYTES as usize - 1024..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let mut adv = Adv::default();
    adv.set(6, b"A".to_vec()).unwrap();
    let mut copy = adv.encode();
    let valid = copy.clone();
    if flags & 1 == 0 {
        let records = if flags & 2 == 0 { 4..DIGEST_AT } else { DIGEST_AT - bytes.len().min(600)..DIGEST_AT };
        if flags & 2 != 0 {
            // One record up to the end, but for what the input brings.
            copy[8..12].copy_from_slice(&[0, 0, 0, 6]);
            let len = (records.start - 12) as u32;
            copy[4..12].copy_from_slice(&[[0, 0, 0, 6], len.to_be_bytes()].concat());
        }
        copy[records].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        fix_checksums(&mut copy);
    } else {
        for edit in bytes.chunks_exact(3) {
            // The head, or the tail.
            let at = usize::from(edit[0]) << 1 | usize::from(edit[1] >> 7);
            let at = if edit[1] & 1 == 0 { at } else { ADV_BYTES - 1 - at };
            copy[at] = edit[2];
        }
        assert_eq!(Adv::decode(&copy).is_some(), copy == valid, "a copy that was changed is none");
    }
    partition[..ADV_BYTES].copy_from_slice(&copy);
    if let Some(adv) = Adv::decode(&copy) {
        assert_eq!(Adv::decode(&adv.encode()).as_ref(), Some(&adv));
        assert!(adv.iter().all(|(tag, value)| tag != 0 && value.len() < ADV_BYTES));
        let mut full = adv.clone();
        if full.set(1, bytes.to_vec()).is_ok() {
            assert_eq!(Adv::decode(&full.encode()).as_ref().and_then(|a| a.get(1)), Some(bytes));
        }
    }
    legacy(&partition);
    let meta = Meta::decode(&partition);
    meta.valid[0] || !meta.legacy.is_empty()
}

fn fix_checksums(copy: &mut [u8]) {
    copy[DIGEST_AT..DIGEST_AT + 32].fill(0);
    let digest = slipway_core::digest::Sha256::of(copy);
    copy[DIGEST_AT..DIGEST_AT + 32].copy_from_slice(&digest.0);
}

/// The legacy area loses a tag, and no other.
fn legacy(partition: &[u8]) {
    let meta = Meta::decode(partition);
    for tag in meta.legacy.keys() {
        let (at, area) = meta.legacy_without(*tag).unwrap();
        assert_eq!((area.len(), at), (1024, META_BYTES - 1024));
        let mut tags = meta.legacy.clone();
        tags.remove(tag);
        let mut after = vec![0; META_BYTES as usize];
        after[at as usize..].copy_from_slice(&area);
        assert_eq!(Meta::decode(&after).legacy, tags);
        assert_eq!(meta.get(*tag), meta.adv.get(*tag).or(meta.legacy.get(tag).map(Vec::as_slice)));
    }
    let zero = (0..=255).find(|tag| !meta.legacy.contains_key(tag));
    assert!(zero.is_none_or(|tag| meta.legacy_without(tag).is_none()));
}

const REPAIR_ENTRIES: u8 = 2;
const REPAIR_HEADERS: u8 = 4;

/// The input: a byte of flags, then edits of four bytes (region, offset, value) to the table of a good disk.
pub fn gpt(mut bytes: &[u8]) -> bool {
    let raw = bytes;
    let flags = super::take(&mut bytes);
    let sector = if flags & 1 == 0 { SectorSize::S512 } else { SectorSize::S4096 };
    let layout = Layout::new(2100 * MIB, sector, 300 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
    let guids = std::array::from_fn(|i| Uuid::from_u128(0x1000 + i as u128));
    let label = Gpt::new(&layout, Uuid::from_u128(0xd15c), &guids);
    let size = layout.disk_bytes + if flags & 8 == 0 { 0 } else { GIB };
    let mut disk = Sparse {
        size,
        sector,
        ranges: vec![
            (0, protective_mbr(&layout, &[0; BOOT_CODE_BYTES], flags & 16 != 0)),
            (sector.bytes(), label.primary_header),
            (2 * sector.bytes(), label.entries.clone()),
            (label.backup_entries_offset, label.entries),
            (label.backup_header_offset, label.backup_header),
        ],
    };
    let repaired = flags & (REPAIR_ENTRIES | REPAIR_HEADERS) != 0;
    for edit in bytes.chunks_exact(4) {
        let offset = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
        // Both arrays of entries can be changed as one.
        let regions: &[usize] = match edit[0] % 6 {
            5 => &[2, 3],
            region => &[usize::from(region)],
        };
        for region in regions {
            let place = &mut disk.ranges[*region].1;
            let offset = offset % place.len();
            // A fuzzer that sees comparisons forges a CRC; where none is to be right, it stays away from them.
            let crc = matches!(region, 1 | 4) && matches!(offset, 16..20 | 88..92);
            if repaired || !crc {
                place[offset] = edit[3];
            }
        }
    }
    repair(&mut disk, flags);
    decode_raw(raw, &disk.ranges[2].1);
    draw(&disk);
    judge(&disk, &layout, &guids, repaired)
}

/// Whatever the table says, it can be drawn, and what counts as ours is drawn as what it is.
fn draw(disk: &Sparse) {
    let label = probe::gpt(disk);
    let Ok(facts) = probe::partitions(disk) else {
        assert!(label.is_err(), "a table that counts is not drawn");
        return;
    };
    let extents = facts.regions.iter().map(Region::extent);
    assert!(extents.clone().map(|e| e.offset).is_sorted(), "not in order of place");
    let partitions: Vec<_> = facts.regions.iter().filter_map(Region::partition).collect();
    let inside = |r: &Region| r.partition().is_some() || r.extent().end() <= disk.size;
    assert!(facts.regions.iter().all(inside), "free beyond the end of the disk");
    let problems = misplaced(disk.size, &facts.regions);
    if let Ok(label) = label {
        assert!(problems.is_empty() || partitions.len() > Part::ALL.len(), "{problems:?}");
        for part in Part::ALL {
            let found = partitions.iter().find(|p| p.number == part.number()).map(|p| p.extent);
            assert_eq!(found, Some(label.part(part)));
        }
    }
    let report = LayoutReport {
        disk: DiskIdentity { path: "disk".into(), kind: DiskKind::Image, model: None, serial: None, wwid: None },
        bytes: disk.size,
        sector_bytes: disk.sector.bytes(),
        table: facts.kind,
        disk_guid: facts.disk_guid,
        regions: facts.regions,
        system: None,
        not_ours: None,
        problems,
        writer: None,
        style: Style::default(),
    };
    let text = report.to_string();
    assert!(text.lines().all(|line| line.len() <= 80 && line.bytes().all(|b| (b' '..=b'~').contains(&b))), "{text}");
}

fn repair(disk: &mut Sparse, flags: u8) {
    for (header, entries) in [(1, 2), (4, 3)] {
        if flags & REPAIR_ENTRIES != 0 {
            let crc = crc32fast::hash(&disk.ranges[entries].1).to_le_bytes();
            disk.ranges[header].1[88..92].copy_from_slice(&crc);
        }
        if flags & REPAIR_HEADERS != 0 {
            let block = &mut disk.ranges[header].1;
            block[16..20].fill(0);
            let size = u32::from_le_bytes([block[12], block[13], block[14], block[15]]) as usize;
            let crc = crc32fast::hash(&block[..size.clamp(92, block.len())]);
            block[16..20].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// What a table must be that is going to be written to.
fn judge(disk: &Sparse, layout: &Layout, guids: &[Uuid; 7], repaired: bool) -> bool {
    let Ok(label) = probe::gpt(disk) else { return false };
    assert!(label.copies.primary.is_ok() || label.copies.backup.is_ok());
    let mut parts = label.parts;
    if !repaired {
        assert_eq!((parts, label.guids), (Part::ALL.map(|p| layout.part(p)), *guids), "a damaged table is believed");
    }
    parts.sort_by_key(|extent| extent.offset);
    let table = 2 * disk.sector.bytes() + ENTRY_ARRAY_BYTES;
    let mut end = table;
    for part in parts {
        assert!(part.len > 0 && part.offset % disk.sector.bytes() == 0 && part.len % disk.sector.bytes() == 0);
        assert!(part.offset >= end, "{part:?} begins before {end}: it lies on another or on the table");
        end = part.end();
    }
    assert!(end <= disk.size, "a partition ends beyond the disk");
    true
}

/// Bytes that are no table at all.
fn decode_raw(bytes: &[u8], entries: &[u8]) {
    for at in [Lba(1), Lba(0), Lba(u64::MAX)] {
        let Ok(header) = Header::decode(bytes, at) else { continue };
        assert!(header.entries_bytes() as u64 <= 4 * ENTRY_ARRAY_BYTES);
        for entry in header.decode_entries(entries).unwrap_or_default() {
            assert!((1..=512).contains(&entry.number) && entry.name.encode_utf16().count() <= 36);
            if let Some(extent) = entry.extent(SectorSize::S4096) {
                assert!(extent.len > 0 && extent.end() > extent.offset);
            }
        }
    }
}
