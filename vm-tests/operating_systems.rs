//! Real systems, as `examples` builds them, upgrade themselves, come back, and keep what they should. Nothing in them
//! knows these tests. The test logs in at the serial console and types.
//!
//! Subject: examples/common examples/debian examples/debian-dracut examples/mkosi examples/talos-like assets/systemd
//! Subject: assets/busybox

use std::path::PathBuf;

use crate::{
    image::Image,
    medium::Medium,
    qemu::{Drive, Firmware, Machine},
    terminal::Terminal,
    world::{VERSION, VERSION_2, World},
};

pub const DEBIAN: &str = "debian";
pub const DRACUT: &str = "debian-dracut";
const MKOSI: &str = "mkosi";
const TALOS_LIKE: &str = "talos-like";

/// First start: the trial in slot B runs without EPHEMERAL, and its own health check says so; the test reboots it.
/// Second: slot A boots and is the default. Its `status` names the check and what it said, and its journal names the
/// check, too.
#[test]
#[ignore = "campaign"]
fn debian_comes_back_from_a_trial_under_uefi() {
    comes_back(DEBIAN, Firmware::Uefi);
}

stories! {
    /// First start: the whole system is in its initramfs. It takes its host name from META, and it has its volumes; an
    /// upgrade is made with machined's arguments. Second: slot B is the same machine with its volumes, and confirms
    /// itself.
    a_system_without_a_squashfs_upgrades_itself: campaign Bios, campaign Uefi => talos_like;
    /// First start: the trial in slot B lacks a volume, and its guard has a deadline of 60 s; the test does nothing. The
    /// kernel is told to restart, which only the guard does in this system. Second: slot A is back and the default; its
    /// `status` says that the trial was not confirmed, and names the failed check and the volume.
    a_system_without_systemd_comes_back_by_itself: campaign Bios, campaign Uefi => talos_like_comes_back;
}

// Every story of a system: eleven boots of a minute each.
stories! {
    /// A Debian with systemd and initramfs-tools lives through four stories. A user upgrades it: it confirms itself,
    /// keeps identity and files, and goes back by `rollback`. A trial without EPHEMERAL ends at its reboot, and slot A
    /// names the failed check. It goes from A to B to A, each confirmed. `--preserve=false` empties `/var` and keeps
    /// the identity; `wipe STATE` takes the identity.
    all_of_debian: campaign Bios, campaign Uefi => |firmware| all_of(DEBIAN, firmware);
    /// A Debian with systemd and dracut lives through four stories. A user upgrades it: it confirms itself, keeps
    /// identity and files, and goes back by `rollback`. A trial without EPHEMERAL ends at its reboot, and slot A names
    /// the failed check. It goes from A to B to A, each confirmed. `--preserve=false` empties `/var` and keeps the
    /// identity; `wipe STATE` takes the identity.
    all_of_debian_dracut: campaign Bios, campaign Uefi => |firmware| all_of(DRACUT, firmware);
    /// A system that is all in its initramfs goes from slot A to B to A, and confirms itself each time. `rollback`
    /// brings slot B. An upgrade with `--preserve=false` makes EPHEMERAL anew, and leaves STATE and the identity.
    all_of_talos_like: campaign Bios, campaign Uefi => talos_like_there_and_back;
    /// A system that mkosi builds lives through four stories. A user upgrades it: it confirms itself, keeps identity
    /// and files, and goes back by `rollback`. A trial without EPHEMERAL ends at its reboot, and slot A names the
    /// failed check. It goes from A to B to A, each confirmed. `--preserve=false` empties `/var` and keeps the
    /// identity; `wipe STATE` takes the identity.
    all_of_mkosi: campaign Bios, campaign Uefi => |firmware| all_of(MKOSI, firmware);
}

fn all_of(system: &str, firmware: Firmware) {
    upgrades_itself(system, firmware);
    comes_back(system, firmware);
    goes_back_and_forth(system, firmware);
    forgets(system, firmware);
}

/// Installed; upgraded by a user who is logged in; the new system confirms itself; `rollback` brings the old one.
fn upgrades_itself(system: &str, firmware: Firmware) {
    let (image, medium) = (installed(system), upgrade_of(system));
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    at.logs_in('A', 0);
    let identity = at.identity();
    at.runs("echo kept >/var/lib/mark && echo kept >/etc/systemd/network/mark");
    at.upgrades(&[]);
    at.reboots();
    at.logs_in('B', 1);
    assert_eq!(at.identity(), identity, "the machine is the same one");
    at.says("cat /var/lib/mark /etc/systemd/network/mark", &["kept", "kept"]);
    at.runs("until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done");
    at.runs("installer rollback --progress none --reason 'it was only a test'");
    at.reboots();
    at.logs_in('A', 0);
    assert_eq!(at.identity(), identity, "the machine is the same one");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

/// A new system is not well: a volume is missing, and its own health check finds that. It is left again at its first
/// reboot, and the old one says what failed.
fn comes_back(system: &str, firmware: Firmware) {
    let (image, source) = (installed(system), source_of(system, VERSION_2));
    let one_volume = ["--extra-kernel-arg=-volumes.ephemeral", "--extra-kernel-arg=no_timer_check"];
    image.installer_from('A', 0, "upgrade", &[&["--source", source.as_str()], &one_volume[..]].concat());
    let mut at = Terminal::attach(machine(firmware, &image));
    at.types_root('B', 1);
    at.runs("until installer status | grep 'check volumes failed'; do sleep 1; done");
    at.reboots();
    at.logs_in('A', 0);
    at.runs("installer status | grep 'was not confirmed: check volumes failed'");
    at.runs("installer status | grep '/system/ephemeral is not mounted'");
    at.runs("journalctl -b -u slipway-status | grep 'was not confirmed: check volumes failed'");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
    assert_eq!(image.report("status")["slots"]["B"]["state"], "tried", "{console}");
}

/// Everything is in its initramfs, META is read by the system, and the installer is called as machined calls it.
fn talos_like(firmware: Firmware) {
    let image = Image::make(&payload(TALOS_LIKE, VERSION), &["--meta", "0x0a=rack-7"]);
    let medium = upgrade_of(TALOS_LIKE);
    let mut console = machine(firmware, &image).drive(&medium.drive()).may_reset().start();
    let first = console.wait_for(": slot A, host rack-7, machine ");
    assert!(first.ends_with("boot 1, STATE yes, EPHEMERAL yes"), "{first}");
    console.wait_for_prompt("/ # ");
    console.type_line("mkdir /mnt; mount -t squashfs -o ro /dev/vdb /mnt; upgrade dir:/mnt/payload; echo 'exit'=$?");
    assert_eq!(console.wait_for("exit="), "exit=0");
    console.type_line("reboot -f");
    let second = console.wait_for(": slot B, host rack-7, machine ");
    assert!(second.ends_with("boot 2, STATE yes, EPHEMERAL yes"), "{second}");
    assert_eq!(machine_id(&second), machine_id(&first), "STATE was kept");
    console.wait_for_prompt("/ # ");
    console.type_line(
        "until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done; echo 'is'=up",
    );
    console.wait_for("is=up");
    let console = console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}

/// To slot B and to slot A again, each confirmed; back to slot B by `rollback`; and with a new EPHEMERAL.
fn talos_like_there_and_back(firmware: Firmware) {
    let (image, medium) = (Image::make(&payload(TALOS_LIKE, VERSION), &[]), upgrade_of(TALOS_LIKE));
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    let first = at.console.wait_for(": slot A, ");
    at.console.wait_for_prompt("/ # ");
    for slot in ['B', 'A'] {
        at.runs("mkdir -p /mnt && mount -t squashfs -o ro /dev/vdb /mnt");
        // Another command line makes it another system.
        at.runs(&format!(
            "installer upgrade --source dir:/mnt/payload --progress none --extra-kernel-arg example.for={slot}"
        ));
        at.console.type_line("reboot -f");
        at.console.wait_for(&format!(": slot {slot}, "));
        at.console.wait_for_prompt("/ # ");
        at.runs(&format!(
            "until installer status | grep 'next boot *slot {slot}: slot {slot} is the default'; do sleep 1; done"
        ));
    }
    at.runs("installer rollback --progress none --reason 'it was only a test'");
    at.console.type_line("reboot -f");
    at.console.wait_for(": slot B, ");
    at.console.wait_for_prompt("/ # ");
    at.console.type_line("sync; poweroff -f");
    at.console.expect_power_off();
    let source = source_of(TALOS_LIKE, VERSION_2);
    image.installer_from(
        'B',
        0,
        "upgrade",
        &["--source", &source, "--preserve=false", "--extra-kernel-arg=example.new=1"],
    );
    let mut at = Terminal::attach(machine(firmware, &image));
    let last = at.console.wait_for(": slot A, ");
    assert!(last.ends_with("boot 1, STATE yes, EPHEMERAL yes"), "{last}");
    assert_eq!(machine_id(&last), machine_id(&first), "STATE was kept");
}

fn machine_id(line: &str) -> Option<&str> {
    line.split("machine ").nth(1)?.split(',').next()
}

/// It has a volume less, its own health check finds that, and no user reboots it.
fn talos_like_comes_back(firmware: Firmware) {
    let (image, source) = (Image::make(&payload(TALOS_LIKE, VERSION), &[]), source_of(TALOS_LIKE, VERSION_2));
    let args = ["--extra-kernel-arg=-ephemeral", "--extra-kernel-arg=slipway.deadline=60s"];
    image.installer_from('A', 0, "upgrade", &[&["--source", source.as_str()], &args[..]].concat());
    let mut console = machine(firmware, &image).may_reset().start();
    console.wait_for(": slot B, ");
    // The kernel says it to everybody, also with `quiet`: neither a panic nor the hardware has ended the trial.
    console.wait_for("reboot: Restarting system");
    console.wait_for(": slot A, ");
    console.wait_for_prompt("/ # ");
    let said = "was not confirmed: check volumes failed.*: /var is not mounted";
    console.type_line(&format!("installer status | grep '{said}' && echo 'is'=back"));
    console.wait_for("is=back");
    let console = console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
    assert_eq!(image.report("status")["slots"]["B"]["state"], "tried", "{console}");
}

/// From slot A to slot B, and with the next version to slot A again: each confirms itself.
fn goes_back_and_forth(system: &str, firmware: Firmware) {
    let (image, medium) = (installed(system), upgrade_of(system));
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    at.logs_in('A', 0);
    for slot in ['B', 'A'] {
        // Another command line makes it another system.
        at.upgrades(&["--extra-kernel-arg", &format!("example.for={slot}")]);
        at.reboots();
        at.logs_in(slot, 1);
        at.runs(&format!(
            "until installer status | grep 'next boot *slot {slot}: slot {slot} is the default'; do sleep 1; done"
        ));
    }
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

/// `--preserve=false` takes what is on EPHEMERAL; `wipe STATE` takes the identity.
fn forgets(system: &str, firmware: Firmware) {
    let image = installed(system);
    let mut at = Terminal::attach(machine(firmware, &image));
    at.logs_in('A', 0);
    let identity = at.identity();
    at.runs("echo gone >/var/lib/mark");
    at.powers_off();
    let source = source_of(system, VERSION_2);
    image.installer_from('A', 0, "upgrade", &["--source", &source, "--preserve=false"]);
    let mut at = Terminal::attach(machine(firmware, &image));
    at.logs_in('B', 1);
    at.runs("test ! -e /var/lib/mark");
    assert_eq!(at.identity(), identity, "STATE was kept");
    at.runs("until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done");
    at.powers_off();
    image.installer_from('B', 0, "wipe", &["STATE"]);
    let mut at = Terminal::attach(machine(firmware, &image));
    at.logs_in('B', 0);
    assert_ne!(at.identity(), identity, "STATE was wiped");
}

pub fn machine(firmware: Firmware, image: &Image) -> Machine {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept())
}

/// The payload of a version of a system: `hack/test` builds the first, and makes the second of it.
pub fn payload(system: &str, version: &str) -> PathBuf {
    World::get().system(system, version)
}

pub fn source_of(system: &str, version: &str) -> String {
    format!("dir:{}", payload(system, version).display())
}

/// The emulated timer of a busy machine may come too late for a check of the kernel, which would panic.
pub fn installed(system: &str) -> Image {
    Image::make(&payload(system, VERSION), &["--extra-kernel-arg", "no_timer_check"])
}

pub fn upgrade_of(system: &str) -> Medium {
    Medium::with_payload(&payload(system, VERSION_2))
}
