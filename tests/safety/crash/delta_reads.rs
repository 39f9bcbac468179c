//! Whatever two payloads are, and however the new one lies in layers: of the slot that is written nothing is reused that was
//! overwritten. A chunk that is not what it was is fetched, so that more would come than was foreseen.

use std::{
    collections::BTreeMap,
    fs, io,
    sync::{Mutex, atomic::Ordering},
};

use proptest::prelude::*;
use slipway::{
    device::BlockIo,
    execute::Slots,
    payload::{
        delta::{Old, Said},
        file_reader::{FileReader, PayloadFiles as _},
    },
    transfer::write_stream,
};
use slipway_core::units::{Extent, SectorSize};
use slipway_test_support::{
    files, fixtures,
    images::{self, Image, Layer, Pack},
    world::noise,
};

use super::delta::Memory;

const DISK_BYTES: usize = 2 << 20;
const CLUSTER: u64 = 4096;
const NAMES: [&str; 3] = ["vmlinuz", "initramfs.xz", "rootfs.squashfs"];

struct Disk(Mutex<Vec<u8>>);

impl BlockIo for Disk {
    fn size(&self) -> u64 {
        DISK_BYTES as u64
    }

    fn sector_size(&self) -> SectorSize {
        SectorSize::S512
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What was read is on the disk at once: no writer is faster.
fn write_at_once(reader: &mut dyn FileReader, disk: &Disk, to: Extent) -> io::Result<()> {
    let (mut at, mut buf) = (to.offset, [0; 100]);
    loop {
        let n = reader.read(&mut buf)?;
        if n == 0 {
            // The last cluster is filled up.
            return disk.write_at(at, &vec![0; (to.end() - at) as usize]);
        }
        disk.write_at(at, &buf[..n])?;
        at += n as u64;
    }
}

/// Of which pieces the squashfs of a payload is made.
fn pieces() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..12_usize, 2..9)
}

/// Kernel and initramfs of the new payload are among the pieces of the old one.
fn squashfs(pieces: &[usize], others: &[Vec<u8>]) -> Vec<u8> {
    let piece = |n: &usize| others.get(*n).cloned().unwrap_or_else(|| noise(*n as u64, 6_000 + 1_500 * n));
    files::squashfs(pieces.iter().flat_map(piece).collect())
}

/// The image: these files are in the upper layer, with all small ones.
fn packed(files: &[(String, Vec<u8>)], is_upper: [bool; 3]) -> Image {
    let is_upper = |name: &str| NAMES.iter().position(|n| *n == name).is_none_or(|n| is_upper[n]);
    let (upper, lower): (Vec<_>, Vec<_>) = files.iter().map(|(name, _)| name.as_str()).partition(|name| is_upper(name));
    let layer = |names: &[&str]| -> Layer { images::layer(files, names, Pack::Plain) };
    Image::new([lower, upper].iter().map(|names| layer(names)).collect())
}

/// The places of files one behind the other.
fn places(begin: u64, lens: impl IntoIterator<Item = usize>) -> Vec<Extent> {
    let mut offset = begin;
    let place = |len: usize| {
        let place = Extent { offset, len: len as u64 };
        offset += place.len.next_multiple_of(CLUSTER);
        place
    };
    lens.into_iter().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_reused_that_was_overwritten(
        (old, new) in (pieces(), pieces()), is_upper in any::<[bool; 3]>(), shift in 0..30_u64, at_once in any::<bool>()
    ) {
        let dir = tempfile::tempdir().unwrap();
        let payload = dir.path().join("payload");
        fixtures::payload(&payload, 1);
        fs::write(payload.join("vmlinuz"), files::kernel(noise(100, 40_000))).unwrap();
        let others = ["vmlinuz", "initramfs.xz"].map(|name| fs::read(payload.join(name)).unwrap());
        fs::write(payload.join("rootfs.squashfs"), squashfs(&new, &[])).unwrap();
        let store = Memory::of(&payload, |payload| packed(&images::files(payload), is_upper));
        let contents = NAMES.map(|name| fs::read(payload.join(name)).unwrap());

        let was = [squashfs(&old, &others), others[0].clone()];
        let places_before = places(512 * shift, was.iter().map(Vec::len));
        let disk = Disk(Mutex::new(vec![0; DISK_BYTES]));
        places_before.iter().zip(&was).for_each(|(place, bytes)| disk.write_at(place.offset, bytes).unwrap());
        let to = places(0, contents.iter().map(Vec::len));
        let padded = |place: &Extent| Extent { len: place.len.next_multiple_of(CLUSTER), ..*place };
        let to: BTreeMap<_, _> = NAMES.iter().map(|name| (*name).to_owned()).zip(to.iter().map(padded)).collect();
        let slots = Slots(&disk);
        let old = || Old {
            disk: &slots,
            files: places_before.iter().map(|place| vec![*place]).collect(),
            before: vec![],
            to: to.clone(),
            is_interrupted: false,
            said: Said::default(),
        };

        let source = store.open().0;
        let foreseen = source.would_move(&old()).unwrap();
        let (before, old) = (store.sent.load(Ordering::Relaxed), old());
        let written = source.each_over(&NAMES, &old, &mut |name, reader| {
            let to = to[name];
            if at_once {
                write_at_once(reader, &disk, to)?;
            } else {
                let size = contents[NAMES.iter().position(|n| *n == name).unwrap()].len() as u64;
                write_stream(reader, &disk, to, size, None, &mut |_| ())?;
            }
            Ok(())
        });
        prop_assert!(written.is_ok() && old.said.why().is_empty(), "{written:?} {:?}", old.said.why());
        let sent = store.sent.load(Ordering::Relaxed) - before;
        prop_assert_eq!((sent, old.said.reused()), (foreseen.fetched, foreseen.reused));
        let disk = disk.0.lock().unwrap();
        for (name, content) in NAMES.iter().zip(&contents) {
            prop_assert!(disk[to[*name].offset as usize..].starts_with(content), "{}", name);
        }
    }
}
