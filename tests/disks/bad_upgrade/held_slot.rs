//! A slot or the ESP held in ways that the kernel's claim does not tell.

use std::{
    fs::OpenOptions,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
};

use nix::libc;
use slipway::device::{Access, BlockIo as _, Disk};
use slipway_core::units::{Extent, MIB};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, Loop, Mount, Node, Outcome, PATIENCE, Range, World, installer_in, json_of, on_disk, partition,
        write_at,
    },
};

/// A node on a loop device, with the file behind it.
struct Rig<'w> {
    node: Node<'w>,
    disk: Loop,
    image: PathBuf,
    cmdline: String,
}

impl<'w> Rig<'w> {
    fn new(world: &'w World) -> Self {
        let mut node = Node::installed(world);
        node.run('A', false, &["wipe", "EPHEMERAL", "--format-data", "--progress=none"]).succeeds();
        let cmdline = node.cmdline('A', false);
        let image = node.disk.clone();
        let disk = Loop::attach(&image, &[]);
        node.disk.clone_from(&disk.node);
        Rig { node, disk, image, cmdline }
    }

    fn run(&self, args: &[&str]) -> Outcome {
        self.node.run_under(&self.cmdline, args)
    }

    fn stage(&self) -> Outcome {
        self.run(&["stage", "--progress=none", "--source", &self.node.next.source()])
    }

    #[track_caller]
    fn refuses(&self, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
        let before = Content::of(&self.image);
        attempt().exits(INSTALL).says(texts);
        assert!(Content::of(&self.image) == before, "it was written to");
    }

    /// One copy of boot.env is damaged.
    fn lose_a_copy(&self) {
        write_at(&self.disk.node, self.node.boot_envs()[0], &[0; 512]);
        on_disk(&self.disk.node, &["status"]).exits(INSTALL);
    }

    fn part(&self, name: &str) -> Range {
        partition(&self.disk.node, name)
    }
}

fn part_of(disk: &Loop, range: Range) -> Loop {
    Loop::attach(&disk.node, &["--offset", &range.offset.to_string(), "--sizelimit", &range.len.to_string()])
}

/// What is written counts, to the byte: a neighbour's loop device is no matter.
#[test]
fn a_slot_in_an_offset_loop_device() {
    let world = World::new();
    let rig = Rig::new(&world);
    let (slot, ephemeral) = (rig.part("BOOT-B"), rig.part("EPHEMERAL"));
    for range in [slot, Range { offset: slot.offset - MIB, len: MIB + 512 }, Range { offset: 0, len: 2 << 30 }] {
        let held = part_of(&rig.disk, range);
        let texts = ["in use", "attached to", held.node.to_str().unwrap()];
        rig.refuses(&texts, || rig.stage());
    }
    let held = part_of(&rig.disk, ephemeral);
    let mount = Mount::new(&held.node, world.path("var"));
    rig.stage().succeeds();
    drop(mount);
    // The ESP is what `activate` writes.
    let esp = part_of(&rig.disk, rig.part("EFI"));
    let texts = ["in use", "attached to", esp.node.to_str().unwrap()];
    rig.refuses(&texts, || rig.run(&["activate", "--progress=none"]));
    drop(esp);
    rig.run(&["activate", "--progress=none"]).succeeds();
}

/// A live system has its own slot mounted, and upgrades the other. Slot B begins where slot A ends.
#[test]
fn a_slot_beside_the_one_that_is_mounted() {
    let world = World::new();
    let mut node = Node::upgraded(&world);
    let disk = Loop::attach(&node.disk, &[]);
    let mounted = part_of(&disk, partition(&disk.node, "BOOT-B"));
    node.disk.clone_from(&disk.node);
    let source = node.next.source();
    // Another command line makes it another system.
    let stage = ["stage", "--progress=none", "--source", &source, "--extra-kernel-arg=other"];
    node.run('B', false, &stage).succeeds();
    drop(mounted);
}

/// A partition of another table, larger than the slot, with a mount.
#[test]
fn a_slot_in_a_larger_partition() {
    let world = World::new();
    let rig = Rig::new(&world);
    let (slot, ephemeral) = (rig.part("BOOT-B"), rig.part("EPHEMERAL"));
    let odd = Range { offset: slot.offset, len: ephemeral.offset - slot.offset };
    let part = rig.disk.partition(9, odd);
    std::process::Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&part.node).status().unwrap();
    let mount = Mount::new(&part.node, world.path("odd"));
    let texts = ["in use", part.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
    rig.stage().exits(INSTALL).says(&texts);
}

/// Its dirty pages would be written over the new system when the program closes it.
#[test]
fn a_slot_that_is_open_for_writing() {
    let world = World::new();
    let rig = Rig::new(&world);
    let (slot, esp) = (rig.disk.partition(4, rig.part("BOOT-B")), rig.disk.partition(1, rig.part("EFI")));
    let open = OpenOptions::new().read(true).write(true).open(&slot.node).unwrap();
    open.write_all_at(&[0x5a; 4096], MIB).unwrap();
    let who = format!("open for writing in process {}", std::process::id());
    rig.stage().exits(INSTALL).says(&["in use", slot.node.to_str().unwrap(), &who]);
    drop(open);
    // Readers do not matter, and the ways back do not ask.
    let reader = OpenOptions::new().read(true).open(&slot.node).unwrap();
    rig.stage().succeeds();
    drop(reader);
    let open = OpenOptions::new().read(true).write(true).open(&esp.node).unwrap();
    rig.run(&["activate", "--progress=none"]).exits(INSTALL).says(&[&who]);
    drop(open);
    rig.run(&["activate", "--progress=none"]).succeeds();
    let open = OpenOptions::new().read(true).write(true).open(&esp.node).unwrap();
    rig.run(&["rollback", "--progress=none"]).succeeds();
    rig.lose_a_copy();
    rig.run(&["repair", "--progress=none"]).succeeds();
    drop(open);
    on_disk(&rig.disk.node, &["status"]).succeeds();
    assert_eq!(json_of(&rig.disk.node, &["status"])["next_boot"]["slot"], "A");
}

/// What a system in use has mounted blocks neither `confirm` nor `rollback`.
#[test]
fn the_ways_back_beside_all_other_mounts() {
    let world = World::new();
    let mut node = Node::upgraded(&world);
    node.run('B', false, &["wipe", "STATE", "--format-data", "--progress=none"]).succeeds();
    let cmdline = node.cmdline('B', false);
    let disk = Loop::attach(&node.disk.clone(), &[]);
    node.disk.clone_from(&disk.node);
    let at = |name| partition(&disk.node, name);
    let (p3, p4, p6) =
        (disk.partition(3, at("BOOT-A")), disk.partition(4, at("BOOT-B")), disk.partition(6, at("STATE")));
    let mount = Mount::new(&p6.node, world.path("state"));
    let held = [&p3, &p4].map(|part| Loop::attach(&part.node, &["--read-only"]));
    node.run_under(&cmdline, &["rollback", "--progress=none"]).succeeds();
    assert_eq!(json_of(&disk.node, &["status"])["boot_env"]["default"], "A");
    drop((held, mount));
}

/// Without sysfs nothing new is written; the ways back are one sector each, and work.
#[test]
fn a_root_without_sysfs() {
    let world = World::new();
    let rig = Rig::new(&world);
    let cmdline = world.path("cmdline-without-sysfs");
    std::fs::write(&cmdline, &rig.cmdline).unwrap();
    let script = format!("mount --bind {} /proc/cmdline && mount -t tmpfs none /sys && exec \"$@\"", cmdline.display());
    let run = |args: &[&str]| Outcome::of(installer_in(&script, args).arg("--disk").arg(&rig.disk.node));
    let source = rig.node.next.source();
    let texts = ["/sys is not mounted", "mount -t sysfs sysfs /sys"];
    rig.refuses(&texts, || run(&["upgrade", "--progress=none", "--source", &source]));
    rig.refuses(&texts, || run(&["wipe", "EPHEMERAL", "--progress=none"]));
    rig.run(&["upgrade", "--progress=none", "--source", &source]).succeeds();
    run(&["rollback", "--progress=none"]).succeeds();
    run(&["confirm", "--progress=none"]).succeeds();
    rig.lose_a_copy();
    run(&["repair", "--progress=none"]).succeeds();
    on_disk(&rig.disk.node, &["status"]).succeeds();
}

/// Claimed once more, when more is known, is no conflict with oneself.
#[test]
fn a_claim_is_repeated() {
    let world = World::new();
    let rig = Rig::new(&world);
    let slot = rig.part("BOOT-B");
    let part = rig.disk.partition(4, slot);
    let extent = Extent { offset: slot.offset + MIB, len: 512 };
    let disk = Disk::open(&rig.disk.node, Access::Write, None, PATIENCE).unwrap();
    disk.claim(&[extent]).unwrap();
    disk.claim(&[extent]).unwrap();
    let mount = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&part.node);
    assert!(mount().is_err(), "another could claim it");
    drop(disk);
    // A program that another test starts holds what this process has open, until its exec.
    while mount().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY)) {
        std::thread::yield_now();
    }
    mount().unwrap();
}
