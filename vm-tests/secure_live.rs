//! Live media under Secure Boot: what starts of them is signed, and what they install starts, too.

use std::{fs, path::PathBuf};

use crate::{
    image::{GIB, Image},
    is_campaign,
    live::Live,
    qemu::{Drive, Firmware, Machine},
    secure_boot::Bench,
    world::{VERSION, World},
};

/// Firmware, loader, kernel and initramfs have a medium in memory, each for itself.
const MEMORY_MIB: u32 = 1536;

/// An ISO whose loader and system our keys have signed, and the system for disks, too.
fn medium(bench: &Bench, args: &[&str]) -> Live {
    let signer = bench.signer("keys");
    let words = ["--extra-kernel-arg=slipway.rootfs=@squashfs-sha256@", "--extra-kernel-arg=panic=-1"];
    let args = [&signer.each_ref().map(String::as_str)[..], &words, args].concat();
    Live::made_of(World::get().payload(VERSION), "iso", &args)
}

fn machine(bench: &Bench) -> Machine {
    Machine::with_secure_boot(Firmware::Uefi, &bench.path("variables")).memory(MEMORY_MIB)
}

/// A copy with one bit changed, where these bytes are first in it: on the file system for UEFI.
fn changed(bench: &Bench, live: &Live, text: &[u8]) -> PathBuf {
    let mut bytes = fs::read(&live.file).expect("the medium can be read");
    let at = bytes.windows(text.len()).position(|here| here == text).expect("it is on the medium");
    bytes[at] ^= 1;
    let to = bench.path("changed.iso");
    fs::write(&to, bytes).expect("it can be written");
    to
}

#[test]
fn a_signed_medium_starts_and_a_changed_one_does_not() {
    if !is_campaign("a_signed_medium_starts_and_a_changed_one_does_not") {
        return;
    }
    let bench = Bench::enrolled(Firmware::Uefi);
    let live = medium(&bench, &[]);
    let mut console = machine(&bench).cd(&live.file).start();
    console.wait_for(&format!("slipway: medium {}: booting", live.medium));
    console.expect_live(VERSION, &live.medium);
    drop(console);

    // One bit of the arguments in the signed system.
    let iso = changed(&bench, &live, format!("slipway.medium={}", live.medium).as_bytes());
    let mut console = machine(&bench).cd(&iso).start();
    console.wait_for("slipway: the live system does not start: the firmware refuses EFI/Linux/slipway.efi");
    let said = console.switch_off();
    assert!(!said.contains("SLIPWAY-") && !said.contains("Linux version"), "{said}");

    // One bit of the loader, in a text of it.
    let iso = changed(&bench, &live, b"two disks say that they were installed by this medium");
    let mut console = machine(&bench).cd(&iso).start();
    console.wait_for("Access Denied");
    assert!(!console.switch_off().contains("slipway: "), "a changed loader has started");
}

/// Without a private key on the machine. The stick stays in, and stays first in the boot order.
#[test]
fn a_signed_medium_installs_a_disk_that_starts_with_secure_boot() {
    if !is_campaign("a_signed_medium_installs_a_disk_that_starts_with_secure_boot") {
        return;
    }
    let bench = Bench::enrolled(Firmware::Uefi);
    let live = medium(&bench, &["--extra-kernel-arg=slipway.install=serial:target"]);
    let disk = Image::blank(8 * GIB);
    let drive = Drive::new(disk.path()).serial("target").boot_index(1).kept();
    let mut console = machine(&bench).stick(&live.file).drive(&drive).may_reset().start();
    console.expect_live(VERSION, &live.medium);
    console.expect_unattended(0, "reboot");
    console.wait_for(&format!("slipway: medium {} has installed a disk: booting it", live.medium));
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    drop(console);

    let mut console = machine(&bench).drive(&drive).start();
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
}

/// From an empty firmware to Secure Boot, by the medium alone and in one start: nothing that nobody has signed starts from
/// then on, and the medium goes on.
#[test]
fn a_medium_enrols_its_keys_in_setup_mode() {
    if !is_campaign("a_medium_enrols_its_keys_in_setup_mode") {
        return;
    }
    let bench = Bench::new(Firmware::Uefi);
    let from = format!("--enroll-from={}", bench.path("keys").display());
    let live = medium(&bench, &[&from]);
    let unsigned = Live::made("iso", &[]);
    let fresh = fs::read(bench.path("variables")).expect("the variables can be read");

    // A driver in a ROM would not start any more: nothing is written, and the medium starts.
    let mut console = machine(&bench).network_card().cd(&live.file).start();
    console.wait_for("slipway: the keys of this medium are not enrolled: a PCI device has an option ROM");
    console.expect_live(VERSION, &live.medium);
    drop(console);

    // A damaged file is none that firmware gets: it would take it.
    let db = fs::read(bench.path("keys/db.auth")).expect("it can be read");
    let iso = changed(&bench, &live, &db[..200]);
    let mut console = machine(&bench).cd(&iso).start();
    console.wait_for("slipway: the keys of this medium are not enrolled: the files in loader/keys/auto do not match");
    console.expect_live(VERSION, &live.medium);
    drop(console);

    let mut console = machine(&bench).cd(&live.file).may_reset().start();
    console.wait_for("slipway: the firmware is in setup mode: enrolling the keys of this medium");
    console.wait_for("slipway: the keys are enrolled, and read back; starting anew with Secure Boot");
    console.expect_live(VERSION, &live.medium);
    drop(console);
    assert!(fs::read(bench.path("variables")).is_ok_and(|now| now != fresh), "the variables are as they were");

    let mut console = machine(&bench).cd(&unsigned.file).start();
    console.wait_for("Access Denied");
    assert!(!console.switch_off().contains("slipway: "), "an unsigned medium has started");
}
