//! The partition table of any disk, and the content of its partitions, judged by their first bytes.

use uuid::Uuid;

use super::{error::ProbeError, head, lba0::read_gpt, read};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        foreign_mbr, gpt,
        magic::recognise,
        partition_type::{gpt_type, mbr_type},
        region::{Partition, Region, TableKind, cover},
    },
    plan::GptCopies,
    units::{Extent, SectorSize},
    zeros::are_zeros,
};

#[derive(Clone, Debug)]
pub struct TableFacts {
    pub kind: TableKind,
    /// `None` for an MBR.
    pub disk_guid: Option<Uuid>,
    /// The state of both copies of a GPT.
    pub copies: Option<GptCopies>,
    /// Cover the whole disk, sorted by offset.
    pub regions: Vec<Region>,
    /// Numbers of extended partitions. The logical partitions in them are not listed.
    pub extended: Vec<u32>,
}

/// Read the GPT, or else the MBR. For a disk with neither the error names the content instead.
pub fn partitions(disk: &dyn BlockIo) -> Result<TableFacts, ProbeError> {
    if disk.size() == 0 {
        return Err(ProbeError::NoTable("it is smaller than one sector".to_owned()));
    }
    match of_gpt(disk) {
        Err(none @ (ProbeError::NoTable(_) | ProbeError::Foreign(_))) => of_mbr(disk)?.ok_or(none),
        other => other,
    }
}

fn of_gpt(disk: &dyn BlockIo) -> Result<TableFacts, ProbeError> {
    let sector = disk.sector_size();
    let gpt = read_gpt(disk)?;
    let (header, entries) = gpt.in_use()?;
    let block = sector.bytes();
    let mut regions = Vec::new();
    // The protective MBR and LBA 1 belong to the table even if the copy there is damaged.
    let array = gpt.primary.as_ref().ok().and_then(|(h, _)| entry_array(h, sector));
    regions.extend(joined("GPT", Extent { offset: 0, len: 2 * block }, array));
    if let Ok((h, _)) = &gpt.backup
        && let Some(offset) = h.my_lba.offset(sector)
    {
        regions.extend(joined("backup GPT", Extent { offset, len: block }, entry_array(h, sector)));
    }
    regions.extend(entries.iter().map(|entry| Region::Partition(of_entry(disk, entry))));
    Ok(TableFacts {
        kind: TableKind::Gpt,
        disk_guid: Some(header.disk_guid),
        copies: Some(gpt.copies(sector)),
        regions: cover(disk.size(), regions),
        extended: vec![],
    })
}

fn entry_array(header: &gpt::Header, sector: SectorSize) -> Option<Extent> {
    Some(Extent { offset: header.entries_lba.offset(sector)?, len: header.entries_bytes() as u64 })
}

// Header and entries of a copy, as one region if they are adjacent, which they nearly always are.
fn joined(name: &'static str, header: Extent, array: Option<Extent>) -> Vec<Region> {
    let extents = match array {
        None => vec![header],
        Some(array) if array.offset == header.end() || header.offset == array.end() => {
            vec![Extent { offset: array.offset.min(header.offset), len: header.len + array.len }]
        }
        Some(array) => vec![header, array],
    };
    extents.into_iter().map(|extent| Region::Table { name: name.into(), extent }).collect()
}

fn of_entry(disk: &dyn BlockIo, entry: &gpt::Entry) -> Partition {
    let sector = disk.sector_size();
    // A partition that ends before it begins, or beyond 64 bits, is shown with no bytes where it claims to begin.
    let begin = entry.first.offset(sector).unwrap_or(u64::MAX);
    let extent = entry.extent(sector).unwrap_or(Extent { offset: begin, len: 0 });
    Partition {
        number: entry.number,
        name: entry.name.clone(),
        type_id: entry.type_guid.to_string(),
        type_name: gpt_type(entry.type_guid).map(Into::into),
        guid: Some(entry.guid),
        extent,
        holds: content_of(disk, extent),
    }
}

fn of_mbr(disk: &dyn BlockIo) -> Result<Option<TableFacts>, ProbeError> {
    let sector = disk.sector_size();
    let mut lba0 = vec![0; sector.bytes() as usize];
    read(disk, 0, &mut lba0)?;
    // A protective MBR means that the disk has a GPT, and reading that has failed.
    let Some(entries) = foreign_mbr::partitions(&lba0).filter(|_| !gpt::is_protective_mbr(&lba0)) else {
        return Ok(None);
    };
    let mut regions = vec![Region::Table { name: "MBR".into(), extent: Extent { offset: 0, len: sector.bytes() } }];
    regions.extend(entries.iter().map(|entry| {
        let extent = entry.extent(sector);
        Region::Partition(Partition {
            number: entry.number,
            name: String::new(),
            type_id: format!("{:#04x}", entry.kind),
            type_name: mbr_type(entry.kind).map(Into::into),
            guid: None,
            extent,
            holds: content_of(disk, extent),
        })
    }));
    Ok(Some(TableFacts {
        kind: TableKind::Mbr,
        disk_guid: None,
        copies: None,
        regions: cover(disk.size(), regions),
        extended: entries.iter().filter(|e| e.is_extended()).map(|e| e.number).collect(),
    }))
}

fn content_of(disk: &dyn BlockIo, extent: Extent) -> Option<String> {
    if extent.len == 0 || extent.offset >= disk.size() {
        return None;
    }
    let Some(head) = head(disk, extent) else { return Some("unreadable".to_owned()) };
    let blank = || are_zeros(&head).then_some("blank");
    recognise(&head).map(|s| s.short).or_else(blank).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    // A disk with an MBR, not readable from byte `bad` on.
    struct Failing {
        lba0: [u8; 512],
        bad: u64,
    }

    impl BlockIo for Failing {
        fn size(&self) -> u64 {
            1 << 30
        }

        fn sector_size(&self) -> SectorSize {
            SectorSize::S512
        }

        fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            if offset + buf.len() as u64 > self.bad {
                return Err(io::Error::other("a bad sector"));
            }
            buf.fill(0);
            if offset == 0 {
                let len = buf.len().min(512);
                buf[..len].copy_from_slice(&self.lba0[..len]);
            }
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::Error::other("a probe writes"))
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    // People inspect a disk because it fails.
    #[test]
    fn a_partition_that_cannot_be_read_is_shown_all_the_same() {
        let mut lba0 = [0; 512];
        for (n, first) in [2048u32, 4096].into_iter().enumerate() {
            let row = &mut lba0[446 + 16 * n..][..16];
            row[4] = 0x83;
            row[8..12].copy_from_slice(&first.to_le_bytes());
            row[12..].copy_from_slice(&2048u32.to_le_bytes());
        }
        lba0[510..].copy_from_slice(&[0x55, 0xaa]);
        let facts = partitions(&Failing { lba0, bad: 4096 * 512 }).unwrap();
        let holds: Vec<_> = facts.regions.iter().filter_map(|r| r.partition()?.holds.as_deref()).collect();
        assert_eq!(holds, ["blank", "unreadable"]);
        // If the table itself cannot be read, there is nothing to show.
        let error = partitions(&Failing { lba0, bad: 0 }).unwrap_err();
        assert!(matches!(error, ProbeError::Io { offset: 0, .. }), "{error}");
    }
}
