//! Live media start machines: an ISO as a CD and as a USB stick, and a boot from the network. What they carry is there.
//!
//! Subject: assets/grub/iso.cfg src/media core/boot/src/live.rs loader/src/live.rs hack/reference-os/live
//! Needs: root boot-assets payloads qemu container-image

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    image::Image,
    medium::Medium,
    oci,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

/// Size of a USB stick: not a round number, as with real ones.
const STICK_BYTES: u64 = 2_002_780_160;

/// A live medium. It is gone when this is dropped.
pub struct Live {
    dir: TempDir,
    pub file: PathBuf,
    /// Its name.
    pub medium: String,
}

impl Live {
    /// Of the first payload.
    pub fn made(kind: &str, args: &[&str]) -> Self {
        Self::made_of(World::get().payload(VERSION), kind, args)
    }

    /// Of any.
    pub fn made_of(payload: &Path, kind: &str, args: &[&str]) -> Self {
        let dir = scratch_dir();
        let file = dir.path().join(format!("live.{kind}"));
        let source = format!("--source=dir:{}", payload.display());
        let first = ["image", "--progress=none", "--output=json", "--kind", kind, source.as_str()];
        let args = first.iter().chain(args).map(OsStr::new).chain([OsStr::new("--out"), file.as_os_str()]);
        let report = run(&World::get().installer, args);
        let report: serde_json::Value = serde_json::from_slice(&report).expect("the report is JSON");
        let medium = report["medium"].as_str().expect("the report names the medium").to_owned();
        Live { dir, file, medium }
    }

    fn iso() -> Self {
        Self::made("iso", &[])
    }

    /// For the machine of a firmware.
    fn iso_for(firmware: Firmware) -> Self {
        let arch = firmware.arch();
        Self::made_of(World::get().payload_for(arch), "iso", &[&format!("--arch={arch}")])
    }

    /// An ISO written to a stick, which is larger: the backup GPT is not at its end.
    fn stick() -> Self {
        let live = Self::iso();
        let file = File::options().write(true).open(&live.file).expect("the ISO can be opened");
        file.set_len(STICK_BYTES).expect("it can be made larger");
        live
    }
}

fn a_cd(firmware: Firmware) {
    let live = Live::iso_for(firmware);
    Machine::new(firmware).cd(&live.file).start().expect_live(VERSION, &live.medium);
}

/// With a disk beside it that another installer made: it is not booted.
fn a_usb_stick(firmware: Firmware) {
    let (live, disk) = (Live::stick(), Image::installed(VERSION_2, &[]));
    let mut machine = Machine::new(firmware).stick(&live.file);
    machine = machine.drive(&Drive::new(disk.path()).boot_index(1));
    machine.start().expect_live(VERSION, &live.medium);
}

/// A medium for the network, unpacked as for a server.
fn served() -> (Live, PathBuf) {
    let live = Live::made("pxe", &[]);
    let dir = live.dir.path().join("tftp");
    fs::create_dir(&dir).expect("a directory can be made");
    run("tar", [OsStr::new("-C"), dir.as_os_str(), OsStr::new("-xf"), live.file.as_os_str()]);
    (live, dir)
}

fn the_network(firmware: Firmware) {
    let (live, dir) = served();
    Machine::new(firmware).network(&dir, "boot.ipxe").start().expect_live(VERSION, &live.medium);
}

/// The stick stays in, and stays first in the boot order.
fn a_disk_that_the_medium_installed(firmware: Firmware) {
    let (live, disk) = (Live::stick(), Image::installed(VERSION_2, &[]));
    // As its installation would have left it.
    disk.set_boot_env(&[&format!("medium={}", live.medium)]);
    let machine = Machine::new(firmware).stick(&live.file).drive(&Drive::new(disk.path()).boot_index(1));
    machine.start().expect_os(VERSION_2, 'A', 0);
}

stories! {
    /// The machine has an ISO as a CD, and no disk. The firmware starts it, and the payload runs in memory and knows
    /// the medium's name.
    a_live_cd_starts: campaign Bios, campaign Uefi, campaign UefiArm64 => a_cd;
    /// An ISO was written to a larger USB stick, beside a disk with an installation that is not the medium's. The live
    /// system starts, and not the disk.
    a_live_usb_stick_starts: campaign Bios, campaign Uefi => a_usb_stick;
    /// The machine starts from the network: iPXE fetches the files of a medium by TFTP. The payload runs in memory, and
    /// knows the medium's name.
    a_live_system_starts_from_the_network: gate Bios, campaign Uefi => the_network;
    /// A USB stick is first in the boot order, and the disk beside it says that this medium has installed it. The stick
    /// starts that disk: slot A boots.
    a_medium_that_has_done_its_work_boots_the_disk: campaign Bios, campaign Uefi => a_disk_that_the_medium_installed;
}

/// An ISO for arm64 is a USB stick of its own size, and the machine has no disk. The live system starts, and knows the
/// medium's name.
#[test]
#[ignore = "campaign"]
fn a_live_usb_stick_starts_on_arm64() {
    let firmware = Firmware::UefiArm64;
    let live = Live::iso_for(firmware);
    Machine::new(firmware).stick(&live.file).start().expect_live(VERSION, &live.medium);
}

/// On arm64 a USB stick is first in the boot order, and the disk beside it says that this medium has installed it. The
/// stick starts that disk: slot A boots.
#[test]
#[ignore = "campaign"]
fn a_medium_that_has_done_its_work_boots_the_disk_on_arm64() {
    let firmware = Firmware::UefiArm64;
    let (live, disk) = (Live::iso_for(firmware), Image::installed_for(firmware, &[]));
    disk.set_boot_env(&[&format!("medium={}", live.medium)]);
    let machine = Machine::new(firmware).stick(&live.file).drive(&Drive::new(disk.path()).boot_index(1));
    machine.start().expect_os(VERSION, 'A', 0);
}

/// Two disks say that this medium has installed them, so it cannot tell which one to start. The live system starts
/// instead, and the console says why.
#[test]
#[ignore = "campaign"]
fn two_disks_that_the_same_medium_installed_are_no_answer() {
    let (live, disk) = (Live::iso(), Image::installed(VERSION_2, &[]));
    disk.set_boot_env(&[&format!("medium={}", live.medium)]);
    let [first, second] = [1, 2].map(|index| Drive::new(disk.path()).boot_index(index));
    let mut console = Machine::new(Firmware::Bios).cd(&live.file).drive(&first).drive(&second).start();
    console.expect_live(VERSION, &live.medium);
    assert!(console.shows("two disks say that they were installed by this medium"));
}

/// A job in the live system finds the payload in memory, whole by its list of digests and of the running version. The
/// container image that the medium carries can be read to its last byte. No disk is mounted but the job's own.
#[test]
#[ignore = "campaign"]
fn what_a_live_medium_carries_is_in_memory() {
    let container = format!("--container=oci:{}", oci::layout().display());
    let live = Live::made("iso", &[&container]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm-tests/guest/carried.sh");
    let job = Medium::job(scratch_dir(), &script, &[]);
    Machine::new(Firmware::Bios).cd(&live.file).drive(&job.drive()).start().expect_job();
}

/// One bit of the payload behind the live initramfs is flipped. The initramfs refuses it: the payload is not the one in
/// its SHA256SUMS.
#[test]
fn a_damaged_payload_in_memory_is_found() {
    let (_live, dir) = served();
    let initramfs = dir.join("initramfs");
    let file = File::options().read(true).write(true).open(&initramfs).expect("the initramfs can be opened");
    // The squashfs is the largest, and the last but for a few KiB.
    let at = file.metadata().expect("it has a size").len() - (1 << 20);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it can be read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
    let cmdline = fs::read_to_string(dir.join("cmdline")).expect("there is a command line");
    let mut console = Machine::with_kernel(&dir.join("vmlinuz"), &initramfs, cmdline.trim()).start();
    let line = console.wait_for("SLIPWAY-FAIL");
    assert!(line.contains("the payload of this live medium is not the one in its SHA256SUMS"), "{line}");
}
