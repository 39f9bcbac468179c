//! The disk an install leaves, judged by programs that have nothing to do with the installer: gdisk, dosfstools,
//! mtools, xfsprogs, GRUB's own tools, the kernel, and the `gpt` and `fatfs` crates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod world;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::{prelude::*, sample::Index};
use serde_json::Value;
use slipway::{
    device::{Access, BlockIo as _, Disk as OpenDisk},
    fat::FatVolume,
};
use slipway_core::{
    disk::fat::{FatTime, FileSpec, VolumeLayout, VolumeSpec},
    units::{Extent, MIB, SectorSize},
};
use world::{
    DISK_BYTES, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Mount, Range, SLOT, SLOT_4096, SmallFs, World, assert_clean_fat,
    asset, extract, finished, finished_bytes, noise, program, read_at, tool, write_at,
};

/// Number, name, type and attribute bits, as design and UEFI have them.
const PARTITIONS: [(u32, &str, &str, &str); 7] = [
    (1, "EFI", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0000000000000000"),
    // Bit 2: legacy BIOS bootable.
    (2, "BIOS", "21686148-6449-6E6F-744E-656564454649", "0000000000000004"),
    (3, "BOOT-A", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0000000000000000"),
    (4, "BOOT-B", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0000000000000000"),
    (5, "META", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0000000000000000"),
    (6, "STATE", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0000000000000000"),
    (7, "EPHEMERAL", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0000000000000000"),
];
const ESP: u32 = 1;
const BIOS: u32 = 2;
const SLOT_A: u32 = 3;
const SLOT_B: u32 = 4;
const META: u32 = 5;
const STATE: u32 = 6;
const EPHEMERAL: u32 = 7;

/// An installed image.
struct Disk {
    world: World,
    image: PathBuf,
    sector: u64,
    plan: Value,
}

impl Disk {
    fn installed(sector: u64) -> Self {
        let world = World::new();
        let (slot, bytes) = if sector == 512 { (SLOT, IMAGE_BYTES) } else { (SLOT_4096, IMAGE_BYTES_4096) };
        let image = world.sparse("disk.img", bytes);
        world.payload.write("cmdline", "quiet dyndbg=\"file x +p\" sum=$1;2");
        let sector_size = format!("--sector-size={sector}");
        let flags = ["--force", "--format-data=true", "--meta=10=hello", "--output=json", slot, &sector_size];
        // Something old at both ends of every partition, and within: none of it may shine through.
        let dry_run = world.install(&image, &[&flags[..], &["--dry-run"]].concat()).succeeds().json();
        for part in dry_run["plan"]["table"]["layout"]["parts"].as_array().unwrap() {
            let (offset, len) = (part["offset"].as_u64().unwrap(), part["len"].as_u64().unwrap());
            for at in [offset - 4096, offset, offset + len / 2, offset + len - 4096] {
                write_at(&image, at, &noise(at, 4096));
            }
        }
        let mut report = world.install(&image, &flags).succeeds().json();
        Disk { world, image, sector, plan: report["plan"].take() }
    }

    /// Run `sgdisk` on it; the sector size of a plain file is 512 to it, so it gets a device.
    fn sgdisk(&self, args: &[&str]) -> String {
        let device = Loop::attach(&self.image, &["--sector-size", &self.sector.to_string()]);
        finished(program("sgdisk").args(args).arg(&device.node))
    }

    /// What `sgdisk -i` says of a partition.
    fn entry(&self, number: u32) -> BTreeMap<String, String> {
        let info = self.sgdisk(&["-i", &number.to_string()]);
        let lines = info.lines().filter_map(|line| line.split_once(": "));
        lines.map(|(key, value)| (key.to_owned(), value.trim_matches('\'').to_owned())).collect()
    }

    /// Where `sgdisk` says a partition lies.
    fn range(&self, number: u32) -> Range {
        let entry = self.entry(number);
        let sectors = |key: &str| entry[key].split(' ').next().unwrap().parse::<u64>().unwrap();
        Range { offset: sectors("First sector") * self.sector, len: sectors("Partition size") * self.sector }
    }

    /// A partition as a file of its own.
    fn volume(&self, number: u32) -> PathBuf {
        let path = self.world.path(&format!("partition-{number}"));
        extract(&self.image, self.range(number), &path);
        path
    }

    /// The files a FAT partition must hold, by path: those of payload and assets as they are, the others as the plan
    /// has them.
    fn files(&self, number: u32) -> BTreeMap<String, Vec<u8>> {
        let (_, name, ..) = PARTITIONS[number as usize - 1];
        let files = self.plan["system"]["volumes"][name]["files"].as_array().unwrap();
        let with_content = |file: &Value| {
            let path = file["path"].as_str().unwrap();
            let bytes = match file["from"].as_str() {
                Some("payload") => self.world.payload.read(path),
                Some("efiimage") => asset("BOOTX64.EFI"),
                _ => file["from"]["text"].as_str().unwrap().as_bytes().to_vec(),
            };
            (path.to_owned(), bytes)
        };
        files.iter().map(with_content).collect()
    }

    /// Read a file out of a FAT partition, by mtools.
    fn mcopy(&self, number: u32, path: &str) -> PathBuf {
        let volume = format!("{}@@{}", self.image.display(), self.range(number).offset);
        let to = self.world.path("copied");
        tool!("mcopy", "-n", "-o", "-i", volume, format!("::/{path}"), &to);
        to
    }
}

/// The judgement for both sector sizes, each on a disk of its own.
macro_rules! for_both_sector_sizes {
    ($($judgement:ident)*) => {
        mod sectors_of_512 {
            $(#[test] fn $judgement() { super::$judgement(&super::Disk::installed(512)); })*
        }
        mod sectors_of_4096 {
            $(#[test] fn $judgement() { super::$judgement(&super::Disk::installed(4096)); })*
        }
    };
}

for_both_sector_sizes! {
    sgdisk_finds_no_problem_and_the_seven_partitions
    the_gpt_crate_reads_the_same_table
    dosfstools_find_nothing_to_repair
    mtools_read_every_file
    the_fatfs_crate_reads_every_file_and_no_other
    xfsprogs_find_nothing_to_repair
    the_kernel_mounts_state_and_ephemeral
    grub_editenv_reads_the_environment_blocks
    coreutils_agree_with_the_lists_of_digests
    what_is_blank_is_recognised_by_nobody
    meta_is_two_adv_copies
}

fn sgdisk_finds_no_problem_and_the_seven_partitions(disk: &Disk) {
    let verdict = disk.sgdisk(&["-v"]);
    assert!(verdict.contains("No problems found."), "{verdict}");
    for (number, name, type_guid, attributes) in PARTITIONS {
        let entry = disk.entry(number);
        assert_eq!(entry["Partition name"], name);
        assert!(entry["Partition GUID code"].starts_with(type_guid), "{entry:?}");
        assert_eq!(entry["Attribute flags"], attributes, "{name}");
        let range = disk.range(number);
        assert_eq!((range.offset % MIB, range.len % MIB), (0, 0), "{name}");
    }
    assert_eq!(disk.range(META).len, MIB);
    assert!(disk.sgdisk(&["-i", "8"]).contains("does not exist"));
}

fn the_gpt_crate_reads_the_same_table(disk: &Disk) {
    let sector = gpt::disk::LogicalBlockSize::try_from(disk.sector).unwrap();
    let table = gpt::GptConfig::new().logical_block_size(sector).only_valid_headers(true).open(&disk.image).unwrap();
    let (primary, backup) = (table.primary_header().unwrap(), table.backup_header().unwrap());
    assert_eq!((primary.backup_lba, backup.backup_lba), (backup.current_lba, primary.current_lba));
    assert_eq!((primary.disk_guid, primary.crc32_parts), (backup.disk_guid, backup.crc32_parts));
    assert_eq!(backup.current_lba, fs::metadata(&disk.image).unwrap().len() / disk.sector - 1);
    assert_eq!(table.guid().to_string(), disk.plan["table"]["ids"]["disk"]);
    assert_eq!(table.partitions().len(), PARTITIONS.len());
    for (number, name, type_guid, _) in PARTITIONS {
        let part = &table.partitions()[&number];
        assert_eq!(
            (part.name.as_str(), part.part_type_guid.guid.to_string().to_uppercase().as_str()),
            (name, type_guid)
        );
        assert_eq!(part.part_guid.to_string(), disk.plan["table"]["ids"]["parts"][number as usize - 1]);
        let range = Range { offset: part.bytes_start(sector).unwrap(), len: part.bytes_len(sector).unwrap() };
        assert_eq!(range, disk.range(number), "{name}");
    }
}

fn dosfstools_find_nothing_to_repair(disk: &Disk) {
    for number in [ESP, SLOT_A] {
        assert_clean_fat(&disk.volume(number));
    }
}

fn mtools_read_every_file(disk: &Disk) {
    for number in [ESP, SLOT_A] {
        let volume = format!("{}@@{}", disk.image.display(), disk.range(number).offset);
        let listing = tool!("mdir", "-/", "-b", "-i", volume, "::");
        let mut listed: Vec<&str> = listing.lines().filter(|l| !l.ends_with('/')).map(|l| &l["::/".len()..]).collect();
        listed.sort_unstable();
        let files = disk.files(number);
        assert_eq!(listed, files.keys().collect::<Vec<_>>());
        for (path, bytes) in files {
            assert!(fs::read(disk.mcopy(number, &path)).unwrap() == bytes, "{path} differs");
        }
    }
}

fn the_fatfs_crate_reads_every_file_and_no_other(disk: &Disk) {
    for (number, label) in [(ESP, "EFI"), (SLOT_A, "BOOT-A")] {
        let window = Window::of(&disk.image, disk.range(number));
        let volume = fatfs::FileSystem::new(window, fatfs::FsOptions::new()).unwrap();
        assert_eq!(volume.fat_type(), fatfs::FatType::Fat32);
        assert_eq!(volume.volume_label(), label);
        assert_eq!(volume.read_volume_label_from_root_dir().unwrap().as_deref(), Some(label));
        assert!(all_files(&volume) == disk.files(number), "{label} holds other files than the plan");
    }
}

fn xfsprogs_find_nothing_to_repair(disk: &Disk) {
    for (number, label) in [(STATE, "STATE"), (EPHEMERAL, "EPHEMERAL")] {
        let volume = disk.volume(number);
        tool!("xfs_repair", "-n", "-f", &volume);
        let found = tool!("blkid", "-p", "-o", "export", &volume);
        let uuid = disk.plan["table"]["ids"]["parts"][number as usize - 1].as_str().unwrap();
        for line in ["TYPE=xfs", &format!("LABEL={label}"), &format!("UUID={uuid}")] {
            assert!(found.lines().any(|l| l == line), "{line} is not in {found}");
        }
    }
}

fn the_kernel_mounts_state_and_ephemeral(disk: &Disk) {
    for (number, point) in [(STATE, "state"), (EPHEMERAL, "ephemeral")] {
        let Range { offset, len } = disk.range(number);
        let (offset, len, sector) = (offset.to_string(), len.to_string(), disk.sector.to_string());
        let options = ["--offset", &offset, "--sizelimit", &len, "--sector-size", &sector];
        let device = Loop::attach(&disk.image, &options);
        let mount = Mount::new(&device.node, disk.world.path(point));
        assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0, "a fresh file system is empty");
        fs::write(mount.point.join("file"), noise(5, 1 << 20)).unwrap();
        tool!("sync", "--file-system", &mount.point);
    }
    // After use as before.
    xfsprogs_find_nothing_to_repair(disk);
}

fn grub_editenv_reads_the_environment_blocks(disk: &Disk) {
    let list = |number, path| tool!("grub-editenv", disk.mcopy(number, path), "list");
    let time = &disk.plan["table"]["ids"]["time"];
    for path in ["slipway/boot.env", "slipway/boot2.env"] {
        let expected = format!("seq=1\ndefault=A\nonce=\na=good\nb=empty\na_since={time}\n");
        assert_eq!(list(ESP, path), expected, "{path}");
    }
    assert_eq!(list(SLOT_A, "slot.env"), "state=good\nseq=1\n");
    let guid = disk.plan["table"]["ids"]["disk"].as_str().unwrap();
    let args = "'talos.platform=metal' 'console=tty0' 'quiet' 'dyndbg=file x +p' 'sum=$1;2'";
    let expected = format!("kernel=/vmlinuz\ninitrd=/initramfs.xz\nargs={args}\nguid={guid}\n");
    assert_eq!(list(SLOT_A, "slot.cfg"), expected);
    // What GRUB rewrites is one sector, and stays it.
    for (number, path) in [(ESP, "slipway/boot.env"), (ESP, "slipway/boot2.env"), (SLOT_A, "slot.env")] {
        let copy = disk.mcopy(number, path);
        assert_eq!(fs::metadata(&copy).unwrap().len(), 512);
        tool!("grub-editenv", &copy, "set", "once=B");
        assert_eq!(fs::metadata(&copy).unwrap().len(), 512);
    }
}

fn coreutils_agree_with_the_lists_of_digests(disk: &Disk) {
    let copies = disk.world.path("slot");
    fs::create_dir(&copies).unwrap();
    for (name, bytes) in disk.files(SLOT_A) {
        fs::copy(disk.mcopy(SLOT_A, &name), copies.join(&name)).unwrap();
        assert!(fs::read(copies.join(&name)).unwrap() == bytes);
    }
    let check = |list| finished(program("sha256sum").current_dir(&copies).args(["--strict", "--check", list]));
    let checked = |list| check(list).lines().map(|l| l.trim_end_matches(": OK").to_owned()).collect::<Vec<_>>();
    assert_eq!(checked("boot.sha256"), ["initramfs.xz", "slot.cfg", "vmlinuz"]);
    let all = ["boot.sha256", "initramfs.xz", "manifest.json", "rootfs.squashfs", "slot.cfg", "vmlinuz"];
    assert_eq!(checked("SHA256SUMS"), all);
}

/// Slot B, and on 4096-byte sectors the BIOS partition.
fn what_is_blank_is_recognised_by_nobody(disk: &Disk) {
    let bios = (disk.sector == 4096).then_some(BIOS);
    for number in [SLOT_B].into_iter().chain(bios) {
        let volume = disk.volume(number);
        let len = fs::metadata(&volume).unwrap().len();
        for at in [0, len - MIB] {
            assert!(read_at(&volume, at, MIB as usize).iter().all(|b| *b == 0), "partition {number} at {at}");
        }
        // 2: nothing found.
        let blkid = program("blkid").args(["-p"]).arg(&volume).output().unwrap();
        assert_eq!(blkid.status.code(), Some(2), "{blkid:?}");
    }
}

/// Talos' ADV, both copies the same, and nothing behind them.
fn meta_is_two_adv_copies(disk: &Disk) {
    let meta = fs::read(disk.volume(META)).unwrap();
    let (copies, rest) = meta.split_at(2 * 262_144);
    let (first, second) = copies.split_at(262_144);
    assert!(first == second, "the copies differ");
    assert_eq!(first[..4], [0x5a, 0x4b, 0x3c, 0x2d]);
    assert_eq!(first[4..12], [0, 0, 0, 10, 0, 0, 0, 5]);
    assert_eq!(&first[12..17], b"hello");
    assert_eq!(first[262_140..], [0xa5, 0xb4, 0xc3, 0xd2]);
    assert!(rest.iter().all(|b| *b == 0), "something is left behind the copies");
}

/// Whatever lay where a file system is made, its log above all, is gone: it is taken for nothing by anybody.
#[test]
fn data_file_systems_take_the_place_of_anything() {
    let world = World::new();
    let image = world.image();
    let before = noise(1, MIB as usize);
    for at in (430 * MIB..IMAGE_BYTES).step_by(before.len()) {
        write_at(&image, at, &before);
    }
    let report = world.install(&image, &["--force", "--format-data=true", "--output=json"]).succeeds().json();
    let disk = Disk { world, image, sector: 512, plan: report["plan"].clone() };
    xfsprogs_find_nothing_to_repair(&disk);
    the_kernel_mounts_state_and_ephemeral(&disk);
    for number in [STATE, EPHEMERAL] {
        let Range { offset, len } = disk.range(number);
        let tail = read_at(&disk.image, offset + len - MIB, MIB as usize);
        assert!(tail.iter().all(|b| *b == 0), "partition {number} ends in something old");
    }
}

/// Or none is made; then there is none, be it an older one.
#[test]
fn data_partitions_can_stay_blank() {
    let world = World::new();
    let image = world.image();
    write_at(&image, 0, &noise(1, 4096));
    world.install(&image, &["--force", "--format-data=true"]).succeeds();
    world.install(&image, &["--force", "--format-data=false"]).succeeds();
    let disk = Disk { world, image, sector: 512, plan: Value::Null };
    for number in [STATE, EPHEMERAL] {
        let volume = disk.volume(number);
        let blkid = program("blkid").arg("-p").arg(&volume).output().unwrap();
        assert_eq!(blkid.status.code(), Some(2), "{blkid:?}");
    }
}

// ---------------------------------------------------------------------------------------------------
// GRUB. Its tools know files with 512-byte sectors only.

#[test]
fn grub_accepts_its_configuration() {
    let cfg = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/grub/grub.cfg");
    tool!("grub-script-check", cfg);
}

/// By GRUB's own partition and file system code.
#[test]
fn grub_reads_every_file() {
    let disk = Disk::installed(512);
    let grub = |args: &[&str]| finished_bytes(program("grub-fstest").arg(&disk.image).args(args));
    for number in [ESP, SLOT_A] {
        for (path, bytes) in disk.files(number) {
            let on_disk = format!("(loop0,gpt{number})/{path}");
            assert!(grub(&["cat", &on_disk]) == bytes, "{on_disk} differs");
        }
    }
    let listing = String::from_utf8(grub(&["ls", &format!("(loop0,gpt{SLOT_A})/")])).unwrap();
    let mut listed: Vec<&str> = listing.split_whitespace().collect();
    listed.sort_unstable();
    assert_eq!(listed, disk.files(SLOT_A).keys().collect::<Vec<_>>());
}

/// The bytes in which the disk differs from boot.img and core.img as GRUB made them.
#[test]
fn bios_boot_code_leads_to_the_core_image() {
    let disk = Disk::installed(512);
    let bios = disk.range(BIOS);
    let core_lba = bios.offset / 512;

    let mut boot_code = asset("boot.img")[..440].to_vec();
    boot_code[0x03..0x5a].fill(0);
    boot_code[0x5c..0x64].copy_from_slice(&core_lba.to_le_bytes());
    assert_eq!(boot_code[0x64], 0xff, "boot.img takes the drive it was started from");
    assert_eq!(boot_code[0x66..0x68], [0xeb, 0x05]);
    boot_code[0x66..0x68].copy_from_slice(&[0x90, 0x90]);
    assert!(read_at(&disk.image, 0, 440) == boot_code, "boot code");
    assert_eq!(read_at(&disk.image, 510, 2), [0x55, 0xaa]);

    let mut core = asset("core.img");
    core.resize(core.len().next_multiple_of(512), 0);
    let sectors = (core.len() / 512) as u16;
    core[0x1f4..0x1fc].copy_from_slice(&(core_lba + 1).to_le_bytes());
    assert_eq!(core[0x1fc..0x1fe], (sectors - 1).to_le_bytes(), "length of the block list");
    assert_eq!(core[0x1fe..0x200], 0x820_u16.to_le_bytes(), "segment it is loaded to");
    assert!(read_at(&disk.image, bios.offset, core.len()) == core, "core image");
}

/// No BIOS reads 4096-byte sectors: there is nothing for it to start.
#[test]
fn no_bios_boot_code_on_4096_byte_sectors() {
    let disk = Disk::installed(4096);
    assert!(read_at(&disk.image, 0, 440).iter().all(|b| *b == 0));
    let warnings = disk.plan["warnings"].to_string();
    assert!(warnings.contains("UEFI only"), "{warnings}");
}

/// GRUB's own installer, run on this disk, leaves it as it is.
#[test]
fn grub_bios_setup_would_change_nothing() {
    let disk = Disk::installed(512);
    let (bios, core_bytes) = (disk.range(BIOS), asset("core.img").len());
    let bytes = || (read_at(&disk.image, 0, 512), read_at(&disk.image, bios.offset, core_bytes));
    let ours = bytes();
    write_at(&disk.image, 0, &[0; 440]);
    write_at(&disk.image, bios.offset, &vec![0; core_bytes]);

    // It insists on a directory on a device that it may open.
    let grub = SmallFs::new(&disk.world);
    for name in ["boot.img", "core.img"] {
        fs::write(grub.path(name), asset(name)).unwrap();
    }
    let map = grub.path("device.map");
    fs::write(&map, format!("(hd0) {}\n(hd1) {}\n", disk.image.display(), grub.device().display())).unwrap();
    let setup = "/usr/lib/grub/i386-pc/grub-bios-setup";
    tool!(setup, "--no-rs-codes", "-s", "-d", grub.path("."), "-m", map, "(hd0)");

    assert!(ours == bytes(), "grub-bios-setup writes other bytes");
}

// ---------------------------------------------------------------------------------------------------
// Real disks, as far as a loop device is one: through the kernel's page cache and ioctls.

#[test]
fn a_block_device_becomes_the_same_disk_as_an_image() {
    for (sector, slot) in [("512", SLOT), ("4096", SLOT_4096)] {
        let world = World::new();
        let file = world.sparse("disk.img", DISK_BYTES);
        write_at(&file, 0, &noise(1, 8192));
        let disk = Loop::attach(&file, &["--sector-size", sector]);
        world.install(&disk.node, &["--zero", "--format-data=true", slot]).succeeds();
        let verdict = tool!("sgdisk", "-v", &disk.node);
        assert!(verdict.contains("No problems found."), "{verdict}");
        for (number, name) in [(6, "STATE"), (7, "EPHEMERAL")] {
            let node = disk.partition(number, world::partition(&disk.node, name));
            tool!("xfs_repair", "-n", &node.node);
            let mount = Mount::new(&node.node, world.path(name));
            fs::write(mount.point.join("file"), b"content").unwrap();
        }
        world::on_disk(&disk.node, &["verify"]).succeeds();
        // The same system, by another way to it: nothing was left in a cache of the device.
        drop(disk);
        let device = Loop::attach(&file, &["--sector-size", sector]);
        world::on_disk(&device.node, &["verify"]).succeeds();
    }
}

// ---------------------------------------------------------------------------------------------------
// Any set of files becomes a file system that others read.

/// Sizes around the borders of clusters, and others.
#[derive(Clone, Debug)]
enum Size {
    Bytes(u64),
    Clusters { count: u64, plus: i64 },
}

impl Size {
    fn bytes(&self, cluster: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => *bytes,
            Size::Clusters { count, plus } => (count * cluster).saturating_add_signed(*plus),
        }
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        Just(Size::Bytes(0)),
        Just(Size::Bytes(1)),
        (1..4_u64, -1..=1_i64).prop_map(|(count, plus)| Size::Clusters { count, plus }),
        (0..300_000_u64).prop_map(Size::Bytes),
    ]
}

/// Names in the 8.3 form and out of it, that share a beginning, with characters of one to three bytes. None has a
/// `~`: the layout refuses a name that another's alias has taken already.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Z0-9_]{1,8}(\\.[A-Z0-9]{1,3})?",
        "[a-z0-9]{1,8}(\\.[a-z]{1,3})?",
        "initramfs[a-z]{0,3}\\.(xz|zst|img)",
        "[a-zA-Z0-9äößé漢字 ._+,;=\\[\\]-]{1,60}",
        "[a-z]{13}([a-z]{13})?",
        "[a-z.]{200,240}",
    ]
    .prop_filter("FAT knows no such name", |name| !name.ends_with(['.', ' ']) && !name.starts_with(' '))
}

/// Paths of files in directories up to three deep; some share a directory.
fn paths() -> impl Strategy<Value = Vec<(String, Size)>> {
    let dirs = prop::collection::vec(prop::collection::vec(name(), 1..=3), 1..5);
    let files = prop::collection::vec((name(), size(), any::<Index>(), any::<bool>()), 0..50);
    (dirs, files).prop_map(|(dirs, files)| {
        let place = |(name, size, dir, in_root): (String, Size, Index, bool)| {
            let dir = if in_root { String::new() } else { dir.get(&dirs).join("/") + "/" };
            (dir + &name, size)
        };
        without_clashes(files.into_iter().map(place))
    })
}

/// Drop what FAT cannot hold side by side: names that differ in case only, and a file with a directory's name.
fn without_clashes(files: impl Iterator<Item = (String, Size)>) -> Vec<(String, Size)> {
    let mut taken: BTreeMap<String, (String, bool)> = BTreeMap::new();
    let mut kept = Vec::new();
    for (path, size) in files {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let nodes: Vec<_> = ends.map(|end| (path[..end].to_owned(), end < path.len())).collect();
        let free = nodes.iter().all(|(node, is_dir)| match taken.get(&node.to_lowercase()) {
            Some(same) => *is_dir && *same == (node.clone(), true),
            None => true,
        });
        if free {
            taken.extend(nodes.into_iter().map(|(node, is_dir)| (node.to_lowercase(), (node, is_dir))));
            kept.push((path, size));
        }
    }
    kept
}

/// Size of a volume in MiB that is legal FAT32 with these sectors.
fn volume() -> impl Strategy<Value = (SectorSize, u64)> {
    prop_oneof![
        3 => (36..=80_u64).prop_map(|mib| (SectorSize::S512, mib)),
        1 => (260..=300_u64).prop_map(|mib| (SectorSize::S4096, mib)),
    ]
}

/// Write a volume the way the executor does, over what was there before.
fn write_volume(
    image: &Path,
    extent: Extent,
    sector: SectorSize,
    files: &[(String, Size)],
) -> BTreeMap<String, Vec<u8>> {
    let specs = |files: Vec<FileSpec>| VolumeSpec {
        label: "TEST".to_owned(),
        serial: 0x1234_5678,
        time: FatTime(1_800_000_000),
        files,
    };
    let probe = specs(vec![FileSpec { path: "x".to_owned(), size: 1 }]);
    let cluster = VolumeLayout::new(extent, sector, &probe).unwrap().files[0].padded;
    let sized = files.iter().map(|(path, size)| FileSpec { path: path.clone(), size: size.bytes(cluster) });
    let layout = VolumeLayout::new(extent, sector, &specs(sized.collect())).unwrap();

    let disk = OpenDisk::open(image, Access::Whole, Some(sector), Duration::ZERO).unwrap();
    let mut contents = BTreeMap::new();
    for (seed, file) in (1..).zip(&layout.files) {
        let content = noise(seed, file.size as usize);
        let mut padded = content.clone();
        padded.resize(file.padded as usize, 0);
        disk.write_at(extent.offset + file.offset, &padded).unwrap();
        contents.insert(file.path.clone(), content);
    }
    for (offset, bytes) in &layout.metadata {
        disk.write_at(extent.offset + offset, bytes).unwrap();
    }
    disk.write_at(extent.offset, &layout.boot_sector).unwrap();
    disk.sync().unwrap();
    contents
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_files_are_read_back_by_all((sector, mib) in volume(), files in paths()) {
        let world = World::new();
        let extent = Extent { offset: MIB, len: mib * MIB };
        let image = world.sparse("volume.img", extent.end() + MIB);
        // FAT, directories and the first clusters lie where something else lay before.
        write_at(&image, extent.offset, &noise(mib, 3 * MIB as usize));
        let written = write_volume(&image, extent, sector, &files);

        let range = Range { offset: extent.offset, len: extent.len };
        let volume = fatfs::FileSystem::new(Window::of(&image, range), fatfs::FsOptions::new()).unwrap();
        prop_assert!(all_files(&volume) == written, "the fatfs crate reads other files");

        let disk = OpenDisk::open(&image, Access::Read, Some(sector), Duration::ZERO).unwrap();
        let volume = FatVolume::open(&disk, extent).unwrap();
        for (path, content) in &written {
            let found = volume.read_small(path, 1 << 20).unwrap();
            prop_assert!(found.as_ref() == Some(content), "{path} differs");
            let file = volume.find(path).unwrap().unwrap();
            prop_assert!(file.extents.len() <= 1, "{path} is not in one piece");
        }
        let in_root = volume.root_files().unwrap().into_iter().map(|(name, _)| name);
        let mut in_root: Vec<String> = in_root.collect();
        in_root.sort_unstable();
        prop_assert_eq!(in_root, written.keys().filter(|p| !p.contains('/')).cloned().collect::<Vec<_>>());

        let alone = world.path("volume");
        extract(&image, range, &alone);
        assert_clean_fat(&alone);
    }
}

/// Every file of a volume by path, read by the `fatfs` crate.
fn all_files(volume: &fatfs::FileSystem<Window>) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    collect(&volume.root_dir(), "", &mut files);
    files
}

fn collect(dir: &fatfs::Dir<Window>, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in dir.iter() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let path = format!("{prefix}{name}");
        match (entry.is_dir(), name.as_str()) {
            (true, "." | "..") => {}
            (true, _) => collect(&entry.to_dir(), &format!("{path}/"), files),
            (false, _) => {
                let mut bytes = Vec::new();
                entry.to_file().read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len() as u64, entry.len());
                files.insert(path, bytes);
            }
        }
    }
}

/// A range of a file as a file, read-only.
struct Window {
    file: File,
    range: Range,
    at: u64,
}

impl Window {
    fn of(path: &Path, range: Range) -> Self {
        Window { file: File::open(path).unwrap(), range, at: 0 }
    }
}

impl Read for Window {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.range.len.saturating_sub(self.at).min(buf.len() as u64) as usize;
        self.file.read_exact_at(&mut buf[..n], self.range.offset + self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for Window {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("a judge does not write"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.range.len.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}
