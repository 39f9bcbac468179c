//! The partition table while it grows, on disks of any size and with both sector sizes: the shipped code on a disk in
//! memory, cut after every write. Judged by the `gpt` crate, whose CRC of the entries is checked here.

use std::{
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom, Write},
    sync::Mutex,
};

use gpt::{DiskDevice, GptConfig, disk::LogicalBlockSize, header::Header, partition::file_read_partitions};
use proptest::prelude::*;
use slipway::{device::BlockIo, ops::grow::Growing, probe};
use slipway_core::{
    disk::{
        gpt::{BOOT_CODE_BYTES, Gpt, protective_mbr},
        layout::{Layout, MIN_EPHEMERAL_IMAGE, Part, min_slot_bytes},
    },
    units::{Extent, MIB, SectorSize},
};
use slipway_test_support::fixtures::Silent;
use uuid::Uuid;

/// First and last block of each partition, and its PARTUUID.
pub type Parts = BTreeMap<u32, (u64, u64, Uuid)>;

/// The table at LBA 1 and the one in the last block, as far as they are valid.
pub fn copies(device: impl DiskDevice, sector: SectorSize) -> [Option<Parts>; 2] {
    let size = LogicalBlockSize::try_from(sector.bytes()).unwrap();
    let Ok(mut table) = GptConfig::new().logical_block_size(size).open_from_device(device) else { return [None, None] };
    let headers = [table.primary_header().ok().cloned(), table.backup_header().ok().cloned()];
    headers.map(|header| parts(table.device_mut(), &header?, size))
}

fn parts(device: &mut impl DiskDevice, header: &Header, size: LogicalBlockSize) -> Option<Parts> {
    let mut array = vec![0; header.num_parts as usize * 128];
    device.seek(SeekFrom::Start(header.part_start * u64::from(size))).ok()?;
    device.read_exact(&mut array).ok()?;
    let parts =
        file_read_partitions(device, header, size).ok().filter(|_| crc32fast::hash(&array) == header.crc32_parts)?;
    Some(parts.into_iter().map(|(number, part)| (number, (part.first_lba, part.last_lba, part.part_guid))).collect())
}

/// A disk in memory; sectors that are not there are zero.
#[derive(Clone, Debug)]
struct Sparse {
    sector: SectorSize,
    size: u64,
    sectors: BTreeMap<u64, Vec<u8>>,
    at: u64,
}

impl Sparse {
    fn put(&mut self, offset: u64, bytes: &[u8], arrives: impl Fn(usize) -> bool) {
        let sector = self.sector.bytes();
        assert!(offset.is_multiple_of(sector) && offset + bytes.len() as u64 <= self.size);
        for (n, bytes) in bytes.chunks(sector as usize).enumerate().filter(|(n, _)| arrives(*n)) {
            assert_eq!(bytes.len() as u64, sector, "whole sectors are written");
            self.sectors.insert(offset / sector + n as u64, bytes.to_vec());
        }
    }

    fn get(&self, offset: u64, buf: &mut [u8]) -> usize {
        let sector = self.sector.bytes();
        let len = buf.len().min(self.size.saturating_sub(offset) as usize);
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let skip = (at % sector) as usize;
            let piece = (sector as usize - skip).min(len - done);
            match self.sectors.get(&(at / sector)) {
                Some(bytes) => buf[done..done + piece].copy_from_slice(&bytes[skip..skip + piece]),
                None => buf[done..done + piece].fill(0),
            }
            done += piece;
        }
        len
    }

    /// With the table of an image of this size.
    fn installed(sector: SectorSize, bytes: u64, size: u64) -> Self {
        let layout = Layout::new(bytes, sector, min_slot_bytes(sector), MIN_EPHEMERAL_IMAGE).unwrap();
        let gpt = Gpt::new(&layout, Uuid::from_u128(7), &std::array::from_fn(|n| Uuid::from_u128(n as u128 + 1)));
        let mut disk = Sparse { sector, size, sectors: BTreeMap::new(), at: 0 };
        disk.put(0, &protective_mbr(&layout, &[1; BOOT_CODE_BYTES], false), |_| true);
        disk.put(sector.bytes(), &[&gpt.primary_header[..], &gpt.entries].concat(), |_| true);
        disk.put(gpt.backup_entries_offset, &[&gpt.entries[..], &gpt.backup_header].concat(), |_| true);
        disk
    }

    fn copies(&self) -> [Option<Parts>; 2] {
        copies(self.clone(), self.sector)
    }
}

impl Read for Sparse {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.get(self.at, buf);
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.size.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

impl Write for Sparse {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("a judge does not write"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A write, or (`None`) a flush.
type Op = Option<(u64, Vec<u8>)>;

struct Recorder(Mutex<(Sparse, Vec<Op>)>);

impl Recorder {
    fn new(disk: &Sparse) -> Self {
        Recorder(Mutex::new((disk.clone(), vec![])))
    }

    /// Grow it; the disk afterwards, and what was written.
    fn grow(disk: &Sparse) -> Result<(Sparse, Vec<Op>), String> {
        let recorder = Recorder::new(disk);
        let growing = Growing::look(&recorder, "disk").map_err(|e| e.to_string())?;
        growing.carry_out(&mut Silent).map_err(|e| e.to_string())?;
        Ok(recorder.0.into_inner().unwrap())
    }
}

impl BlockIo for Recorder {
    fn size(&self) -> u64 {
        self.0.lock().unwrap().0.size
    }

    fn sector_size(&self) -> SectorSize {
        self.0.lock().unwrap().0.sector
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = self.0.lock().unwrap().0.get(offset, buf);
        if len == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        inner.0.put(offset, buf, |_| true);
        inner.1.push(Some((offset, buf.to_vec())));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.lock().unwrap().1.push(None);
        Ok(())
    }
}

/// Every reader of this disk finds the old table or the new one, and one more run completes it.
fn judge(state: &Sparse, old: &Parts, new: &Parts) -> Result<(), String> {
    let [primary, last] = state.copies();
    let found = primary.ok_or("the primary is not valid: GRUB and Linux look for no other")?;
    if &found != old && &found != new {
        return Err(format!("a table that is neither: {found:?}"));
    }
    // Where the disk has grown by less than EPHEMERAL can use, both tables have the same partitions.
    if &found == new && new != old && last.as_ref() != Some(new) {
        return Err("the new primary, without its backup".to_owned());
    }
    let ours = probe::gpt(&Recorder::new(state)).map_err(|e| e.to_string())?;
    for (part, extent) in Part::ALL.iter().zip(ours.parts) {
        let (first, end, guid) = found[&part.number()];
        let sector = state.sector.bytes();
        let same = Extent { offset: first * sector, len: (end + 1 - first) * sector } == extent;
        assert!(same && guid == ours.guid(*part), "{part}");
    }
    let (again, _) = Recorder::grow(state)?;
    if again.copies() != [Some(new.clone()), Some(new.clone())] {
        return Err(format!("run again: {:?}", again.copies()));
    }
    let (_, ops) = Recorder::grow(&again)?;
    if ops.is_empty() { Ok(()) } else { Err("the third run writes".to_owned()) }
}

/// Which sectors of a write arrive, out of a number.
fn arrives(seed: u64, op: usize, sector: usize) -> bool {
    let mixed = (seed ^ ((op as u64) << 32) ^ sector as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 63 == 1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_finds_a_table_after_every_write(
        image_mib in 0u64..4000,
        more_sectors in 1u64..(1 << 24),
        little: bool,
        sectors_4096: bool,
        stale: bool,
        seed: u64,
    ) {
        let sector = if sectors_4096 { SectorSize::S4096 } else { SectorSize::S512 };
        let image = (if sectors_4096 { 1000 } else { 600 } + image_mib) * MIB;
        let size = image + if little { more_sectors % 3000 } else { more_sectors } * sector.bytes();
        prop_assume!(size > image);
        let mut before = Sparse::installed(sector, image, size);
        if stale {
            // Something of an earlier table at the end.
            before.put(size - sector.bytes(), &vec![0xd5; sector.bytes() as usize], |_| true);
        }
        let old = before.copies()[0].clone().unwrap();
        let (after, ops) = Recorder::grow(&before).unwrap();
        let [primary, last] = after.copies();
        let new = primary.unwrap();
        prop_assert_eq!(last.as_ref(), Some(&new));
        let (first, end, _) = new[&7];
        let array = 16384 / sector.bytes();
        let room = (size / sector.bytes() - 1 - array) * sector.bytes() / MIB * MIB;
        prop_assert_eq!(((end + 1) * sector.bytes(), first), (room, old[&7].0));

        let mut durable = before.clone();
        let mut pending: Vec<(u64, Vec<u8>)> = vec![];
        for (n, op) in ops.iter().enumerate() {
            pending.extend(op.clone());
            // Everything so far; of what was not flushed, any sectors; and one of them garbage.
            let mut states = vec![durable.clone(), durable.clone()];
            for (k, (offset, bytes)) in pending.iter().enumerate() {
                states[0].put(*offset, bytes, |_| true);
                states[1].put(*offset, bytes, |sector| arrives(seed, n + k, sector));
                if *offset != sector.bytes() {
                    let mut state = states[0].clone();
                    let at = seed % (bytes.len() as u64 / sector.bytes()) * sector.bytes();
                    state.put(offset + at, &vec![0xd5; sector.bytes() as usize], |_| true);
                    states.push(state);
                }
            }
            for state in &states {
                judge(state, &old, &new).map_err(|why| TestCaseError::fail(format!("after {n} of {}: {why}", ops.len())))?;
            }
            if op.is_none() {
                pending.drain(..).for_each(|(offset, bytes)| durable.put(offset, &bytes, |_| true));
            }
        }
        prop_assert!(pending.is_empty(), "a write is not flushed");
    }
}
