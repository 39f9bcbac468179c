//! STATE and EPHEMERAL: what people made of them is theirs.

use serde_json::json;
use slipway_test_support::world::{Content, World, json_of, on_disk, partition, read_at, write_at};

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
