//! What boots. Every test here ends in a machine that runs what the installer wrote: QEMU, SeaBIOS, OVMF or AAVMF,
//! Debian's kernel and the reference OS.
//!
//! Needs: root programs boot-assets payloads systems node container-image qemu
//!
//! Run by `hack/test`, which builds what the guests need first: `out/installer`, `out/assets`, four
//! payloads, `out/payload*`, the systems of `examples`, `out/systems`, and the container image, `out/image`. A test that misses one of them fails; none is ever skipped.
//!
//! - `world` is what the tests find, `image` a disk in a file, `medium` what is plugged in beside it, `qemu` a
//!   machine, `firmware` where it begins, `console` what it says, `debugger` hangs one, `write_log` is what one has written;
//! - the other modules are the promises, one file per group.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "the rule about who starts programs is the installer's")]

/// Tests that are the same under both kinds of firmware: functions of a `Firmware`, each in a module of its name. Where the
/// story is about what comes after the boot loader, `mostly` names the one that is enough day by day; `SLIPWAY_SYSTEMS=all`
/// has both.
macro_rules! under_both_firmwares {
    ($($name:ident => $test:expr $(, mostly $enough:ident)?;)+) => {
        $(mod $name {
            use super::*;

            /// Both, if it is empty.
            const ENOUGH: &[Firmware] = &[$(Firmware::$enough)?];

            #[test]
            fn under_bios() {
                crate::under(Firmware::Bios, ENOUGH, stringify!($name), $test);
            }

            #[test]
            fn under_uefi() {
                crate::under(Firmware::Uefi, ENOUGH, stringify!($name), $test);
            }
        })+
    };
}

mod auto_upgrade;
mod boot_rule;
mod broken_systems;
mod came_back;
mod cluster;
mod console;
mod damaged;
mod debugger;
mod document;
mod enrolment;
mod factory;
mod firmware;
mod fleet;
mod grow;
mod guard;
mod image;
mod imager;
mod in_guest;
mod installed;
mod keyboard;
mod kubernetes;
mod larger_disk;
mod live;
mod loader;
mod machined;
mod medium;
mod node;
mod openrc;
mod operating_systems;
mod own_debian;
mod power_cut;
mod qemu;
mod renewal;
mod sealed;
mod secure_boot;
mod secure_changes;
mod secure_live;
mod secure_loader;
mod tags;
mod terminal;
mod times;
mod trial;
mod two_disks;
mod unattended;
mod unified;
mod upgrade;
mod world;
mod write_log;

use slipway_test_support::{container_image as oci, not_run};

/// Whether all that takes hours is to run: `SLIPWAY_SYSTEMS=all`. If not, the log says what is left out.
fn is_campaign(test: &str) -> bool {
    let all = std::env::var_os("SLIPWAY_SYSTEMS").is_some_and(|what| what == "all");
    if !all {
        not_run(&format!("{test}; SLIPWAY_SYSTEMS=all runs it"));
    }
    all
}

/// A story that takes so long.
fn campaign(name: &str, firmware: qemu::Firmware, story: fn(qemu::Firmware)) {
    if is_campaign(&format!("{name} under {firmware:?}")) {
        story(firmware);
    }
}

/// A story under one kind of firmware. Left to the campaign if there are others that are enough.
fn under(firmware: qemu::Firmware, enough: &[qemu::Firmware], name: &str, test: fn(qemu::Firmware)) {
    if enough.is_empty() || enough.contains(&firmware) || is_campaign(&format!("{name} under {firmware:?}")) {
        timed(name, firmware, test);
    }
}

fn timed(name: &str, firmware: qemu::Firmware, test: fn(qemu::Firmware)) {
    let began = std::time::Instant::now();
    test(firmware);
    eprintln!("{name} {firmware:?} {:.1} s", began.elapsed().as_secs_f32());
}
