//! A disk as the system sees it that was booted from it: the command line of the kernel says which slot that was.

use std::path::PathBuf;

use assert_cmd::Command;
use slipway_core::units::MIB;

use super::{Outcome, Payload, World, json_of, on_disk, partition, read_at, write_at};

/// An installed disk image and a second payload for it.
pub struct Node<'w> {
    world: &'w World,
    pub disk: PathBuf,
    /// Version 1.3.0, with other bytes.
    pub next: Payload,
}

impl<'w> Node<'w> {
    /// An image with version 1.2.3 in slot A.
    pub fn installed(world: &'w World) -> Self {
        Node::onto(world, world.image())
    }

    /// The same on a disk that is there already.
    pub fn onto(world: &'w World, disk: PathBuf) -> Self {
        world.install(&disk, &[]).succeeds();
        Node::of(world, disk)
    }

    /// A disk that is installed already.
    pub fn of(world: &'w World, disk: PathBuf) -> Self {
        let next = Payload::new(&world.path("next"));
        for name in Payload::FILES {
            let mut bytes = next.read(name);
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            next.write(name, bytes);
        }
        next.write("os-release", "ID=test\nVERSION_ID=1.3.0\n");
        Node { world, disk, next }
    }

    /// The same with version 1.3.0 in slot B, confirmed.
    pub fn upgraded(world: &'w World) -> Self {
        let node = Node::installed(world);
        node.upgrade().succeeds();
        node.grub_tries();
        node.run('B', true, &["confirm"]).succeeds();
        node
    }

    /// GUID of the disk.
    pub fn guid(&self) -> String {
        json_of(&self.disk, &["status"])["disk_guid"].as_str().unwrap().to_owned()
    }

    /// The words that the boot rule puts on the kernel command line.
    pub fn cmdline(&self, slot: char, trial: bool) -> String {
        let panic = if trial { "panic=10 " } else { "" };
        format!("{panic}quiet slipway.slot={slot} slipway.disk={} slipway.try={}", self.guid(), u8::from(trial))
    }

    /// Run a verb as the system would that was booted from a slot of this disk.
    pub fn run(&self, slot: char, trial: bool, args: &[&str]) -> Outcome {
        self.run_under(&self.cmdline(slot, trial), args)
    }

    /// The same with any kernel command line.
    pub fn run_under(&self, cmdline: &str, args: &[&str]) -> Outcome {
        Outcome::of(&mut self.command_under(cmdline, args))
    }

    /// The same, not run yet.
    pub fn command_under(&self, cmdline: &str, args: &[&str]) -> Command {
        let mut command = self.world.command_under(cmdline, "", args);
        command.arg("--disk").arg(&self.disk);
        command
    }

    /// `upgrade` to the second payload, from slot A.
    pub fn upgrade(&self) -> Outcome {
        self.upgrade_with(&[])
    }

    pub fn upgrade_with(&self, extra: &[&str]) -> Outcome {
        let source = format!("--source={}", self.next.source());
        self.run('A', false, &[&["upgrade", "--progress=none", source.as_str()], extra].concat())
    }

    /// The change that GRUB writes when it spends a try.
    pub fn grub_tries(&self) {
        for at in self.boot_envs() {
            let sector = String::from_utf8(read_at(&self.disk, at, 512)).unwrap();
            assert!(sector.contains("\nonce=B\n"), "no trial of slot B is armed: {sector}");
            let spent = sector.replace("\nonce=B\n", "\nonce=\n").replace("\nb=trial\n", "\nb=tried\n") + "#";
            write_at(&self.disk, at, spent.as_bytes());
        }
    }

    /// Byte offsets on the disk of both copies of boot.env: nothing else on the ESP begins with these words.
    pub fn boot_envs(&self) -> Vec<u64> {
        let esp = partition(&self.disk, "EFI").offset;
        let head = read_at(&self.disk, esp, 16 * MIB as usize);
        let sectors = (esp..).step_by(512).zip(head.chunks(512));
        let found = sectors.filter(|(_, sector)| sector.starts_with(b"# GRUB Environment Block\nseq="));
        found.map(|(at, _)| at).collect()
    }

    /// Byte offset on the disk of the data of a file of a slot.
    pub fn file(&self, slot: &str, name: &str) -> u64 {
        let report = on_disk(&self.disk, &["verify", "--output", "json", "--progress", "none"]).json();
        let files = report["slots"][slot]["files"].as_array().unwrap();
        files.iter().find(|f| f["name"] == name).unwrap()["offset"].as_u64().unwrap()
    }
}
