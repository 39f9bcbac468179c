//! Installer and GRUB together, taking turns on one disk: every boot is decided by GRUB's own code and grub.cfg
//! (`grub-emu`), and the installer finds the very kernel command line that GRUB made.

use serde_json::{Value, json};
use slipway_core::boot::slot::Slot;
use slipway_test_support::{
    exit_code::INSTALL,
    grub_emu::{self, Booted, GrubEmu},
    world::{Node, Outcome, Payload, World, flip, on_disk, write_at},
};

/// A machine: a disk, and what runs on it.
struct Machine<'w> {
    node: Node<'w>,
    grub: GrubEmu,
    cmdline: String,
    payloads: u8,
}

impl<'w> Machine<'w> {
    fn installed(world: &'w World) -> Self {
        let node = Node::installed(world);
        let grub = GrubEmu::on(&node.disk);
        let mut machine = Machine { node, grub, cmdline: String::new(), payloads: 0 };
        machine.boots(Slot::A, false);
        machine
    }

    /// Power on, whatever happened before.
    #[track_caller]
    fn boots(&mut self, slot: Slot, trial: bool) {
        let foreseen = self.status()["next_boot"].clone();
        assert_eq!((&foreseen["slot"], &foreseen["trial"]), (&json!(slot.to_string()), &json!(trial)), "{foreseen}");
        let (booted, log) = self.grub.boot();
        assert_eq!(booted, Booted { slot: Some(slot), trial }, "{log}");
        self.cmdline = grub_emu::cmdline(&log);
    }

    /// Run a verb inside the system that was booted.
    fn run(&self, args: &[&str]) -> Outcome {
        self.node.run_under(&self.cmdline, &[args, &["--progress=none"]].concat())
    }

    /// Another payload.
    fn news(&mut self) {
        self.payloads += 1;
        let kernel = self.node.next.read(Payload::KERNEL);
        self.node.next.write(Payload::KERNEL, [kernel.as_slice(), &[self.payloads]].concat());
    }

    fn upgrade(&self) -> Outcome {
        self.run(&["upgrade", "--source", &self.node.next.source()])
    }

    fn status(&self) -> Value {
        let outcome = self.run(&["status", "--output=json"]);
        let report = outcome.json();
        outcome.exits(if report["problems"] == json!([]) { 0 } else { INSTALL });
        report
    }

    /// Byte offset on the disk within the data of a slot's file.
    fn inside(&self, slot: &str, name: &str) -> u64 {
        self.node.file(slot, name) + 1000
    }
}

#[test]
fn there_and_back_again() {
    let world = World::new();
    let mut machine = Machine::installed(&world);
    assert!(machine.cmdline.ends_with("slipway.try=0"), "{}", machine.cmdline);
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
    assert!(machine.cmdline.contains("panic=10 "), "{}", machine.cmdline);
    machine.upgrade().exits(INSTALL).says(&["slot B, which runs, is an unconfirmed trial"]);
    machine.run(&["confirm"]).succeeds();
    machine.boots(Slot::B, false);
    // From B to A, and on to B again.
    for (slot, other) in [(Slot::A, Slot::B), (Slot::B, Slot::A)] {
        machine.news();
        machine.upgrade().succeeds();
        machine.boots(slot, true);
        machine.run(&["confirm"]).succeeds();
        let rollback = machine.status()["rollback"].to_string();
        assert!(rollback.contains(&format!("slot {other}, 1.3.0, is the default and boots next")), "{rollback}");
    }
    machine.run(&["rollback"]).succeeds();
    machine.boots(Slot::A, false);
    on_disk(&machine.node.disk, &["verify", "--progress=none"]).succeeds();
    assert_eq!(machine.status()["problems"], json!([]));
}

/// A trial that panics or hangs, however it ends, ends in a boot of the default.
#[test]
fn a_trial_that_fails_is_not_tried_again() {
    let world = World::new();
    let mut machine = Machine::installed(&world);
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
    machine.boots(Slot::A, false);
    machine.boots(Slot::A, false);
    assert!(machine.status()["last_trial"].as_str().unwrap().contains("was tried and never confirmed"));
    machine.upgrade().exits(INSTALL).says(&["failed its trial", "--retry-bad"]);
    machine.run(&["upgrade", "--retry-bad", "--source", &machine.node.next.source()]).succeeds();
    machine.boots(Slot::B, true);
    // The second time it is given up from inside.
    machine.run(&["rollback"]).succeeds();
    machine.boots(Slot::A, false);
    assert_eq!(machine.status()["slots"]["B"]["state"], "bad");
}

/// GRUB sees that the kernel is not what was written, and does not start it: neither once nor later.
#[test]
fn a_slot_that_rots_before_its_trial() {
    let world = World::new();
    let mut machine = Machine::installed(&world);
    machine.upgrade().succeeds();
    flip(&machine.node.disk, machine.inside("B", Payload::INITRAMFS));
    machine.boots(Slot::A, false);
    let status = machine.status();
    assert_eq!(status["slots"]["B"]["state"], "tried");
    assert_eq!(status["boot_env"]["refused"], serde_json::json!({"slot": "B", "fault": "digest"}));
    // What lay badly on the medium is no fault of the payload: it was never started.
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
}

/// GRUB falls back to the other good slot, and an upgrade from there makes two of it again.
#[test]
fn a_default_that_rots() {
    let world = World::new();
    let mut machine = Machine::installed(&world);
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
    machine.run(&["confirm"]).succeeds();
    flip(&machine.node.disk, machine.inside("B", Payload::KERNEL));
    machine.boots(Slot::A, false);
    machine.news();
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
    machine.run(&["confirm"]).succeeds();
    machine.boots(Slot::B, false);
    on_disk(&machine.node.disk, &["verify", "--progress=none"]).succeeds();
}

/// The markers lead GRUB, and the next change of the boot state rebuilds it.
#[test]
fn both_copies_of_boot_env_are_lost() {
    let world = World::new();
    let mut machine = Machine::installed(&world);
    machine.upgrade().succeeds();
    machine.boots(Slot::B, true);
    machine.run(&["confirm"]).succeeds();
    let copies = machine.node.boot_envs();
    copies.iter().for_each(|at| write_at(&machine.node.disk, *at, &[0; 512]));
    machine.boots(Slot::B, false);
    machine.news();
    machine.upgrade().succeeds();
    machine.boots(Slot::A, true);
    machine.boots(Slot::B, false);
    assert_eq!(machine.node.boot_envs(), copies);
    assert_eq!(machine.status()["problems"], json!([]));
}
