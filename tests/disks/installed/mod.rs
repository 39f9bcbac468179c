//! The disk an install leaves, judged by programs that have nothing to do with the installer: gdisk, dosfstools,
//! mtools, xfsprogs, GRUB's own tools, the kernel, and the `gpt` and `fatfs` crates.

mod grub;

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;
use slipway_core::{boot::history::new_file, units::MIB};
use slipway_test_support::world::{
    self, DISK_BYTES, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Mount, Range, SLOT, SLOT_4096, World, assert_clean_fat,
    asset, extract, finished, noise, program, read_at, tool, write_at,
};

use crate::fat_reader::{Window, all_files};

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

    /// The answer of `sgdisk -i` about a partition.
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
                Some("efiimage") => asset("loader.efi"),
                _ if file["from"]["history"].is_object() => {
                    let first = serde_json::from_value(file["from"]["history"].clone()).unwrap();
                    new_file(&first, self.sector as usize).into_bytes()
                }
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
    mtools_find_the_first_entry_of_the_history
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
        let window = Window::open(&disk.image, disk.range(number));
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
        let expected = format!("seq=1\ndefault=A\nonce=\na=good\nb=empty\na_since={time}\nhistory=1\n");
        assert_eq!(list(ESP, path), expected, "{path}");
    }
    assert_eq!(list(SLOT_A, "slot.env"), "state=good\nseq=1\n");
    let guid = disk.plan["table"]["ids"]["disk"].as_str().unwrap();
    let args = "'quiet' 'dyndbg=file x +p' 'sum=$1;2'";
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

fn mtools_find_the_first_entry_of_the_history(disk: &Disk) {
    let copy = disk.mcopy(ESP, "slipway/history");
    let text = fs::read_to_string(&copy).unwrap();
    assert_eq!(text.len() as u64, 64 * disk.sector);
    let records: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let [first] = records[..] else { panic!("{records:?}") };
    let (sum, json) = first.split_once(' ').unwrap();
    fs::write(&copy, json).unwrap();
    assert!(tool!("sha256sum", &copy).starts_with(sum), "{first}");
    let entry: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((&entry["n"], &entry["verb"], &entry["slot"]), (&1.into(), &"install".into(), &"A".into()));
    assert_eq!(entry["time"], disk.plan["table"]["ids"]["time"]);
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

/// Whatever lay where a file system is made, its log above all, is gone: no program mistakes it for a file system.
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
