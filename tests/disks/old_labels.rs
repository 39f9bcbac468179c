//! What an older use of a disk has left at the ends of what is a partition now: for `blkid` and `wipefs` it counts, unless it
//! was cleared. Everything that an install, a growth and an image make is what they see, and nothing else is.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use slipway_core::units::{GIB, MIB};
use slipway_test_support::world::{Outcome, SLOT, World, installer, on_disk, partition, program, write_at};

/// Where a label lies in a disk or partition of so many bytes, and what it is.
type Label = fn(u64) -> Vec<(u64, Vec<u8>)>;

/// What blkid calls it, and how it is made.
const LABELS: [(&str, &str, Label); 19] = [
    ("md 0.90", "linux_raid_member", |len| vec![((len & !0xffff) - 0x10000, md_0())]),
    ("md 1.0", "linux_raid_member", |len| vec![(((len / 512 - 16) & !7) * 512, md_1((len / 512 - 16) & !7))]),
    ("md 1.1", "linux_raid_member", |_| vec![(0, md_1(0))]),
    ("md 1.2", "linux_raid_member", |_| vec![(4096, md_1(8))]),
    ("ZFS", "zfs_member", zfs),
    ("nilfs2", "nilfs2", nilfs2),
    ("Intel Matrix RAID", "isw_raid_member", |len| vec![(len - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00\0\0".to_vec())]),
    ("DDF", "ddf_raid_member", |len| vec![(len - 512, ddf())]),
    ("LVM", "LVM2_member", |_| vec![(512, lvm())]),
    ("swap", "swap", |_| vec![(0, swap())]),
    ("Promise RAID", "promise_fasttrack_raid_member", |len| promise(len, 63)),
    ("Promise RAID, another geometry", "promise_fasttrack_raid_member", |len| promise(len, 951)),
    ("LSI MegaRAID", "lsi_mega_raid_member", |len| vec![(len - 512, b"$XIDE$".to_vec())]),
    ("Highpoint 45x RAID", "hpt45x_raid_member", |len| vec![(len - 11 * 512, 0x5a78_16f3_u32.to_le_bytes().to_vec())]),
    ("Highpoint 37x RAID", "hpt37x_raid_member", |_| vec![(9 * 512 + 32, 0x5a78_16f0_u32.to_le_bytes().to_vec())]),
    ("LUKS2, its second header", "crypto_LUKS", |_| luks2(0x4000)),
    ("LUKS2 of much metadata", "crypto_LUKS", |_| luks2(0x8_0000)),
    ("btrfs", "btrfs", |_| vec![(0x1_0040, b"_BHRfS_M".to_vec())]),
    ("a zoned file system", "zonefs", |_| vec![(0, b"SFOZ".to_vec())]),
];

/// `sectors` from the end: that depends on the geometry that the BIOS saw.
fn promise(len: u64, sectors: u64) -> Vec<(u64, Vec<u8>)> {
    vec![(len - sectors * 512, b"Promise Technology, Inc.".to_vec())]
}

/// The second header, of which there is a choice of places, says where it is.
fn luks2(at: u64) -> Vec<(u64, Vec<u8>)> {
    let mut block = vec![0; 4096];
    put(&mut block, 0, b"SKUL\xba\xbe\0\x02");
    put(&mut block, 8, &at.to_be_bytes());
    put(&mut block, 168, b"01234567-89ab-cdef-0123-456789abcdef");
    put(&mut block, 256, &at.to_be_bytes());
    vec![(at, block)]
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn md_0() -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (at, number) in [0xa92b_4efc_u32, 0, 90].into_iter().enumerate() {
        put(&mut block, at * 4, &number.to_le_bytes());
    }
    // Its size in KiB, and its UUID.
    put(&mut block, 32, &1024_u32.to_le_bytes());
    put(&mut block, 20, b"UUID");
    block
}

fn md_1(sector: u64) -> Vec<u8> {
    let mut block = vec![0; 256];
    put(&mut block, 0, &0xa92b_4efc_u32.to_le_bytes());
    put(&mut block, 4, &1_u32.to_le_bytes());
    put(&mut block, 16, &[b'U'; 16]);
    put(&mut block, 32, b"old:disk");
    put(&mut block, 144, &sector.to_le_bytes());
    let sum: u64 = block.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    put(&mut block, 216, &((sum & 0xffff_ffff) + (sum >> 32)).to_le_bytes()[..4]);
    block
}

/// Four labels of 256 KiB, two at each end; the second half of each is a ring of uberblocks.
fn zfs(len: u64) -> Vec<(u64, Vec<u8>)> {
    const LABEL: u64 = 256 << 10;
    let end = len / LABEL * LABEL;
    let block = |number: u64| [0x00ba_b10c, 5000, 1000 + number].map(u64::to_le_bytes).concat();
    let ring = |at: u64| (0..128).map(move |number| (at + LABEL / 2 + number * 1024, block(number)));
    [0, LABEL, end - 2 * LABEL, end - LABEL].into_iter().flat_map(ring).collect()
}

/// The copy at the end.
fn nilfs2(len: u64) -> Vec<(u64, Vec<u8>)> {
    let mut block = vec![0; 1024];
    put(&mut block, 0, &2_u32.to_le_bytes());
    put(&mut block, 6, &0x3434_u16.to_le_bytes());
    put(&mut block, 8, &280_u16.to_le_bytes());
    put(&mut block, 20, &2_u32.to_le_bytes());
    put(&mut block, 32, &len.to_le_bytes());
    put(&mut block, 152, &[b'U'; 16]);
    let crc = crc(0, &block[..280]);
    put(&mut block, 16, &crc.to_le_bytes());
    vec![(len / 4096 * 4096 - 4096, block)]
}

/// CRC-32, neither begun nor ended with ones.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

fn ddf() -> Vec<u8> {
    let mut block = vec![0; 512];
    put(&mut block, 0, &0xde11_de11_u32.to_be_bytes());
    put(&mut block, 8, b"LSI     12345678");
    put(&mut block, 32, b"02.00.00");
    block
}

fn lvm() -> Vec<u8> {
    let mut block = vec![0; 512];
    put(&mut block, 0, b"LABELONE");
    put(&mut block, 8, &1_u64.to_le_bytes());
    put(&mut block, 20, &32_u32.to_le_bytes());
    put(&mut block, 24, b"LVM2 001");
    put(&mut block, 32, b"abcdefghijklmnopqrstuvwxyz012345");
    let crc = crc(0xf597_a6cf, &block[20..]);
    put(&mut block, 16, &crc.to_le_bytes());
    block
}

fn swap() -> Vec<u8> {
    let mut block = vec![0; 4096];
    put(&mut block, 1024, &1_u32.to_le_bytes());
    put(&mut block, 1028, &255_u32.to_le_bytes());
    put(&mut block, 4086, b"SWAPSPACE2");
    block
}

/// A part of a disk: what it is called, and where it lies.
type Region = (&'static str, u64, u64);

const PARTS: [&str; 7] = ["EFI", "BIOS", "BOOT-A", "BOOT-B", "META", "STATE", "EPHEMERAL"];

fn regions(disk: &Path) -> Vec<Region> {
    let parts = PARTS.map(|name| (name, partition(disk, name)));
    let whole = ("disk", 0, fs::metadata(disk).unwrap().len());
    parts.into_iter().map(|(name, at)| (name, at.offset, at.len)).chain([whole]).collect()
}

/// What blkid says of it: `TYPE=vfat`, `PTTYPE=gpt`, nothing, or that there is more than one thing.
fn seen(disk: &Path, (_, offset, len): Region) -> Vec<String> {
    let args = ["-p", "-o", "export", "-O", &offset.to_string(), "-S", &len.to_string()];
    let out = program("blkid").args(args).arg(disk).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let kept = |line: &&str| line.starts_with("TYPE=") || line.starts_with("PTTYPE=") || line.contains("ambivalent");
    said.lines().filter(kept).map(str::to_owned).collect()
}

/// Leave this label in these regions, as far as it lies behind `from`.
fn leave(disk: &Path, label: Label, regions: &[Region], from: u64) {
    for (_, offset, len) in regions {
        for (at, bytes) in label(*len).into_iter().filter(|(at, _)| offset + at >= from) {
            write_at(disk, offset + at, &bytes);
        }
    }
}

#[track_caller]
fn only_ours(disk: &Path, when: &str, data: &str) {
    for region in regions(disk) {
        let expected = match region.0 {
            "EFI" | "BOOT-A" => "TYPE=vfat",
            "STATE" | "EPHEMERAL" => data,
            "disk" => "PTTYPE=gpt",
            _ => "",
        };
        assert_eq!(seen(disk, region).join(" "), expected, "{when}: {}", region.0);
    }
    let table = program("wipefs").args(["--noheadings", "--output", "TYPE"]).arg(disk).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    let types: Vec<_> = table.split_whitespace().collect();
    // Both copies of the GPT, and the protective MBR.
    assert_eq!(types, ["gpt", "gpt", "PMBR"], "{when}: what wipefs sees");
}

#[test]
fn nothing_old_shines_through() {
    for (name, type_of, label) in LABELS {
        let world = World::new();
        // The control: the label is one.
        let alone = world.sparse("alone.img", 64 * MIB);
        leave(&alone, label, &[("disk", 0, 64 * MIB)], 0);
        assert_eq!(seen(&alone, ("disk", 0, 64 * MIB)), [format!("TYPE={type_of}")], "{name}");
        for (data, expected) in [("--format-data=true", "TYPE=xfs"), ("--format-data=false", "")] {
            let disk = world.installed(&[data]);
            let regions = regions(&disk);
            for region in &regions {
                leave(&disk, label, &[*region], 0);
            }
            world.install(&disk, &["--force", data]).succeeds();
            only_ours(&disk, &format!("{name}, install {data}"), expected);
        }
    }
}

#[test]
fn nothing_old_shines_through_where_a_disk_grows() {
    const LARGER: u64 = 2 * GIB;
    for (name, _, label) in LABELS {
        let world = World::new();
        let disk = world.installed(&["--format-data=true"]);
        let before = fs::metadata(&disk).unwrap().len();
        OpenOptions::new().write(true).open(&disk).unwrap().set_len(LARGER).unwrap();
        let start = partition(&disk, "EPHEMERAL").offset;
        leave(&disk, label, &[("EPHEMERAL", start, LARGER - MIB - start), ("disk", 0, LARGER)], before);
        on_disk(&disk, &["grow", "--progress=none"]).succeeds();
        let grown = partition(&disk, "EPHEMERAL");
        assert_eq!(grown.offset + grown.len, LARGER - MIB);
        only_ours(&disk, name, "TYPE=xfs");
        on_disk(&disk, &["verify", "--progress=none"]).succeeds();
    }
}

/// Whatever has used the volumes: `wipe` makes them anew, and the rest of the disk stays as it is.
#[test]
fn nothing_old_shines_through_where_volumes_are_wiped() {
    for (name, _, label) in LABELS {
        let world = World::new();
        for (data, expected) in [("--format-data=true", "TYPE=xfs"), ("--format-data=false", "")] {
            let disk = world.installed(&["--format-data=true"]);
            let volumes: Vec<_> =
                regions(&disk).into_iter().filter(|(name, ..)| ["STATE", "EPHEMERAL"].contains(name)).collect();
            leave(&disk, label, &volumes, 0);
            on_disk(&disk, &["wipe", "STATE", "EPHEMERAL", data, "--progress=none"]).succeeds();
            only_ours(&disk, &format!("{name}, wipe {data}"), expected);
        }
    }
}

/// As `dd` writes an image onto a larger disk that had an older life: what it leaves behind its own end goes when the disk grows.
#[test]
fn nothing_old_shines_through_an_image_on_a_larger_disk() {
    const LARGER: u64 = 2 * GIB;
    let world = World::new();
    let image = world.path("image.raw");
    let args = ["image", "--progress=none", "--kind=raw", "--disk-size=600MiB", SLOT, "--format-data=true", "--source"];
    Outcome::of(installer(args).arg(world.payload.source()).arg("--out").arg(&image)).succeeds();
    let bytes = fs::read(&image).unwrap();
    let start = partition(&image, "EPHEMERAL").offset;
    for (name, _, label) in LABELS {
        let disk = world.sparse("larger.img", LARGER);
        leave(&disk, label, &[("disk", 0, LARGER), ("EPHEMERAL", start, LARGER - MIB - start)], 0);
        write_at(&disk, 0, &bytes);
        on_disk(&disk, &["grow", "--progress=none"]).succeeds();
        only_ours(&disk, &format!("{name}, image"), "TYPE=xfs");
    }
}
