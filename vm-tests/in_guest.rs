//! The installer works where it is used: in a running system, on the kernel's block device. The system is the reference
//! OS in memory; the job it runs is one of the scripts in `guest/`. What the job has installed is booted afterwards.
//!
//! Subject: src/device src/ops/install.rs vm-tests/guest/empty-disk.sh
//! Needs: root boot-assets payloads qemu

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
};

use gpt::{GptConfig, disk::LogicalBlockSize, mbr::ProtectiveMBR, partition_types};
use tempfile::TempDir;

use crate::{
    image::{GIB, Image},
    medium::{Medium, cpio},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, World, run, scratch_dir},
};

/// `guest/lib.sh` knows where the partitions of a disk of this size lie.
const DISK_BYTES: u64 = 8 * GIB;
/// Serial number of the drive that is installed onto.
const SERIAL: &str = "in a guest";

/// First start: a job in a running system installs onto an empty disk. The kernel shows the new partitions with the
/// right content. A second install, an install onto a partition, and one over a mounted partition are refused. Second
/// and third: the disk boots under BIOS and under UEFI.
#[test]
#[ignore = "campaign"]
fn an_install_from_a_running_system_onto_an_empty_disk_boots() {
    let disk = Image::blank(DISK_BYTES);
    run_in_guest("empty-disk.sh", &disk, &[]);
    boots(&disk);
}

/// First start: a job in a running system installs, by force, onto a disk with another table that was in use just
/// before. The kernel shows the new content, not what it had in its cache; while a partition is open, an install is
/// refused. The ESP has the drive's serial number. Second and third: the disk boots under BIOS and under UEFI, on
/// drives without a serial number.
#[test]
#[ignore = "campaign"]
fn an_install_from_a_running_system_onto_a_used_disk_boots() {
    let disk = Image::blank(DISK_BYTES);
    make_old_table(disk.path());
    run_in_guest("used-disk.sh", &disk, &[]);
    // The drive it was installed on. It boots from others as well, if it is the only disk with its GUID.
    assert_eq!(disk.drive_record(), format!("serial={SERIAL}\n"));
    boots(&disk);
}

/// A job in a running system holds partitions by device mapper and by md. Verbs that would write there are refused,
/// with the holder's name; other partitions can be written meanwhile. A disk that is itself a mapping, as multipath
/// makes it, takes an upgrade while others of its partitions are mounted. This needs a guest: the kernel that runs the
/// tests may have neither.
#[test]
#[ignore = "campaign"]
fn what_device_mapper_and_md_hold_is_not_written() {
    let (disk, dir) = (Image::blank(DISK_BYTES), scratch_dir());
    let (modules, libraries) = (dir.path().join("modules"), dir.path().join("lib"));
    copy_modules(&["dm-mod", "md-mod", "raid1"], &modules);
    copy_libraries(Path::new(DMSETUP), &libraries);
    run_in_guest("held-disk.sh", &disk, &[&modules, &libraries, Path::new(DMSETUP), Path::new("/bin/busybox")]);
}

const DMSETUP: &str = "/usr/sbin/dmsetup";

/// Modules of the kernel in the payload. hack/payload keeps its package.
fn copy_modules(names: &[&str], to: &Path) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/parts/linux-image.deb");
    assert!(package.exists(), "{} is missing: run hack/test, it builds the payloads", package.display());
    let unpacked = scratch_dir();
    run("dpkg-deb", [OsStr::new("-x"), package.as_os_str(), unpacked.path().as_os_str()]);
    let release = fs::read_dir(unpacked.path().join("lib/modules")).expect("a kernel has modules").flatten().next();
    let drivers = release.expect("of one release").path().join("kernel/drivers/md");
    fs::create_dir(to).expect("a directory can be made");
    for name in names.iter().map(|name| format!("{name}.ko")) {
        fs::copy(drivers.join(&name), to.join(&name)).expect("the kernel has this module");
    }
}

/// The shared libraries of a program of this machine.
fn copy_libraries(program: &Path, to: &Path) {
    let text = run("ldd", [program]);
    let paths = String::from_utf8_lossy(&text).into_owned();
    fs::create_dir(to).expect("a directory can be made");
    // `libudev.so.1 => /lib/x86_64-linux-gnu/libudev.so.1 (0x…)`
    for path in paths.lines().filter_map(|line| line.split_whitespace().nth(2)).filter(|path| path.starts_with('/')) {
        let path = Path::new(path);
        fs::copy(path, to.join(path.file_name().expect("a library has a name"))).expect("it can be copied");
    }
}

fn boots(disk: &Image) {
    for firmware in [Firmware::Bios, Firmware::Uefi] {
        let mut console = Machine::new(firmware).drive(&Drive::new(disk.path()).boot_index(1)).start();
        console.expect_os(VERSION, 'A', 0);
    }
}

/// A foreign table: two partitions that lie across where ours come to lie.
fn make_old_table(disk: &Path) {
    let mut file = File::options().read(true).write(true).open(disk).expect("the image file can be opened");
    let sectors = u32::try_from(DISK_BYTES / 512 - 1).expect("the disk is small");
    ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut file).expect("LBA 0 can be written");
    let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut table = config.create_from_device(file, None).expect("a table can be made");
    for (name, bytes) in [("old-system", 200 << 20), ("old-data", 3 * GIB)] {
        table.add_partition(name, bytes, partition_types::LINUX_FS, 0, Some(2048)).expect("the partition fits");
    }
    table.write().expect("the table can be written");
}

/// Run a script as a job of the reference OS, with a disk as /dev/vda and more files beside it; it must succeed.
fn run_in_guest(script: &str, disk: &Image, more: &[&Path]) {
    run_on(script, &Drive::new(disk.path()).kept().serial(SERIAL), more);
}

/// The same with any drive.
pub fn run_on(script: &str, drive: &Drive, more: &[&Path]) {
    let (world, dir) = (World::get(), scratch_dir());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm-tests/guest");
    let (library, files) = (scripts.join("lib.sh"), [world.installer.as_path(), &world.assets]);
    let files = [&[library.as_path()], &files[..], more].concat();
    let (medium, initrd) = (Medium::with_job(&scripts.join(script), VERSION, &files), make_initrd(&dir));
    let kernel = world.payload(VERSION).join("vmlinuz");
    Machine::with_kernel(&kernel, &initrd, "console=ttyS0,115200 quiet no_timer_check cryptomgr.notests panic=-1")
        .drive(drive)
        .drive(&medium.drive())
        .start()
        .expect_job();
}

/// The payload's initramfs with its squashfs in a second cpio behind it: an OS that needs no disk.
fn make_initrd(dir: &TempDir) -> PathBuf {
    let payload = World::get().payload(VERSION);
    let initrd = dir.path().join("initrd");
    let mut bytes = fs::read(payload.join("initramfs.xz")).expect("the payload has an initramfs");
    // The kernel looks for the next archive at multiples of four bytes and skips zeros.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(cpio(payload, &["rootfs.squashfs"]));
    fs::write(&initrd, bytes).expect("the initramfs can be written");
    initrd
}
