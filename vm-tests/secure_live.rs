//! Under Secure Boot only signed live media start, and what they install starts, too. A medium can also bring the keys
//! into the firmware.
//!
//! Subject: loader/src/enroll.rs loader/src/live.rs core/boot/src/enroll.rs core/boot/src/option_rom.rs
//! Subject: src/ops/secure_medium.rs
//! Needs: root boot-assets payloads qemu

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    console::Console,
    image::{GIB, Image},
    live::Live,
    qemu::{Drive, Firmware, Machine},
    renewal::GRUB,
    secure_boot::Bench,
    world::{VERSION, World},
};

/// Firmware, loader, kernel and initramfs have a medium in memory, each for itself.
const MEMORY_MIB: u32 = 1536;

/// An ISO whose loader and system our keys have signed, and the system for disks, too.
fn medium(bench: &Bench, args: &[&str]) -> Live {
    let signer = bench.signer("keys");
    let words = ["--extra-kernel-arg=slipway.rootfs=@squashfs-sha256@", "--extra-kernel-arg=panic=-1"];
    let (world, arch) = (World::get(), bench.firmware.arch());
    let given = [format!("--arch={arch}")].into_iter();
    let given: Vec<String> =
        given.chain(world.stub_for(arch).map(|stub| format!("--stub={}", stub.display()))).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let args = [&signer.each_ref().map(String::as_str)[..], &given, &words, args].concat();
    Live::made_of(world.payload_for(arch), "iso", &args)
}

/// The same, and it brings these keys along, for this choice.
fn bringing(bench: &Bench, keys: &str, choice: &str) -> Live {
    let [from, choice] = [format!("--enroll-from={}", bench.path(keys).display()), format!("--enroll-keys={choice}")];
    medium(bench, &[&from, &choice])
}

fn machine(bench: &Bench) -> Machine {
    Machine::with_secure_boot(bench.firmware, &bench.path("variables")).memory(MEMORY_MIB)
}

/// Whether the variables have this in them.
fn hold(bench: &Bench, content: &[u8]) -> bool {
    let variables = fs::read(bench.path("variables")).expect("the variables can be read");
    variables.windows(content.len()).any(|window| window == content)
}

/// Whether our certificate has come into the firmware.
fn are_enrolled(bench: &Bench) -> bool {
    hold(bench, &fs::read(bench.path("keys/uki-signing-cert.der")).expect("there is a certificate"))
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

/// First start: the firmware takes the keys. Second: an ISO whose loader and system are signed starts as a CD. Third:
/// one bit of the arguments in the signed system is flipped: the firmware refuses the system, and no kernel runs.
/// Fourth: one bit of the loader is flipped: the firmware refuses the loader, which says nothing.
#[test]
#[ignore = "campaign"]
fn a_signed_medium_starts_and_a_changed_one_does_not() {
    let bench = Bench::enrolled(Firmware::Uefi);
    let live = medium(&bench, &[]);
    let mut console = machine(&bench).cd(&live.file).start();
    console.wait_for(&format!("slipway: medium {}: booting", live.medium));
    console.expect_live(VERSION, &live.medium);
    drop(console);

    // One bit of the arguments in the signed system.
    let iso = changed(&bench, &live, format!("slipway.medium={}", live.medium).as_bytes());
    its_system_is_refused(&bench, &iso);

    // One bit of the loader, in a text of it.
    let iso = changed(&bench, &live, b"two disks say that they were installed by this medium");
    is_refused(&bench, &iso);
}

/// First start: the firmware takes the keys. Second: a signed medium, as a USB stick, installs a disk, with no private
/// key on the machine. Third: the stick is still first, and its loader starts the disk. Fourth: the disk starts alone.
#[test]
#[ignore = "campaign"]
fn a_signed_medium_installs_a_disk_that_starts_with_secure_boot() {
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

/// A medium brings keys for a firmware in setup mode. First start: an option ROM that is not signed is in the machine:
/// nothing is enrolled, and the live system starts. Second: the same with a damaged `db.auth`, which OVMF would take.
/// Third: the loader enrols the keys, reads them back and resets the machine; the live system starts, and the
/// firmware's variables have changed. Fourth: an unsigned medium is refused, and says nothing.
#[test]
#[ignore = "campaign"]
fn a_medium_enrols_its_keys_in_setup_mode() {
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

    is_refused(&bench, &unsigned.file);
}

const ASKED: &str = "slipway: the firmware is in setup mode: press a key within 5 s to enrol the keys of this medium";
const WARNED: &str = "slipway: enrolling the keys of this medium in 15 s: press a key to leave the firmware as it is";
const LEFT: &str = "slipway: the keys of this medium are not enrolled";

/// A person is there, and presses a key. The medium goes on with Secure Boot, or without.
fn presses(console: &mut Console, live: &Live, then: &str) {
    console.type_line("");
    console.wait_for(then);
    console.expect_live(VERSION, &live.medium);
}

/// The firmware refuses its loader and goes on. Neither loader nor system has said anything.
fn is_refused(bench: &Bench, iso: &Path) {
    let never = ["slipway: ", "Linux version", "SLIPWAY-"];
    machine(bench).cd(iso).start().expect_refusal("the medium", &never);
}

/// The firmware refuses its system. The loader starts nothing in its place, and is to try again; no kernel has run.
fn its_system_is_refused(bench: &Bench, iso: &Path) {
    let mut console = machine(bench).cd(iso).start();
    console.wait_for("slipway: the live system does not start: the firmware refuses EFI/Linux/slipway.efi");
    console.wait_for("slipway: trying again in 30 s");
    console.shows_none_of("the live system", &["Linux version", "SLIPWAY-"]);
}

/// A medium has keys and the choice `manual`; the firmware is in setup mode. First start: the loader asks for a key,
/// gets none, enrols nothing, and the live system starts. Second: a key is pressed: the keys are enrolled, the machine
/// starts anew, and the live system starts. Third: one bit of the arguments in the signed system is flipped: the
/// firmware refuses the system. Fourth: an unsigned medium is refused.
#[test]
#[ignore = "campaign"]
fn a_medium_enrols_its_keys_if_somebody_asks() {
    asks(Firmware::Uefi, "manual");
}

/// A medium has keys and the choice `if-safe`; AAVMF is in setup mode, and does not tell the loader that the machine is
/// a virtual one. First start: the loader asks for a key, gets none, enrols nothing, and the live system starts.
/// Second: a key is pressed: the keys are enrolled, and the live system starts anew. Third: one bit of the arguments in
/// the signed system is flipped: it is refused. Fourth: an unsigned medium is refused.
#[test]
#[ignore = "campaign"]
fn a_medium_enrols_its_keys_if_somebody_asks_on_arm64() {
    asks(Firmware::UefiArm64, "if-safe");
}

fn asks(firmware: Firmware, choice: &str) {
    let bench = Bench::new(firmware);
    let live = bringing(&bench, "keys", choice);
    let mut console = machine(&bench).cd(&live.file).start();
    console.wait_for(ASKED);
    console.wait_for(LEFT);
    console.expect_live(VERSION, &live.medium);
    drop(console);
    assert!(!are_enrolled(&bench), "nobody has asked for it");

    let mut console = machine(&bench).cd(&live.file).may_reset().start();
    console.wait_for(ASKED);
    presses(&mut console, &live, "slipway: the keys are enrolled, and read back; starting anew with Secure Boot");
    drop(console);
    assert!(are_enrolled(&bench));

    // From now on the firmware starts what they have signed, and nothing else.
    let iso = changed(&bench, &live, format!("slipway.medium={}", live.medium).as_bytes());
    its_system_is_refused(&bench, &iso);
    let arch = format!("--arch={}", firmware.arch());
    let unsigned = Live::made_of(bench.plain_payload(), "iso", &[&arch]);
    is_refused(&bench, &unsigned.file);
}

/// A medium has keys and the choice `force`; the firmware is in setup mode. First start: a key is pressed within the 15
/// s that the loader waits: nothing is enrolled, and the live system starts. Second: no key is pressed: the keys are
/// enrolled although a network card has an unsigned option ROM, and the live system starts. Third: an unsigned medium
/// is refused.
#[test]
#[ignore = "campaign"]
fn a_medium_enrols_its_keys_unless_somebody_stops_it() {
    let bench = Bench::new(Firmware::Uefi);
    let live = bringing(&bench, "keys", "force");
    let mut console = machine(&bench).cd(&live.file).start();
    console.wait_for(WARNED);
    presses(&mut console, &live, LEFT);
    drop(console);
    assert!(!are_enrolled(&bench), "somebody has stopped it");

    let mut console = machine(&bench).network_card().cd(&live.file).may_reset().start();
    console.wait_for(WARNED);
    console.wait_for("slipway: the keys are enrolled, and read back; starting anew with Secure Boot");
    console.expect_live(VERSION, &live.medium);
    drop(console);
    assert!(are_enrolled(&bench));
    is_refused(&bench, &Live::made("iso", &[]).file);
}

/// First start: a medium with the choice `off` starts in setup mode; its loader says nothing of keys and enrols none.
/// Second: the firmware takes the keys. Third to fifth: media with `if-safe`, `manual` and `force` bring other keys,
/// which the same key has signed. Each live system starts, nothing is said of keys, and the firmware has the keys that
/// it had.
#[test]
#[ignore = "campaign"]
fn a_medium_leaves_a_firmware_as_it_is() {
    let bench = Bench::new(Firmware::Uefi);
    starts_in_silence(&bench, &bringing(&bench, "keys", "off"));
    assert!(!are_enrolled(&bench), "nobody was to do it");

    bench.enrolling("enrolling");
    bench.uki("enrolling", "enrolling.efi", &[]);
    bench.enrol("enrolling.efi");
    let signer = bench.signer("keys");
    bench.keys("more", &[&signer[0], &signer[1], "--include-well-known-certs"]);
    for choice in ["if-safe", "manual", "force"] {
        starts_in_silence(&bench, &bringing(&bench, "more", choice));
        assert!(are_enrolled(&bench) && !hold(&bench, b"Microsoft"), "{choice}: it has other keys");
    }
}

fn starts_in_silence(bench: &Bench, live: &Live) {
    let mut console = machine(bench).cd(&live.file).start();
    console.expect_live(VERSION, &live.medium);
    if console.shows("keys of this medium") {
        console.fail("the loader has looked at its keys");
    }
}

/// First start: a firmware with Secure Boot takes the keys. Second: the signed ISO starts as a CD under BIOS, where its
/// boot loader names the medium. Third: as a USB stick it installs a disk under BIOS; after the reset its GRUB says
/// which disk that is, and the disk's GRUB starts slot A. Fourth: the disk alone starts by GRUB under BIOS. Fifth: the
/// disk starts on the firmware with Secure Boot.
#[test]
#[ignore = "campaign"]
fn a_signed_medium_starts_and_installs_under_bios() {
    let bench = Bench::enrolled(Firmware::Uefi);
    let live = medium(&bench, &["--extra-kernel-arg=slipway.install=serial:target"]);
    // Without a disk.
    let mut console = Machine::new(Firmware::Bios).memory(MEMORY_MIB).cd(&live.file).start();
    console.wait_for(&format!("slipway: medium {}: booting", live.medium));
    console.expect_live(VERSION, &live.medium);
    drop(console);

    let disk = Image::blank(8 * GIB);
    let drive = Drive::new(disk.path()).serial("target").boot_index(1).kept();
    let machine = || Machine::new(Firmware::Bios).memory(MEMORY_MIB).drive(&drive);
    let mut console = machine().stick(&live.file).may_reset().start();
    console.expect_live(VERSION, &live.medium);
    console.expect_unattended(0, "reboot");
    // GRUB names the disk, which Slipway's own loader does not.
    console.wait_for(&format!("slipway: medium {} has installed (hd", live.medium));
    console.wait_for(GRUB);
    console.expect_os(VERSION, 'A', 0);
    drop(console);
    let mut console = machine().start();
    console.wait_for(GRUB);
    console.expect_os(VERSION, 'A', 0);
    drop(console);

    let drive = Drive::new(disk.path()).boot_index(1);
    let machine = Machine::with_secure_boot(Firmware::Uefi, &bench.path("variables")).memory(MEMORY_MIB);
    let mut console = machine.drive(&drive).start();
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
}
