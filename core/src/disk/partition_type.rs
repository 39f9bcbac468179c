//! Names of partition types, for people. Sources: UEFI specification 2.10, table 5-7; Discoverable Partitions
//! Specification; `sgdisk -L`.

use uuid::{Uuid, uuid};

const GPT_TYPES: [(Uuid, &str); 17] = [
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI system"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "extended boot loader"),
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root, x86-64"),
    (uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"), "Linux root, arm64"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux home"),
    (uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d"), "Linux /var"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (uuid!("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "LUKS"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "Microsoft reserved"),
    (uuid!("de94bba4-06d1-4d40-a16a-bfd50179d6ac"), "Windows recovery"),
    (uuid!("7c3457ef-0000-11aa-aa11-00306543ecac"), "Apple APFS"),
    (uuid!("48465300-0000-11aa-aa11-00306543ecac"), "Apple HFS+"),
];

const MBR_TYPES: [(u8, &str); 16] = [
    (0x05, "extended"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x0f, "extended"),
    (0x17, "hidden NTFS"),
    (0x27, "Windows recovery"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x85, "extended"),
    (0x8e, "Linux LVM"),
    (0xcd, "ISO 9660"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

/// Name of a GPT partition type, if known.
pub fn gpt_type(guid: Uuid) -> Option<&'static str> {
    GPT_TYPES.iter().find(|(known, _)| *known == guid).map(|(_, name)| *name)
}

/// Name of an MBR partition type, if known.
pub fn mbr_type(kind: u8) -> Option<&'static str> {
    MBR_TYPES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name)
}
