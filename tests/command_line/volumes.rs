//! STATE and EPHEMERAL: what people made of them is theirs, and what is lost of them is told.

use std::path::PathBuf;

use serde_json::json;
use slipway_core::disk::xfs::XfsSize;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, World, finished, json_of, noise, on_disk, partition, program, read_at, tool, write_at,
    },
};

use super::{
    damage::installed,
    lost_table::{entries, set_entries, shifted},
};

/// What people make of a whole disk or partition: its name, and where it has its magic.
pub const THEIRS: [(&str, u64, &[u8]); 21] = [
    ("LUKS", 0, b"LUKS\xba\xbe\0\x02"),
    ("Ceph OSD", 0, b"bluestore block device\n"),
    ("dm-integrity", 0, b"integrt\0\x01"),
    ("dm-verity", 0, b"verity\0\0\x01"),
    ("VDO", 0, b"dmvdo001"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("APFS", 32, b"NXSB"),
    ("LVM", 512, b"LABELONE"),
    ("Stratis", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2\x01\0"),
    ("NILFS2", 1024, b"\x02\0\0\0\0\0\x34\x34"),
    ("HFS+", 1024, b"H+\0\x04"),
    ("swap", 4086, b"SWAPSPACE2"),
    ("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("OCFS2", 8192, b"OCFSV2"),
    ("ZFS", 16384, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01"),
    ("JFS", 32768, b"JFS1"),
    ("GFS2", 65536, b"\x01\x16\x19\x70\0\0\0\x01"),
    ("ReiserFS", 65588, b"ReIsEr2Fs"),
    ("btrfs", 65600, b"_BHRfS_M"),
];

/// Nothing says that it was a mistake, though the file system of the installation is whole where it was.
#[test]
fn a_volume_that_people_made_elsewhere_is_theirs() {
    let world = World::new();
    let image = installed(&world);
    set_entries(&image, &shifted(&entries(&image), 7, 2048, 0));
    let place = partition(&image, "EPHEMERAL").offset;
    for (what, at, magic) in THEIRS {
        let found = read_at(&image, place + at, magic.len());
        write_at(&image, place + at, magic);
        let before = Content::of(&image);
        on_disk(&image, &["repair"]).succeeds();
        assert!(Content::of(&image) == before, "{what}: something was written");
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{what}");
        write_at(&image, place + at, &found);
    }
}

/// A volume of the OS is never made anew unasked, and the advice writes only to what is known.
#[test]
fn a_lost_superblock_is_told() {
    const REPAIRS: &str = "xfs_repair \"$part\"";
    const READS: &str = "xfs_repair -n \"$part\"";
    let world = World::new();
    let image = installed(&world);
    for name in ["STATE", "EPHEMERAL"] {
        let at = partition(&image, name).offset;
        let whole = read_at(&image, at, 64 << 10);
        for (damage, advice) in [
            (vec![0; 512], REPAIRS),
            (vec![0; 4096], READS),
            (vec![0; 64 << 10], READS),
            (noise(7, 4096), READS),
            (noise(7, 40), REPAIRS),
        ] {
            // The first bytes may be whole.
            let from = if damage.len() == 40 { at + 100 } else { at };
            write_at(&image, from, &damage);
            let seen = Content::of(&image);
            for verb in ["status", "verify"] {
                let text = on_disk(&image, &[verb]).exits(INSTALL).stdout;
                for says in [name, advice, &format!("byte {at} of the disk")] {
                    assert!(text.contains(says), "{verb}: {says}: {text}");
                }
                assert!(advice == REPAIRS || !text.contains(REPAIRS), "{text}");
            }
            on_disk(&image, &["repair"]);
            assert!(Content::of(&image) == seen, "{name} was written to");
            write_at(&image, at, &whole);
        }
    }
    assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
}

/// The second header says all that the first one did. The remains of the file system of the installation lie behind both.
#[test]
fn an_encrypted_volume_without_its_first_header_is_one() {
    let world = World::new();
    let image = installed(&world);
    let place = partition(&image, "EPHEMERAL").offset;
    write_at(&image, place, &[0; 16 << 10]);
    for at in [0x4000_u64, 0x8000, 0x40_0000] {
        let found = read_at(&image, place + at, 264);
        let head = [b"SKUL\xba\xbe\0\x02", &[0; 248][..], &at.to_be_bytes()].concat();
        write_at(&image, place + at, &head);
        let text = on_disk(&image, &["status"]).exits(INSTALL).stdout;
        assert!(text.contains("cryptsetup repair \"$part\"") && !text.contains("xfs_repair"), "{text}");
        write_at(&image, place + at, &found);
    }
}

/// An installed image whose EPHEMERAL ends with the last sector that a partition can have, and not with a MiB: so do `growpart`,
/// `sfdisk` and `parted`.
fn with_an_odd_end(world: &World) -> PathBuf {
    let image = world.installed(&["--format-data=true"]);
    finished(program("sfdisk").args(["--quiet", "--no-reread", "-N7"]).arg(&image).write_stdin(", +\n"));
    assert_ne!(partition(&image, "EPHEMERAL").len % 4096, 0, "no whole number of blocks");
    image
}

#[test]
fn a_volume_with_an_odd_end_is_made_anew() {
    let world = World::new();
    let image = with_an_odd_end(&world);
    on_disk(&image, &["wipe", "EPHEMERAL"]).succeeds();
    assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
    let place = partition(&image, "EPHEMERAL");
    let superblock = read_at(&image, place.offset, 512);
    assert_eq!(XfsSize::from_superblock(&superblock).unwrap().blocks, place.len / 4096);
}

/// The disk did not shrink, and the file system that reaches up to there is whole afterwards.
#[test]
fn an_odd_end_that_is_lost_with_the_table() {
    let world = World::new();
    let image = with_an_odd_end(&world);
    let place = partition(&image, "EPHEMERAL");
    let (blocks, offset) = (place.len / 4096, format!("offset={}", place.offset));
    let file_systems: [&dyn Fn(); 2] = [&|| drop(on_disk(&image, &["wipe", "EPHEMERAL"]).succeeds()), &|| {
        drop(tool!("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", &offset, &image, blocks.to_string()))
    }];
    let losses: [&dyn Fn(); 2] = [&|| drop(tool!("sgdisk", "--delete=7", &image)), &|| {
        [512, IMAGE_BYTES - 512].into_iter().for_each(|at| write_at(&image, at, &[0; 512]))
    }];
    for make in file_systems {
        make();
        for lose in losses {
            lose();
            on_disk(&image, &["repair"]).succeeds();
            assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
            let found = partition(&image, "EPHEMERAL");
            assert_eq!((found.offset, found.len), (place.offset, blocks * 4096));
        }
    }
}

/// The advice wipes no file system that is whole behind a shorter entry.
#[test]
fn an_odd_end_that_an_entry_cuts_off() {
    let world = World::new();
    let image = with_an_odd_end(&world);
    on_disk(&image, &["wipe", "EPHEMERAL"]).succeeds();
    let place = partition(&image, "EPHEMERAL");
    let shorter = format!("--new=7:{}:+40M", place.offset / 512);
    tool!("sgdisk", "--delete=7", &shorter, "--change-name=7:EPHEMERAL", "--new=8:0:0", &image);
    let told = on_disk(&image, &["status"]).exits(INSTALL).stdout;
    assert!(told.contains("sgdisk --delete=8") && !told.contains("installer wipe"), "{told}");
    tool!("sgdisk", "--delete=8", &image);
    on_disk(&image, &["repair"]).succeeds();
    assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
    let found = partition(&image, "EPHEMERAL");
    assert_eq!((found.offset, found.len), (place.offset, place.len / 4096 * 4096));
}
