//! The configuration of a system goes back with it: in Debian, whose settings of the network lie on STATE, where both systems
//! have them. The version that is tried migrates one of them, after the service that puts a snapshot back.
//!
//! Subject: src/ops/snapshot.rs src/ops/snapshot src/snapshot core/src/snapshot core/src/plan/snapshot.rs
//! Subject: assets/initramfs-tools assets/systemd examples/common

use tempfile::TempDir;

use crate::{
    medium::Medium,
    operating_systems::{DEBIAN, installed, machine},
    own_debian::{self, with_unit},
    qemu::Firmware,
    terminal::Terminal,
    world::VERSION_2,
};

// What takes long: three and four boots of a Debian.
stories! {
    /// First start: the test writes a setting, upgrades, and reboots. Second: the trial migrates the setting, and its
    /// kernel panics. Third: slot A is back by itself, and so is the setting of before, by the word of the initramfs before
    /// systemd starts. Slot B keeps the migrated one.
    a_trial_that_migrates_and_panics: campaign Bios, campaign Uefi => panics;
    /// First start: the test writes a setting, upgrades, and reboots. Second: the trial migrates the setting and confirms
    /// itself; the test changes it once more, and asks for `rollback`. Third: slot A has the setting of before; the test
    /// changes it, and asks for `rollback`. Fourth: slot B has its own last one. Slot A keeps its changed one.
    a_confirmed_system_that_migrated_goes_back: campaign Bios, campaign Uefi => goes_back;
}

const SETTING: &str = "/etc/systemd/network/ours";

/// A version that migrates the setting once, and then runs this.
fn migrating(then: &str) -> TempDir {
    let migrates = format!("grep -q migrated {SETTING} || echo migrated >>{SETTING}; sync; {then}");
    let unit = format!("After=slipway-restore.service\n[Service]\nType=oneshot\nExecStart=sh -c '{migrates}'");
    own_debian::version(VERSION_2, &with_unit("migrate", &unit, "multi-user"), &[])
}

/// In slot A: a setting, then the upgrade, whose system boots next.
fn upgrades_with_a_setting(at: &mut Terminal) {
    at.logs_in('A', 0);
    at.runs(&format!("echo old >{SETTING}"));
    at.upgrades(&["--extra-kernel-arg", "no_timer_check"]);
    at.reboots();
}

fn panics(firmware: Firmware) {
    let (image, next) = (installed(DEBIAN), migrating("echo c >/proc/sysrq-trigger"));
    let medium = Medium::with_payload(next.path());
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    upgrades_with_a_setting(&mut at);
    at.console.wait_for("slipway: slot B try=1: booting");
    at.console.wait_for("Kernel panic");
    at.logs_in('A', 0);
    at.runs(&format!("cat {SETTING} && test \"$(cat {SETTING})\" = old"));
    // The initramfs writes into the kernel's log, and the service into its own.
    at.runs("dmesg | grep -q 'put back'");
    at.runs("installer snapshot restore --slot B --to /tmp/b --progress none");
    at.runs(&format!("cat /tmp/b{SETTING} && grep -q migrated /tmp/b{SETTING}"));
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

fn goes_back(firmware: Firmware) {
    let (image, next) = (installed(DEBIAN), migrating("true"));
    let medium = Medium::with_payload(next.path());
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    upgrades_with_a_setting(&mut at);
    at.logs_in('B', 1);
    at.runs("until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done");
    at.runs(&format!("grep -q migrated {SETTING} && echo of-b >>{SETTING}"));
    at.runs("installer rollback --progress none --reason 'it was only a test'");
    at.reboots();
    at.logs_in('A', 0);
    at.runs(&format!("cat {SETTING} && test \"$(cat {SETTING})\" = old && echo of-a >>{SETTING}"));
    at.runs("installer rollback --progress none --reason 'it was only a test'");
    at.reboots();
    at.logs_in('B', 0);
    at.runs(&format!("cat {SETTING} && test \"$(tr '\\n' ' ' <{SETTING})\" = 'old migrated of-b '"));
    at.runs("installer snapshot restore --slot A --to /tmp/a --progress none");
    at.runs(&format!("cat /tmp/a{SETTING} && test \"$(tr '\\n' ' ' </tmp/a{SETTING})\" = 'old of-a '"));
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}
