//! A guard that can never know whether this is a trial ends, and systemd does not start it again. The kernel shows no
//! variables of the firmware, which alone would say so to a unified kernel image.
//!
//! Subject: src/ops/guard.rs src/ops/guard assets/systemd/slipway-guard.service

use std::fs;

use tempfile::TempDir;

use crate::{
    image::Image,
    operating_systems::DEBIAN,
    own_debian::version_of,
    qemu::{Drive, Firmware, Machine},
    terminal::Terminal,
    world::{VERSION, World, run},
};

/// A Debian in a unified kernel image, whose own command line is all that it is told. It names its partitions by where they are.
fn payload() -> TempDir {
    let dir = version_of(DEBIAN, VERSION, ":", &[]);
    let path = dir.path().display().to_string();
    let cmdline = dir.path().join("cmdline");
    let words = fs::read_to_string(&cmdline).expect("the payload has a command line");
    let words = words.replace("/dev/disk/by-partuuid/@slot-partuuid@", "/dev/vda3");
    let words = words.replace("@state-partuuid@", "/dev/vda6").replace("@ephemeral-partuuid@", "/dev/vda7");
    fs::write(&cmdline, format!("{} no_timer_check efi=noruntime\n", words.trim())).expect("it can be written");
    let installer = |args: &[&str]| run(&World::get().installer, [&["--progress=none"], args].concat());
    let unlist = || run("rm", ["SHA256SUMS", "manifest.json"].map(|name| dir.path().join(name)));
    unlist();
    installer(&["checksum", &path]);
    installer(&["uki", &format!("--source=dir:{path}"), &format!("--out={path}/uki.efi")]);
    unlist();
    installer(&["checksum", &path]);
    dir
}

/// A Debian in a unified kernel image boots with `efi=noruntime`: the kernel shows no variables of the firmware, so
/// nothing says whether this is a trial. `slipway-guard` says so once and ends with exit code 3. Ten seconds later
/// systemd has not started it again, and calls it failed.
#[test]
#[ignore = "campaign"]
fn a_guard_that_will_never_know_is_not_started_again() {
    let image = Image::make(payload().path(), &[]);
    let machine = Machine::new(Firmware::Uefi).memory(1536).drive(&Drive::new(image.path()).boot_index(1));
    let mut at = Terminal::attach(machine);
    at.console.wait_for("slipway: slot A try=0: booting");
    at.gets_shell();
    at.has_volumes();
    at.runs("test -d /sys/firmware/efi && ! ls /sys/firmware/efi/efivars/* && ! grep slipway.disk /proc/cmdline");
    at.runs("until systemctl show slipway-guard -p ExecMainStatus | grep -x ExecMainStatus=3; do sleep 1; done");
    // It would be started again after one second.
    at.runs("sleep 10; systemctl show slipway-guard -p NRestarts | grep -x NRestarts=0");
    at.runs("systemctl show slipway-guard -p ActiveState | grep -x ActiveState=failed");
    let once = "journalctl -b -u slipway-guard | grep -c 'this kernel does not show the variables of the firmware'";
    at.runs(&format!("{once} | grep -x 1"));
}
