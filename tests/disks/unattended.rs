//! Unattended installations on image files: the finished program with a kernel command line of its own and no disks but
//! those that are named. What it refuses it does not touch. (Boots: `vm-tests/unattended.rs`.)

use std::{
    fs,
    path::{Path, PathBuf},
};

use assert_cmd::Command;
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{
        self, Content, Loop, Node, Outcome, Payload, SLOT, World, flip, installer_in, json_of, partition, read_at,
        tool, write_at,
    },
};

pub const MEDIUM: &str = "slipway.medium=00000000000000a1";
pub const OTHER_MEDIUM: &str = "slipway.medium=00000000000000b2";

/// A live system: its kernel command line, and a machine without disks, or with loop devices for disks.
pub struct Live<'w> {
    pub world: &'w World,
    pub payload: &'w Payload,
    pub disks: Vec<PathBuf>,
    /// What else there is in /sys/block: a shell script that runs in it.
    pub sys: &'w str,
}

impl<'w> Live<'w> {
    pub fn new(world: &'w World) -> Self {
        Live { world, payload: &world.payload, disks: vec![], sys: "true" }
    }

    /// The same that brings another payload.
    pub fn with(world: &'w World, payload: &'w Payload) -> Self {
        Live { payload, ..Live::new(world) }
    }

    pub fn run(&self, cmdline: &str, config: &str, args: &[&str]) -> Outcome {
        Outcome::of(self.command(cmdline, args).write_stdin(config.to_owned()))
    }

    /// The same, not run yet.
    pub fn command(&self, cmdline: &str, args: &[&str]) -> Command {
        let file = self.world.path("live-cmdline");
        fs::write(&file, format!("quiet {cmdline}\n")).unwrap();
        let mut script = format!("mount --bind {} /proc/cmdline && mount -t tmpfs none /sys/block", file.display());
        // This machine's own may have Secure Boot.
        script += " && mount -t tmpfs none /sys/firmware";
        for disk in &self.disks {
            let (node, name) = (disk.display(), disk.file_name().unwrap().display());
            script += &format!(" && mkdir /sys/block/{name} && blockdev --getsz {node} >/sys/block/{name}/size");
        }
        script += &format!(" && (cd /sys/block && {}) && exec \"$@\"", self.sys);
        let source = format!("--source={}", self.payload.source());
        let all = [&["unattended", "--progress=plain", "--output=json", &source, SLOT, "--format-data=false"], args];
        installer_in(&script, all.concat())
    }

    /// Instructions for a disk by its path.
    pub fn onto(&self, disk: &Path, words: &str) -> Outcome {
        self.run(&format!("slipway.install={} {words}", disk.display()), "", &[])
    }
}

/// Nothing is written, and these words say why.
#[track_caller]
pub fn untouched(disks: &[&Path], attempt: impl FnOnce() -> Outcome) -> Outcome {
    let before: Vec<_> = disks.iter().map(|disk| Content::of(disk)).collect();
    let outcome = attempt();
    for (disk, before) in disks.iter().zip(before) {
        assert!(Content::of(disk) == before, "{} was written to: {}", disk.display(), outcome.stderr);
    }
    outcome
}

/// Its action, and the next one: `nothing`, `installed`, `upgraded`, and `then`.
#[track_caller]
pub fn came_to(outcome: &Outcome, what: &str, then: &str) {
    let report = outcome.json();
    let keys: Vec<_> = report["outcome"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        (report["report"].as_str(), keys, report["then"].as_str()),
        (Some("unattended"), vec![what], Some(then))
    );
}

pub fn medium_of(disk: &Path) -> Value {
    json_of(disk, &["status"])["boot_env"]["medium"].clone()
}

// ---------------------------------------------------------------------------------------------------
// What is asked for.

#[test]
fn nobody_asks() {
    let world = World::new();
    let live = Live::new(&world);
    for (cmdline, config) in [("", ""), (MEDIUM, "machine: {type: worker}\n"), ("slipway.install.preserve=true", "")] {
        let outcome = live.run(cmdline, config, &[]).succeeds();
        came_to(&outcome, "nothing", "stay");
        assert_eq!(outcome.json()["asked_by"], Value::Null);
    }
}

#[test]
fn wrong_words_and_configs() {
    let world = World::new();
    let (live, disk) = (Live::new(&world), world.image());
    for (words, text) in [
        ("slipway.install.preserve=maybe", "slipway.install.preserve: \"maybe\" is neither true nor false"),
        ("slipway.install.then=halt", "\"halt\" is not reboot, poweroff or stay"),
        ("slipway.install.perserve=true", "slipway.install.perserve: there is no such word"),
        ("slipway.install=/dev/null", "drop one"),
        ("slipway.medium=A1", "16 lower-case hex digits"),
    ] {
        untouched(&[&disk], || live.onto(&disk, words)).exits(INPUT).says(&["kernel command line", text]);
    }
    let install = format!("machine: {{install: {{disk: {}, ", disk.display());
    for (words, config, text) in [
        ("slipway.install=config", String::new(), "no disk is named"),
        (
            "",
            "machine: {install: {}}\n".to_owned(),
            "the machine config asks for an installation, but no disk is named",
        ),
        ("slipway.install.preserve=true", format!("{install}wipe: true}}}}\n"), "drop one"),
        ("", format!("{install}wpie: true}}}}\n"), "\"wpie\" is not a known key"),
        ("slipway.install=serial:x,colour:red", String::new(), "\"colour\" is not a key of a disk selector"),
    ] {
        untouched(&[&disk], || live.run(words, &config, &[])).exits(INPUT).says(&[text]);
    }
}

#[test]
fn an_empty_disk_is_installed_and_knows_the_medium() {
    let world = World::new();
    let mut node = Node::installed(&world);
    node.disk = world.sparse("empty.img", world::IMAGE_BYTES);
    let (live, disk) = (Live::new(&world), &node.disk);
    let dry = untouched(&[disk], || live.run(&format!("slipway.install={}", disk.display()), "", &["--dry-run"]));
    came_to(&dry.succeeds(), "installed", "stay");
    let outcome = live.onto(disk, MEDIUM).succeeds();
    came_to(&outcome, "installed", "reboot");
    assert_eq!(outcome.json()["disk"], json!(disk));
    assert_eq!(medium_of(disk), "00000000000000a1");
    // In both copies, for a reader of only one.
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        assert!(sector.contains("\nmedium=00000000000000a1\n"), "{sector}");
    }
}

/// The config may name the disk and say what comes next; the kernel command line goes before it.
#[test]
fn the_config_asks() {
    let world = World::new();
    let live = Live::new(&world);
    let disk = world.image();
    let config = format!("machine: {{install: {{disk: {}, legacyBIOSSupport: true}}}}\n", disk.display());
    let outcome = live.run("slipway.install.then=poweroff", &config, &[]).succeeds();
    came_to(&outcome, "installed", "poweroff");
    assert_eq!(outcome.json()["asked_by"], "the machine config");
    assert_eq!(medium_of(&disk), Value::Null, "a live system without a name");
    assert_eq!(read_at(&disk, 446, 1), [0x80], "what the config says of an installation counts as ever");

    let other = world.sparse("other.img", world::IMAGE_BYTES);
    let before = Content::of(&disk);
    let words = format!("slipway.install={} slipway.install.then=stay", other.display());
    came_to(&live.run(&words, &config, &[]).succeeds(), "installed", "stay");
    assert!(Content::of(&disk) == before);
}

// ---------------------------------------------------------------------------------------------------
// Disks that hold something.

#[test]
fn a_medium_installs_once() {
    let world = World::new();
    let (live, disk) = (Live::new(&world), world.image());
    live.onto(&disk, MEDIUM).succeeds();
    for words in ["", "slipway.install.preserve=false", "slipway.install.preserve=true"] {
        let outcome = untouched(&[&disk], || live.onto(&disk, &format!("{MEDIUM} {words}"))).succeeds();
        came_to(&outcome, "nothing", "stay");
    }
    let config = format!("machine: {{install: {{disk: {}, wipe: true}}}}\n", disk.display());
    came_to(&untouched(&[&disk], || live.run(MEDIUM, &config, &[])).succeeds(), "nothing", "stay");
}

#[test]
fn an_installation_is_left_alone_unless_something_else_is_said() {
    let world = World::new();
    let (live, node) = (Live::new(&world), Node::installed(&world));
    let texts = ["slot A, 1.2.3, boots next", "slipway.install.preserve=true", "slipway.install.preserve=false"];
    for medium in [MEDIUM, ""] {
        untouched(&[&node.disk], || live.onto(&node.disk, medium)).exits(INSTALL).says(&texts);
    }
    let guid = node.guid();
    came_to(
        &live.onto(&node.disk, &format!("{MEDIUM} slipway.install.preserve=false")).succeeds(),
        "installed",
        "reboot",
    );
    assert_ne!(node.guid(), guid);
    assert_eq!(medium_of(&node.disk), "00000000000000a1");
    // Another medium begins again.
    let config = format!("machine: {{install: {{disk: {}, wipe: true}}}}\n", node.disk.display());
    came_to(&live.run(OTHER_MEDIUM, &config, &[]).succeeds(), "installed", "reboot");
    assert_eq!(medium_of(&node.disk), "00000000000000b2");
}

/// It may be what this very medium has made, and run in for a year.
#[test]
fn an_installation_without_a_boot_state_is_not_overwritten() {
    let world = World::new();
    let (live, node) = (Live::new(&world), Node::installed(&world));
    live.onto(&node.disk, &format!("{MEDIUM} slipway.install.preserve=false")).succeeds();
    node.boot_envs().into_iter().for_each(|at| write_at(&node.disk, at, &[0; 512]));
    let again = || live.onto(&node.disk, &format!("{MEDIUM} slipway.install.preserve=false"));
    untouched(&[&node.disk], again).exits(INSTALL).says(&["boot state was lost", "installer install --force"]);
    let kept = || live.onto(&node.disk, &format!("{MEDIUM} slipway.install.preserve=true"));
    untouched(&[&node.disk], kept).exits(INSTALL).says(&["is not settled", "both copies of boot.env are lost"]);

    // Nor once the system has started from what its slots say, and has written a new one.
    node.run('A', false, &["confirm"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["boot_env"]["rebuilt"], true);
    untouched(&[&node.disk], again).exits(INSTALL).says(&["boot state was lost"]);
}

/// The disk could not tell the next start of the live system that the work is done.
#[test]
fn nothing_is_installed_over_without_a_name_for_the_medium() {
    let world = World::new();
    let (live, node) = (Live::new(&world), Node::installed(&world));
    let attempt = || live.onto(&node.disk, "slipway.install.preserve=false");
    untouched(&[&node.disk], attempt).exits(INSTALL).says(&["slipway.medium= is not on the kernel command line"]);
}

#[test]
fn disks_of_others() {
    let world = World::new();
    let live = Live::new(&world);
    let foreign = world.sparse("foreign.img", world::IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:data", &foreign);
    let talos = world.sparse("talos.img", world::IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:EFI", "--new=2:0:+1M", "--change-name=2:META", &talos);
    let xfs = world.sparse("xfs.img", world::IMAGE_BYTES);
    tool!("mkfs.xfs", "-q", &xfs);
    for (disk, text) in [
        (&foreign, "not empty: it holds a GPT with 1 partition: data"),
        (&talos, "an installation of Talos"),
        (&xfs, "not empty: it holds an XFS file system"),
    ] {
        for words in ["", "slipway.install.preserve=true"] {
            let attempt = || live.onto(disk, &format!("{MEDIUM} {words}"));
            untouched(&[disk], attempt).exits(INSTALL).says(&[text, "slipway.install.preserve=false"]);
        }
        came_to(
            &live.onto(disk, &format!("{MEDIUM} slipway.install.preserve=false")).succeeds(),
            "installed",
            "reboot",
        );
    }
}

#[test]
fn what_is_no_disk_to_install_onto() {
    let world = World::new();
    let live = Live::new(&world);
    let iso = world.image();
    write_at(&iso, 32769, b"CD001");
    for words in ["", "slipway.install.preserve=false", "slipway.install.preserve=true"] {
        untouched(&[&iso], || live.onto(&iso, words)).exits(INSTALL).says(&["ISO 9660", "as a live medium does"]);
    }
    live.onto(&world.path("nosuch"), "").exits(INSTALL).says(&["nosuch", "there is no such file"]);
    let small = world.sparse("small.img", 100 << 20);
    untouched(&[&small], || live.onto(&small, "")).exits(INSTALL).says(&["small.img", "too small"]);
}

// ---------------------------------------------------------------------------------------------------
// An installation that is kept.

#[test]
fn an_upgrade_keeps_what_boots_and_all_data() {
    let world = World::new();
    let node = Node::installed(&world);
    for name in ["STATE", "EPHEMERAL"] {
        write_at(&node.disk, partition(&node.disk, name).offset + (1 << 20), b"somebody's data");
    }
    let kept = ["BOOT-A", "STATE", "EPHEMERAL", "BIOS"].map(|name| {
        let at = partition(&node.disk, name);
        (at, read_at(&node.disk, at.offset, at.len as usize))
    });
    let live = Live::with(&world, &node.next);
    let words = format!("{MEDIUM} slipway.install.preserve=true");
    came_to(&live.onto(&node.disk, &words).succeeds(), "upgraded", "reboot");
    for (at, bytes) in &kept {
        assert!(read_at(&node.disk, at.offset, at.len as usize) == *bytes, "{at:?}");
    }
    let status = json_of(&node.disk, &["status"]);
    assert_eq!(status["next_boot"]["slot"], "B");
    assert_eq!(status["next_boot"]["trial"], true);
    assert_eq!(status["boot_env"]["medium"], "00000000000000a1");
    assert_eq!(status["meta"]["0x06"], "A", "the label to return to");
    // Its trial is pending; was tried and not confirmed; is confirmed: the medium has done its work.
    let done = || came_to(&untouched(&[&node.disk], || live.onto(&node.disk, &words)).succeeds(), "nothing", "stay");
    done();
    node.grub_tries();
    done();
    node.run('B', true, &["confirm"]).succeeds();
    done();
    // A medium that comes later with what is there already is known from then on, too: else it would come up for ever.
    let words = format!("{OTHER_MEDIUM} slipway.install.preserve=true");
    came_to(&live.onto(&node.disk, &words).succeeds(), "upgraded", "reboot");
    assert_eq!(medium_of(&node.disk), "00000000000000b2");
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
}

/// A user upgrades it from inside, and the medium is started once more: it does not go back to what it brings, and does
/// not take a trial that is pending for its own.
#[test]
fn a_medium_does_not_undo_a_later_upgrade() {
    let world = World::new();
    let node = Node::installed(&world);
    let words = format!("{MEDIUM} slipway.install.preserve=true");
    came_to(&Live::new(&world).onto(&node.disk, &words).succeeds(), "upgraded", "reboot");
    let again = || {
        let outcome = untouched(&[&node.disk], || Live::new(&world).onto(&node.disk, &words)).succeeds();
        came_to(&outcome, "nothing", "stay");
    };
    node.upgrade().succeeds();
    again();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    again();
}

/// A trial that came back is over: the next medium may bring something better.
#[test]
fn a_trial_that_came_back_may_be_replaced() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let better = Payload::new(&world.path("better"));
    flip(&better.path(Payload::KERNEL), 20_000);
    better.write("os-release", "VERSION_ID=1.4.0\n");
    let live = Live::with(&world, &better);
    let outcome = live.onto(&node.disk, &format!("{MEDIUM} slipway.install.preserve=true")).succeeds();
    came_to(&outcome, "upgraded", "reboot");
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["slots"]["B"]["version"], &status["slots"]["A"]["state"]), (&json!("1.4.0"), &json!("good")));
}

#[test]
fn an_installation_that_is_not_at_rest() {
    let world = World::new();
    let preserve = format!("{MEDIUM} slipway.install.preserve=true");
    let refused = |node: &Node, texts: &[&str]| {
        let live = Live::with(&world, &world.payload);
        untouched(&[&node.disk], || live.onto(&node.disk, &preserve)).exits(INSTALL).says(texts);
    };
    let pending = Node::installed(&world);
    pending.upgrade().succeeds();
    refused(&pending, &["is not settled", "slot B is to be tried at the next boot", "boot the disk"]);

    let world = World::new();
    let damaged = Node::upgraded(&world);
    // The squashfs, which GRUB does not look at; then the kernel, and GRUB would boot the other slot.
    for name in [Payload::ROOTFS, Payload::KERNEL] {
        flip(&damaged.disk, damaged.file("B", name) + 5_000);
        let live = Live::new(&world);
        let attempt = || live.onto(&damaged.disk, &preserve);
        let outcome = untouched(&[&damaged.disk], attempt).exits(INSTALL);
        outcome.says(&["is not settled", "its default, slot B, is damaged on the disk"]);
    }

    let world = World::new();
    let node = Node::upgraded(&world);
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        write_at(&node.disk, at, &(sector.replace("\nb=good\n", "\nb=tried\n") + "####").as_bytes()[..512]);
    }
    let attempt = || Live::new(&world).onto(&node.disk, &preserve);
    untouched(&[&node.disk], attempt).exits(INSTALL).says(&["is not settled", "its default, slot B, is unconfirmed"]);
}

#[test]
fn versions_count_as_in_every_upgrade() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.write("os-release", "VERSION_ID=1.9.0\n");
    let live = Live::with(&world, &node.next);
    let words = format!("slipway.install={} slipway.install.preserve=true", node.disk.display());
    untouched(&[&node.disk], || live.run(&words, "", &[])).exits(4).says(&["1.9.0 must not follow 1.2.3"]);
    came_to(&live.run(&words, "", &["--allow-any-version"]).succeeds(), "upgraded", "reboot");
}

/// From inside the system that is installed there, `upgrade` is the verb.
#[test]
fn the_disk_that_runs_is_not_upgraded_from_outside() {
    let world = World::new();
    let node = Node::installed(&world);
    let words = format!("slipway.install.preserve=true {}", node.cmdline('A', false));
    let attempt = || Live::with(&world, &node.next).onto(&node.disk, &words);
    untouched(&[&node.disk], attempt).exits(INSTALL).says(&["is not settled", "its slot A is running"]);
}

// ---------------------------------------------------------------------------------------------------
// A machine with disks.

pub const ANY: &str = "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nreboot: false\nprovisioning:\n  \
    diskSelector: {match: disk.size > 1u}\n";

#[test]
fn a_selector_means_one_disk_and_never_a_medium() {
    let world = World::new();
    let files = ["one.img", "two.img", "stick.img"].map(|name| world.sparse(name, world::DISK_BYTES));
    write_at(&files[2], 32769, b"CD001");
    let loops = files.each_ref().map(|file| Loop::attach(file, &[]));
    let machine = |n: &[usize]| Live { disks: n.iter().map(|n| loops[*n].node.clone()).collect(), ..Live::new(&world) };
    let all = files.each_ref().map(|file| file.as_path());

    let none = untouched(&all, || machine(&[]).run(MEDIUM, ANY, &[])).exits(INPUT);
    none.says(&["no disk matches what the machine config selects"]);
    let only_the_medium = untouched(&all, || machine(&[2]).run(MEDIUM, ANY, &[])).exits(INPUT);
    only_the_medium.says(&["no disk matches what the machine config selects", "begins with an ISO 9660 image"]);
    let two = untouched(&all, || machine(&[0, 1, 2]).run(MEDIUM, ANY, &[])).exits(INPUT);
    two.says(&["more than one disk", &loops[0].node.display().to_string(), &loops[1].node.display().to_string()]);
    let by_word = untouched(&all, || machine(&[0, 1]).run("slipway.install=size:>1GB", "", &[])).exits(INPUT);
    by_word.says(&["no disk matches what slipway.install on the kernel command line selects", "transport"]);

    let outcome = machine(&[0, 2]).run(MEDIUM, ANY, &[]).succeeds();
    came_to(&outcome, "installed", "stay");
    assert_eq!(outcome.json()["disk"], json!(loops[0].node));
}

#[test]
fn other_disks_that_hold_an_installation() {
    let world = World::new();
    let files = ["one.img", "two.img"].map(|name| world.sparse(name, world::DISK_BYTES));
    let loops = files.each_ref().map(|file| Loop::attach(file, &[]));
    let live = Live { disks: loops.iter().map(|l| l.node.clone()).collect(), ..Live::new(&world) };
    live.onto(&loops[0].node, MEDIUM).succeeds();

    // A name that has moved: this medium has done its work, on the other disk.
    let all = files.each_ref().map(|file| file.as_path());
    let moved = || live.onto(&loops[1].node, &format!("{MEDIUM} slipway.install.preserve=false"));
    let outcome = untouched(&all, moved).succeeds();
    came_to(&outcome, "nothing", "stay");
    let why = outcome.json()["outcome"]["nothing"].as_str().unwrap().to_owned();
    assert!(why.contains(&loops[0].node.display().to_string()), "{why}");

    // As Talos has it.
    let halt = || live.onto(&loops[1].node, &format!("{OTHER_MEDIUM} talos.halt_if_installed=1"));
    let texts = ["talos.halt_if_installed=1", &loops[0].node.display().to_string()];
    untouched(&all, halt).exits(INSTALL).says(&texts);
    came_to(&live.onto(&loops[1].node, OTHER_MEDIUM).succeeds(), "installed", "reboot");
}
