//! Marks by which `blkid` takes a disk or a partition for something, one of each kind that it knows, at every place where it looks
//! for those that do not lie at the very beginning. They are no more than what `blkid` reads of them (util-linux,
//! libblkid/src/superblocks).

use slipway_core::units::MIB;

/// Where a mark lies in a disk or partition of so many bytes, and what it is. Nothing where there is no room for it.
type Place = fn(u64) -> Vec<(u64, Vec<u8>)>;

/// What blkid calls it, and how it is made.
pub type Mark = (&'static str, Place);

/// Those at fixed bytes.
macro_rules! at {
    ($name:literal, $($place:expr => $bytes:expr),+) => {
        ($name, |_| vec![$(($place, $bytes.to_vec())),+])
    };
}

/// Those at so many bytes before the end.
macro_rules! before_end {
    ($name:literal, $place:expr, $bytes:expr) => {
        ($name, |len: u64| len.checked_sub($place).into_iter().map(|at| (at, $bytes.to_vec())).collect())
    };
}

macro_rules! promise {
    ($sectors:literal) => {
        before_end!("promise_fasttrack_raid_member", $sectors * 512, b"Promise Technology, Inc.")
    };
}

macro_rules! luks2 {
    ($at:literal) => {
        ("crypto_LUKS", |_| luks2($at))
    };
}

pub const MARKS: &[Mark] = &[
    ("linux_raid_member", |len| vec![((len & !0xffff) - 0x10000, md_0())]),
    ("linux_raid_member", |len| vec![(((len / 512 - 16) & !7) * 512, md_1((len / 512 - 16) & !7))]),
    at!("linux_raid_member", 0 => md_1(0)),
    at!("linux_raid_member", 4096 => md_1(8)),
    before_end!("ddf_raid_member", 512, ddf()),
    before_end!("ddf_raid_member", 257 * 512, ddf()),
    before_end!("isw_raid_member", 1024, b"Intel Raid ISM Cfg Sig. 1.3.00\0\0"),
    before_end!("lsi_mega_raid_member", 512, b"$XIDE$"),
    before_end!("via_raid_member", 512, via()),
    before_end!("silicon_medley_raid_member", 512, silicon()),
    before_end!("nvidia_raid_member", 1024, b"NVIDIA  "),
    promise!(16),
    promise!(63),
    promise!(255),
    promise!(256),
    promise!(399),
    promise!(591),
    promise!(675),
    promise!(735),
    promise!(911),
    promise!(951),
    promise!(974),
    promise!(991),
    promise!(3087),
    before_end!("hpt45x_raid_member", 11 * 512, 0x5a78_16f3_u32.to_le_bytes()),
    at!("hpt37x_raid_member", 9 * 512 + 32 => 0x5a78_16f0_u32.to_le_bytes()),
    before_end!("adaptec_raid_member", 512, block(512, &[(0, &0x37fc_4d1e_u32.to_be_bytes()), (256, b"DPTM")])),
    before_end!("jmicron_raid_member", 512, b"JM"),
    at!("bcache", 4096 => block(512, &[(8, &[8]), (24, &BCACHE), (40, &[b'U'; 16])])),
    at!("ceph_bluestore", 0 => b"bluestore block device\n"),
    before_end!("drbd", 4096, block(4096, &[(60, &0x8374_026b_u32.to_be_bytes())])),
    at!("drbdmanage_control_volume", 0 => b"$DRBDmgr=qq0123456789abcdef0123456789abcdef\n"),
    at!("drbdproxy_datalog", 0 => b"DRBDdlh*"),
    at!("LVM2_member", 512 => lvm()),
    at!("LVM1_member", 0 => b"HM\x01\0"),
    at!("DM_snapshot_cow", 0 => b"SnAp"),
    at!("DM_verity_hash", 0 => b"verity\0\0\x01\0\0\0"),
    at!("DM_integrity", 0 => b"integrt\0\x01"),
    at!("crypto_LUKS", 0 => b"LUKS\xba\xbe\0\x01"),
    luks2!(0x4000),
    luks2!(0x8000),
    luks2!(0x1_0000),
    luks2!(0x2_0000),
    luks2!(0x4_0000),
    luks2!(0x8_0000),
    luks2!(0x10_0000),
    luks2!(0x20_0000),
    luks2!(0x40_0000),
    at!("VMFS_volume_member", MIB => block(4096, &[(0, b"\x0d\xd0\x01\xc0")])),
    at!("ubi", 0 => b"UBI#\x01"),
    at!("vdo", 0 => block(64, &[(0, b"dmvdo001")])),
    at!("stratis", 512 => stratis()),
    at!("BitLocker", 0 => b"\xeb\x52\x90-FVE-FS-"),
    at!("vfat", 0 => fat()),
    at!("swsuspend", 0xff6 => b"S1SUSPEND"),
    at!("swap", 0 => swap()),
    at!("xfs", 0 => xfs(b"XFSB")),
    at!("xfs_external_log", 0 => log()),
    at!("xfs_external_log", 511 * 512 => log()),
    at!("exfs", 0 => xfs(b"EXFS")),
    at!("ext4dev", 1024 => ext(4, 0x42, 4)),
    at!("ext4", 1024 => ext(4, 0x42, 0)),
    at!("ext3", 1024 => ext(4, 2, 0)),
    at!("ext2", 1024 => ext(0, 2, 0)),
    at!("jbd", 1024 => ext(0, 8, 0)),
    at!("reiserfs", 0x1_0000 => block(512, &[(12, &[18]), (44, &[0, 16]), (52, b"ReIsEr2Fs")])),
    at!("reiser4", 0x1_0000 => b"ReIsEr4"),
    at!("jfs", 0x8000 => block(512, &[(0, b"JFS1"), (16, &[0, 16]), (20, &[12, 0, 3, 0, 0, 2]), (28, &[9])])),
    at!("udf", 0x8000 => block(6144, &[(1, b"BEA01"), (2049, b"NSR02"), (4097, b"TEA01")]), 256 * 512 => anchor()),
    at!("iso9660", 0x8000 => block(2048, &[(0, b"\x01CD001\x01")])),
    ("zfs_member", zfs),
    at!("hfsplus", 1024 => block(512, &[(0, b"H+"), (42, &[16])])),
    at!("hfs", 1024 => block(512, &[(0, b"BD"), (22, &[2])])),
    at!("ufs", 8192 => block(1376, &[(1372, &0x0001_1954_u32.to_le_bytes())])),
    at!("ufs", 256 << 10 => block(1376, &[(1372, &0x0001_1954_u32.to_le_bytes())])),
    at!("hpfs", 8192 => b"\x49\xe8\x95\xf9", 8704 => b"\x49\x18\x91\xf9"),
    at!("sysv", 512 => block(512, &[(504, &0xfd18_7e20_u32.to_le_bytes()), (508, &[1])])),
    at!("xenix", 2048 => b"\x2b\x55\x44"),
    at!("ntfs", 0 => ntfs(), 16384 => b"FILE", 19456 => b"FILE"),
    at!("ReFS", 0 => b"\0\0\0ReFS\0"),
    at!("cramfs", 0 => b"\x45\x3d\xcd\x28"),
    at!("romfs", 0 => b"-rom1fs-\0\0\x04\0"),
    at!("minix", 1024 => block(64, &[(0, &[32, 0, 100, 0, 1, 0, 1, 0, 5]), (16, &[0x7f, 0x13, 1])])),
    at!("gfs", 0x1_0000 => gfs(1309, 1401)),
    at!("gfs2", 0x1_0000 => gfs(1801, 1900)),
    at!("ocfs", 8192 => b"OracleCFS"),
    at!("ocfs2", 8192 => b"OCFSV2"),
    at!("oracleasm", 32 => b"ORCLDISK"),
    at!("vxfs", 1024 => block(64, &[(0, b"\xf5\xfc\x01\xa5\x04"), (32, &[0, 4])])),
    at!("squashfs", 0 => block(96, &[(0, b"hsqs"), (28, &[4])])),
    at!("squashfs3", 0 => block(96, &[(0, b"sqsh"), (29, &[3])])),
    at!("nss", 4096 => b"SPB5"),
    at!("btrfs", 0x1_0040 => b"_BHRfS_M"),
    at!("ubifs", 0 => block(4096, &[(0, b"\x31\x18\x10\x06")])),
    at!("bfs", 0 => b"\xce\xfa\xad\x1b"),
    at!("VMFS", 2 * MIB => block(4096, &[(0, b"\x5e\xf1\xab\x2f")])),
    at!("befs", 0 => befs(), 8192 => block(1024, &[(0, &0x3bbe_0ad9_u32.to_le_bytes())])),
    ("nilfs2", |len| vec![(len / 4096 * 4096 - 4096, nilfs2(len))]),
    at!("exfat", 0 => block(512, &[(0, b"\xeb\x76\x90EXFAT   "), (80, &[24]), (88, &[32]), (96, &[2]), (108, &[9])])),
    at!("f2fs", 1024 => b"\x10\x20\xf5\xf2\x01\0\0\0"),
    at!("mpool", 0 => mpool()),
    at!("apfs", 0 => block(512, &[(24, &[1]), (32, b"NXSB\0\x10"), (72, &[b'U'; 16])])),
    at!("zonefs", 0 => b"SFOZ"),
    at!("erofs", 1024 => b"\xe2\xe1\xf5\xe0"),
];

const BCACHE: [u8; 16] = 0xc685_73f6_4e1a_45ca_8265_f57f_48ba_6d81_u128.to_be_bytes();

/// Zeros but for these bytes.
fn block(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut block = vec![0; len];
    parts.iter().for_each(|(at, bytes)| put(&mut block, *at, bytes));
    block
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
fn nilfs2(len: u64) -> Vec<u8> {
    let mut block = vec![0; 1024];
    put(&mut block, 0, &2_u32.to_le_bytes());
    put(&mut block, 6, &0x3434_u16.to_le_bytes());
    put(&mut block, 8, &280_u16.to_le_bytes());
    put(&mut block, 20, &2_u32.to_le_bytes());
    put(&mut block, 32, &len.to_le_bytes());
    put(&mut block, 152, &[b'U'; 16]);
    let crc = crc(0, &block[..280]);
    put(&mut block, 16, &crc.to_le_bytes());
    block
}

/// CRC-32, neither begun nor ended with ones.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    crc_of(0xedb8_8320, seed, bytes)
}

/// CRC-32C, begun and ended with ones.
fn crc32c(bytes: &[u8]) -> u32 {
    !crc_of(0x82f6_3b78, u32::MAX, bytes)
}

fn crc_of(polynomial: u32, seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { polynomial } else { 0 })
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

fn via() -> Vec<u8> {
    let mut block = block(64, &[(0, b"\x55\xaa")]);
    block[50] = block[..50].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    block
}

fn silicon() -> Vec<u8> {
    let mut block = block(512, &[(96, &0x2f00_0000_u32.to_le_bytes())]);
    let sum = block[..318].chunks(2).fold(0, |sum: u16, pair| sum.wrapping_add(u16::from_le_bytes([pair[0], pair[1]])));
    put(&mut block, 318, &sum.wrapping_neg().to_le_bytes());
    block
}

fn stratis() -> Vec<u8> {
    let parts: [(usize, &[u8]); 3] = [(4, b"!Stra0tis\x86\xff\x02^\x41rh"), (32, &[b'0'; 32]), (64, &[b'1'; 32])];
    let mut block = block(512, &parts);
    let crc = crc32c(&block[4..]);
    put(&mut block, 0, &crc.to_le_bytes());
    block
}

fn mpool() -> Vec<u8> {
    let mut block = block(66, &[(0, b"mpoolDevold")]);
    let crc = crc32c(&block[..62]);
    put(&mut block, 62, &crc.to_le_bytes());
    block
}

/// FAT16 in 32 MiB.
fn fat() -> Vec<u8> {
    let parts: [(usize, &[u8]); 5] = [
        (0, b"\xeb\x3c\x90mkfs.fat\0\x02\x04\x01\0\x02\0\x02\0\0\xf8\x40"),
        (32, &65536_u32.to_le_bytes()),
        (38, b"\x29"),
        (54, b"FAT16   "),
        (510, b"\x55\xaa"),
    ];
    block(512, &parts)
}

/// One allocation group of 64 MiB; EXFS has the same fields.
fn xfs(magic: &[u8]) -> Vec<u8> {
    let parts: [(usize, &[u8]); 9] = [
        (0, magic),
        (6, &[16]),
        (14, &[64]),
        (32, &[b'U'; 16]),
        (83, &[1]),
        (86, &[64]),
        (91, &[1]),
        (102, &[2, 0, 1, 0, 0, 16]),
        (120, &[12, 9, 8, 4]),
    ];
    block(512, &parts)
}

fn log() -> Vec<u8> {
    block(512, &[(0, b"\xfe\xed\xba\xbe"), (11, &[2]), (14, &[2]), (303, &[1])])
}

fn ext(compatible: u8, incompatible: u8, flags: u8) -> Vec<u8> {
    let parts: [(usize, &[u8]); 6] = [
        (0, &[16, 0, 0, 0, 100]),
        (56, b"\x53\xef"),
        (76, &[1]),
        (92, &[compatible, 0, 0, 0, incompatible, 0, 0, 0, 1]),
        (104, &[b'U'; 16]),
        (352, &[flags]),
    ];
    block(1024, &parts)
}

fn anchor() -> Vec<u8> {
    block(512, &[(0, &[2]), (13, &[1])])
}

fn gfs(format: u32, hosts: u32) -> Vec<u8> {
    let parts: [(usize, &[u8]); 3] =
        [(0, b"\x01\x16\x19\x70"), (24, &format.to_be_bytes()), (28, &hosts.to_be_bytes())];
    block(512, &parts)
}

fn ntfs() -> Vec<u8> {
    let parts: [(usize, &[u8]); 6] = [
        (0, b"\xeb\x52\x90NTFS    \0\x02\x08"),
        (40, &[0, 32]),
        (48, &[4]),
        (56, &[2]),
        (64, &[0xf6]),
        (510, b"\x55\xaa"),
    ];
    block(512, &parts)
}

fn befs() -> Vec<u8> {
    let parts: [(usize, &[u8]); 4] = [
        (32, b"1SFBEGIB\0\x04\0\0\x0a"),
        (68, &0xdd12_1031_u32.to_le_bytes()),
        (112, &0x15b6_830e_u32.to_le_bytes()),
        (120, &[8, 0, 1]),
    ];
    block(512, &parts)
}
