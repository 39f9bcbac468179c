//! The installer that the cross compiler has made does everything itself, in machines of its architecture: AAVMF, Debian's
//! kernel for arm64, and the reference OS with that installer in it.
//!
//! Subject: hack/lib.sh hack/build hack/payload Cargo.lock loader/src vm-tests/guest
//! Subject: core/src/kernel/arch.rs payload/src/sha256 src/device src/execute src/tools
//! Needs: root boot-assets payloads qemu

use std::path::{Path, PathBuf};

use crate::{
    image::{GIB, Image},
    medium::Medium,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World},
};

/// `guest/lib.sh` knows where the partitions of a disk of this size lie.
const DISK_BYTES: u64 = 8 * GIB;
/// An emulated machine of this kind takes its time, and a job holds a payload in memory.
const MEMORY_MIB: u32 = 1024;

/// First start: in a running system the installer installs onto an empty disk, finds every byte there, and refuses what
/// it must. Second: our loader boots that disk; its installer confirms it and upgrades it. Third, by its own reboot: the
/// trial boots in slot B and confirms itself. Fourth: a job goes back. Fifth: slot A is the default.
#[test]
#[ignore = "campaign"]
fn a_machine_installs_upgrades_and_goes_back_on_arm64() {
    let disk = installed_in_a_guest();
    assert_eq!(disk.next_boot(), ('A', false));
    let medium = Medium::with_upgrade_to(&World::get().next_payload_for_arm64(), &[]);
    let mut console = machine(&disk).drive(&medium.drive()).may_reset().start();
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.wait_for("slipway: slot B try=1: booting");
    console.expect_os(VERSION_2, 'B', 1);
    console.expect_agent("CONFIRM", 0);
    console.wait_for("nothing to do");
    console.expect_agent("UPGRADE", 0);
    let console = console.switch_off();
    assert_eq!(disk.next_boot(), ('B', false), "{console}");

    let back = job("go-back.sh", &[]);
    machine(&disk).drive(&back.drive()).start().expect_job();
    assert_eq!(disk.next_boot(), ('A', false));
    machine(&disk).start().expect_os(VERSION, 'A', 0);
}

/// First start: the system confirms itself and upgrades to one that panics. Second: the trial panics. Third: the old system
/// is back and is the default; `confirm`, and a second upgrade to the same payload, are refused with exit code 7.
#[test]
#[ignore = "campaign"]
fn a_machine_comes_back_from_a_bad_system_on_arm64() {
    let disk = Image::installed_for(Firmware::UefiArm64, &[]);
    let payload = World::get().next_payload_for_arm64();
    let medium = Medium::with_upgrade_to(&payload, &["--extra-kernel-arg", "slipway.scenario=panic"]);
    let mut console = machine(&disk).drive(&medium.drive()).may_reset().start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.wait_for("slipway: slot B try=1: booting");
    console.wait_for("Kernel panic");
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 7);
    console.expect_agent("UPGRADE", 7);
    let console = console.switch_off();
    assert_eq!(disk.next_boot(), ('A', false), "{console}");
}

/// A disk that the installer of a running system has installed.
fn installed_in_a_guest() -> Image {
    let (disk, host) = (Image::blank(DISK_BYTES), Image::installed_for(Firmware::UefiArm64, &[]));
    let medium = job("empty-disk.sh", &[&guest("lib.sh")]);
    // The first one is /dev/vda.
    let machine = Machine::new(Firmware::UefiArm64).memory(MEMORY_MIB).drive(&Drive::new(disk.path()).kept());
    let machine = machine.drive(&Drive::new(host.path()).boot_index(1)).drive(&medium.drive());
    machine.start().expect_job();
    disk
}

/// A script with the first version beside it. The installer is the system's own.
fn job(script: &str, files: &[&Path]) -> Medium {
    Medium::with_job_and(World::get().payload_for("arm64"), &guest(script), files)
}

fn guest(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vm-tests/guest").join(script)
}

fn machine(disk: &Image) -> Machine {
    Machine::new(Firmware::UefiArm64).memory(MEMORY_MIB).drive(&Drive::new(disk.path()).boot_index(1).kept())
}
