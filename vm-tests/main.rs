//! Size: gate
//! Needs: root programs boot-assets payloads systems node etcd containerd kube container-image qemu
//!
//! What boots. Every test here ends in a machine that runs what the installer wrote: QEMU, SeaBIOS, OVMF or AAVMF,
//! Debian's kernel and the reference OS.
//!
//! Run by `hack/test`, which builds what the guests need first: `out/installer`, `out/assets`, four
//! payloads, `out/payload*`, the systems of `examples`, `out/systems`, and the container image, `out/image`. A test that
//! misses one of them fails. Those that say `#[ignore = "campaign"]` are run by `hack/campaign`.
//!
//! - `world` is what the tests find, `image` a disk in a file, `medium` what is plugged in beside it, `qemu` a
//!   machine, `firmware` where it begins, `console` what it says, `debugger` hangs one, `write_log` is what one has written;
//! - the other modules are the promises, one file per group.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "the rule about who starts programs is the installer's")]

/// Stories, each a test under every firmware that is named: in the gate, or left to the campaign. The words before a name say
/// what it proves; `hack/stories` lists all of them.
macro_rules! stories {
    ($($(#[doc = $claim:literal])+ $name:ident: $($size:ident $firmware:ident),+ => $story:expr;)+) => {
        $(mod $name {
            use super::*;

            $(stories! { @ $size $firmware $story })+
        })+
    };
    (@ gate $firmware:ident $story:expr) => {
        stories! { @ [] $firmware $story }
    };
    (@ campaign $firmware:ident $story:expr) => {
        stories! { @ [#[ignore = "campaign"]] $firmware $story }
    };
    (@ [$($ignore:tt)*] Bios $story:expr) => {
        #[test]
        $($ignore)*
        fn under_bios() {
            crate::under(Firmware::Bios, $story);
        }
    };
    (@ [$($ignore:tt)*] Uefi $story:expr) => {
        #[test]
        $($ignore)*
        fn under_uefi() {
            crate::under(Firmware::Uefi, $story);
        }
    };
    (@ [$($ignore:tt)*] UefiArm64 $story:expr) => {
        #[test]
        $($ignore)*
        fn on_arm64() {
            crate::under(Firmware::UefiArm64, $story);
        }
    };
}

mod arm64;
mod auto_upgrade;
mod boot_rule;
mod broken_systems;
mod came_back;
mod cluster;
mod console;
mod damaged;
mod debugger;
mod delta;
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
mod snapshot;
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

use slipway_test_support::container_image as oci;

/// A function, so that a story that is a closure knows what it gets.
fn under(firmware: qemu::Firmware, story: fn(qemu::Firmware)) {
    story(firmware);
}
