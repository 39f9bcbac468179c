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

/// Tests that are the same under both kinds of firmware: functions of a `Firmware`, each in a module of its name.
macro_rules! under_both_firmwares {
    ($($name:ident => $test:expr;)+) => {
        $(mod $name {
            use super::*;

            #[test]
            fn under_bios() {
                crate::timed(stringify!($name), Firmware::Bios, $test);
            }

            #[test]
            fn under_uefi() {
                crate::timed(stringify!($name), Firmware::Uefi, $test);
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

fn timed(name: &str, firmware: qemu::Firmware, test: fn(qemu::Firmware)) {
    let began = std::time::Instant::now();
    test(firmware);
    eprintln!("{name} {firmware:?} {:.1} s", began.elapsed().as_secs_f32());
}
