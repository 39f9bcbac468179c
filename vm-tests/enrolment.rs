//! `installer enroll` takes a machine in OVMF's setup mode to Secure Boot, and refuses if something would not start any
//! more.
//!
//! Subject: src/ops/enroll.rs src/execute/enroll.rs core/src/plan/enroll.rs core/src/efi/database.rs
//! Needs: root boot-assets payloads qemu

use std::{fs, path::PathBuf};

use crate::{
    console::Console,
    image::{GIB, Image},
    qemu::{Drive, Firmware, Machine},
    secure_boot::Bench,
    world::World,
};

const INIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vm-tests/guest/enroll.sh");

/// Two sets of keys, and a disk with a loader and a system that the first has signed.
struct Node {
    bench: Bench,
    image: Image,
}

impl Node {
    fn new() -> Self {
        let node = Node { bench: Bench::new(Firmware::Uefi), image: Image::blank(4 * GIB) };
        let bench = &node.bench;
        bench.keys("other", &[]);
        let set = |dir: &'static str| {
            let file = move |name: &str| format!("{dir}/{name}.auth");
            ["PK", "KEK", "db"].map(|name| (bench.path(&file(name)), PathBuf::from(file(name))))
        };
        let installer = (World::get().installer.clone(), PathBuf::from("bin/installer"));
        bench.payload_with("payload", INIT, &[&set("keys")[..], &set("other"), &[installer]].concat());
        let signer = bench.signer("keys");
        bench.uki("payload", "unsigned.efi", &[]);
        let source = format!("--source=dir:{}", bench.path("payload").display());
        let disk = format!("--disk={}", node.image.path().display());
        let signer = signer.each_ref().map(String::as_str);
        bench.installer(&[&["install", &disk, &source, "--extra-kernel-arg=panic=-1"], &signer[..]].concat());
        node
    }

    /// With the variables of this name, which it keeps.
    fn machine(&self, variables: &str) -> Machine {
        let (fresh, kept) = (self.bench.path("variables"), self.bench.path(variables));
        if !kept.exists() {
            fs::copy(fresh, &kept).expect("the variables can be copied");
        }
        let drive = Drive::new(self.image.path()).boot_index(1);
        Machine::with_secure_boot(Firmware::Uefi, &kept).memory(1024).drive(&drive)
    }
}

/// The keys of another owner would leave nothing to start. The exit code says whether that is all.
fn refuses_others(console: &mut Console, code: u8) {
    console.wait_for("SLIPWAY-FIRMWARE setup=01 secure=00");
    console.wait_for("EFI/BOOT/BOOTX64.EFI on the ESP: no certificate in db is behind its signature");
    console.wait_for("uki.efi in slot A: no certificate in db is behind its signature");
    console.wait_for(&format!("SLIPWAY-EXIT {code}"));
}

/// First start: in setup mode a signed disk starts. `installer enroll` refuses keys that have not signed it, shows its
/// plan for those that have, and writes these; setup mode is left at once. Second: Secure Boot is on. Other keys are
/// refused, and for the enrolled ones there is nothing to do. Third: a program that is not signed is refused.
#[test]
#[ignore = "campaign"]
fn a_machine_in_setup_mode_gets_keys_and_secure_boot() {
    let node = Node::new();
    let mut console = node.machine("plain").start();
    refuses_others(&mut console, 7);
    console.wait_for("SLIPWAY-SAYS    3. write      PK: 1 certificate");
    console.wait_for("SLIPWAY-SAYS dry run: nothing was written");
    console.wait_for("SLIPWAY-EXIT 0");
    console.wait_for("SLIPWAY-SAYS enrolled  db, KEK, PK, and read back");
    console.wait_for("SLIPWAY-EXIT 0");
    console.wait_for("SLIPWAY-NOW setup=00 secure=00");
    console.expect_power_off();

    let mut console = node.machine("plain").start();
    console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
    console.wait_for("SLIPWAY-SAYS error: the keys of Secure Boot: refused, nothing was written:");
    console.wait_for("the firmware is not in setup mode: ");
    console.wait_for("SLIPWAY-EXIT 4");
    console.wait_for("SLIPWAY-SAYS nothing to do: the firmware has these keys, and Secure Boot is on");
    console.wait_for("SLIPWAY-NOW setup=00 secure=01");
    console.expect_power_off();

    fs::copy(node.bench.path("plain"), node.bench.path("variables")).expect("the variables can be copied");
    node.bench.refuses("unsigned.efi");
}

/// The machine has a network card whose option ROM brings an unsigned driver, which Secure Boot would not start. First
/// start: `installer enroll` cannot judge it and refuses to write, also in a dry run; with `--mode=force` it writes the
/// keys. Second: Secure Boot is on.
#[test]
#[ignore = "campaign"]
fn an_option_rom_that_would_not_start_stands_in_the_way() {
    let node = Node::new();
    let mut console = node.machine("card").network_card().start();
    refuses_others(&mut console, 4);
    // The dry run, and the run.
    for _ in 0..2 {
        console.wait_for("(1af4:1000): it cannot be judged");
        console.wait_for("SLIPWAY-EXIT 4");
    }
    console.wait_for("SLIPWAY-SAYS enrolled  db, KEK, PK, and read back");
    console.wait_for("SLIPWAY-NOW setup=00 secure=00");
    console.expect_power_off();
    let mut console = node.machine("card").network_card().start();
    console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
}
