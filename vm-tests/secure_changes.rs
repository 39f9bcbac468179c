//! Under Secure Boot nothing runs that was changed on the disk, and what is whole takes its place. An attacker who
//! changes a file changes what lies beside it, too: the checks of the boot loader are off, and the lists of digests say
//! what there is now.
//!
//! Subject: loader/src core/boot/src core/src/efi/pe.rs
//! Needs: root boot-assets payloads qemu

use std::fs;

use crate::{
    boot_rule::assert_try_is_spent,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    secure_loader::Node,
    world::{VERSION, run},
};

/// Where these bytes are in a file of the payload, which is in slot A as it is.
fn place(node: &Node, name: &str, bytes: &[u8]) -> u64 {
    let file = fs::read(node.bench.path("first").join(name)).expect("it was made");
    let at = file.windows(bytes.len()).position(|window| window == bytes).expect("it is in there");
    node.image.file_of_slot('A', name).0 + at as u64
}

/// A copy of the disk on which one bit is another.
fn changed(node: &Node, offset: u64) -> Image {
    let image = node.image.copy();
    image.flip_bit(offset);
    image.set_boot_env(&["check=off"]);
    image
}

/// First start: the firmware takes the keys. Second and third: one bit of the arguments, and one of the initramfs, is
/// flipped inside the UKI, with `check=off`: the firmware refuses it, and nothing boots. Fourth: one bit of the
/// squashfs is flipped, and SHA256SUMS fits it: the initramfs goes by the digest in the signed command line, and the
/// system does not come up. Fifth: a file in `uki.efi.extra.d` changes nothing. Sixth: the same disk boots under BIOS.
#[test]
#[ignore = "campaign"]
fn nothing_of_a_signed_system_can_be_changed() {
    let node = Node::new(Firmware::Uefi);
    let initramfs = fs::read(node.bench.path("first/initramfs.xz")).expect("it is in the payload");
    let middle = initramfs.len() / 2;
    for at in [
        place(&node, "uki.efi", b"slipway.scenario=unconfirmed"),
        place(&node, "uki.efi", &initramfs[middle..middle + 64]),
    ] {
        let image = changed(&node, at);
        let mut console = node.start_from(image.path());
        console.wait_for("slipway: slot A does not start: the firmware refuses uki.efi");
        console.wait_for("slipway: no slot can be booted");
        if console.shows("SLIPWAY-") {
            console.fail("a changed system has run");
        }
    }

    let squashfs = node.image.file_of_slot('A', "rootfs.squashfs");
    let image = changed(&node, squashfs.0 + squashfs.1 / 2);
    lists_what_is_there(&node, &image);
    let mut console = node.start_from(image.path());
    console.wait_for("SLIPWAY-FAIL reason=rootfs.squashfs of slot A is not the one that the command line names");
    if console.shows("SLIPWAY-OK") {
        console.fail("a changed squashfs has run");
    }
    drop(console);

    // A file that the stub hands to the initramfs, and that was never verified.
    let beside = node.image.copy();
    beside.put_into_slot('A', "uki.efi.extra.d", "evil.cred", b"slipway.scenario=panic slipway.shell\n");
    node.start_from(beside.path()).expect_os(VERSION, 'A', 0);

    let drive = Drive::new(node.image.path()).boot_index(1);
    Machine::new(Firmware::Bios).memory(1024).drive(&drive).start().expect_os(VERSION, 'A', 0);
}

/// The digest of the squashfs as it is now, where SHA256SUMS in slot A has the old one.
fn lists_what_is_there(node: &Node, image: &Image) {
    let was = fs::read(node.bench.path("first/rootfs.squashfs")).expect("it is in the payload");
    let mut is = was.clone();
    let middle = is.len() / 2;
    is[middle] ^= 0x10;
    let digest = |bytes: &[u8]| {
        let file = node.bench.path("squashfs");
        fs::write(&file, bytes).expect("a temporary file can be written");
        let line = run("sha256sum", [file.as_os_str()]);
        String::from_utf8_lossy(&line[..64]).into_owned()
    };
    image.replace_in_file('A', "SHA256SUMS", &digest(&was), &digest(&is));
}

stories! {
    /// First start: the firmware takes the keys. Second: one bit of the trial's UKI is flipped, with `check=off`. The
    /// firmware refuses it, the default boots in the same run, and both copies of `boot.env` say that the trial is
    /// spent and why. Third: a signed program adds the trial's UKI to dbx. Fourth: the UKI is whole, and is refused in
    /// the same way.
    a_trial_that_is_damaged_or_revoked_gives_way_in_the_same_run: campaign Uefi, campaign UefiArm64 =>
        bad_trials_give_way;
}

fn bad_trials_give_way(firmware: Firmware) {
    let node = Node::new(firmware);
    node.payload("second", node.next().0, "keys");
    node.upgrade(&node.source("second"), &[]);
    let damaged = node.image.copy();
    damaged.flip_bit_of('B', "uki.efi");
    damaged.set_boot_env(&["check=off"]);
    gives_way(&node, &damaged);
    node.bench.revoke("second/uki.efi");
    gives_way(&node, &node.image);
}

fn gives_way(node: &Node, image: &Image) {
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    // A machine that may not reset.
    let mut console = node.start_from(image.path());
    console.wait_for("slipway: slot B does not start: the firmware refuses uki.efi");
    console.wait_for("slipway: trial of slot B failed, booting the default");
    console.expect_os(VERSION, 'A', 0);
    let armed = [&armed[..], &["refused=B:load".to_owned()]].concat();
    assert_try_is_spent(image, &armed, &console.switch_off());
}
