//! Configuration that goes back with its system: what a new system made of it is not what the old one finds.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::XattrFlags;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT, INSTALL},
    world::{
        IMAGE_BYTES, Node, Outcome, SmallFs, World, installer, json_of, on_disk, partition, read_at, refused, tool,
        write_at,
    },
};

const DECLARED: &str = "paths = [\"/etc/app\", \"/etc/app.conf\"]\nmeta = [\"0x0b\", \"0x0c\"]\n";
/// Of the head of a snapshot, at the end of a slot.
const HEAD: u64 = 4096;
/// cap_net_raw=ep (linux/capability.h).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A disk, and the `/etc` of the system that runs from it.
pub(super) struct Machine<'w> {
    world: &'w World,
    pub(super) node: Node<'w>,
    etc: PathBuf,
}

impl<'w> Machine<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        Machine::of(world, Node::installed(world))
    }

    fn of(world: &'w World, node: Node<'w>) -> Self {
        let etc = world.path("etc");
        fs::create_dir_all(etc.join("slipway")).unwrap();
        let machine = Machine { world, node, etc };
        machine.declare(DECLARED);
        machine
    }

    fn declare(&self, text: &str) {
        self.write("slipway/state.toml", text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.etc.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// A verb in the system that was booted from a slot.
    fn run(&self, slot: char, trial: bool, args: &[&str]) -> Outcome {
        self.run_after("", slot, trial, args)
    }

    fn run_after(&self, before: &str, slot: char, trial: bool, args: &[&str]) -> Outcome {
        let before = format!("&& mount --bind {} /etc {before}", self.etc.display());
        let mut command = self.world.command_under(self.node.cmdline(slot, trial), &before, args);
        Outcome::of(command.arg("--disk").arg(&self.node.disk))
    }

    /// The hook of a system, which runs before anything reads the configuration.
    fn starts(&self, slot: char, trial: bool) -> Outcome {
        self.run(slot, trial, &["snapshot", "restore", "--boot"])
    }

    pub(super) fn upgrade(&self) -> Outcome {
        self.upgrade_with(&[])
    }

    fn upgrade_with(&self, extra: &[&str]) -> Outcome {
        let source = format!("--source={}", self.node.next.source());
        self.run('A', false, &[&["upgrade", "--progress=none", &source], extra].concat())
    }

    fn tag(&self, value: &str) {
        on_disk(&self.node.disk, &["meta", "set", &format!("0x0b={value}")]).succeeds();
    }

    /// All that belongs to the system: of each path what it is, whose, and what is in it; and the tags.
    fn state(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for name in ["app", "app.conf"] {
            describe(&self.path(name), name, &mut found);
        }
        let tags = json_of(&self.node.disk, &["meta", "list"]);
        // Slipway's own comes and goes.
        for tag in tags["tags"].as_array().unwrap().iter().filter(|tag| tag["key"] != "0x06") {
            found.insert(tag["key"].to_string(), tag["value"].to_string());
        }
        found
    }

    fn label(&self, name: &str, key: &str, value: &[u8]) {
        rustix::fs::setxattr(self.path(name), key, value, XattrFlags::empty()).unwrap();
    }

    /// The configuration of the old system.
    fn configure(&self) {
        self.write("app/main.conf", "old\n");
        self.write("app/goes", "still here\n");
        self.write("app/deep/er/file", "deep\n");
        symlink("main.conf", self.path("app/link")).unwrap();
        self.write("app.conf", "one file\n");
        fs::set_permissions(self.path("app/main.conf"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(self.path("app/deep"), fs::Permissions::from_mode(0o1750)).unwrap();
        std::os::unix::fs::chown(self.path("app/goes"), Some(1234), Some(4321)).unwrap();
        self.label("app/main.conf", "trusted.label", b"old");
        self.label("app/goes", "security.capability", &CAPABILITY);
        self.tag("old");
    }

    /// What a new system makes of it.
    fn migrate(&self) {
        self.write("app/main.conf", "new and larger\n");
        self.write("app/comes", "new\n");
        fs::remove_file(self.path("app/goes")).unwrap();
        fs::remove_dir_all(self.path("app/deep")).unwrap();
        self.write("app/deep", "a file now\n");
        fs::remove_file(self.path("app/link")).unwrap();
        self.write("app/link/in", "a directory now\n");
        fs::remove_file(self.path("app.conf")).unwrap();
        self.label("app/main.conf", "trusted.label", b"new");
        self.tag("new");
        on_disk(&self.node.disk, &["meta", "set", "0x0c=new"]).succeeds();
    }

    /// Both snapshots, by what becomes of them.
    fn snapshots(&self) -> BTreeMap<String, String> {
        let report = json_of(&self.node.disk, &["snapshot", "list"]);
        let of = |found: &serde_json::Value| (text(&found["slot"]), text(&found["put_back"]));
        report["snapshots"].as_array().unwrap().iter().map(of).collect()
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn describe(path: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let attributes: Vec<_> = names
        .map(|name| {
            let (name, mut value) = (String::from_utf8_lossy(name), vec![0; 4096]);
            let len = rustix::fs::lgetxattr(path, &*name, &mut value[..]).unwrap();
            format!("{name}={:?}", &value[..len])
        })
        .collect();
    let attributes = attributes.join(" ");
    let what = match meta.file_type() {
        kind if kind.is_dir() => "directory".to_owned(),
        kind if kind.is_symlink() => format!("link to {}", fs::read_link(path).unwrap().display()),
        kind if kind.is_socket() || kind.is_fifo() => "special".to_owned(),
        _ => format!("{:?} of {}", fs::read_to_string(path).unwrap(), meta.mtime()),
    };
    let whose = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
    found.insert(name.to_owned(), format!("{what}, {whose} {attributes}"));
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            describe(&entry.path(), &format!("{name}/{}", entry.file_name().display()), found);
        }
    }
}

#[test]
fn a_trial_that_comes_back_finds_the_old_configuration_and_its_own_later() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    let old = machine.state();
    machine.upgrade().succeeds();
    assert_eq!(
        machine.starts('A', false).succeeds().stdout.trim(),
        "nothing to do: the other slot has not run since it was taken"
    );
    machine.node.grub_tries();
    machine.starts('B', true).succeeds();
    assert_eq!(machine.state(), old, "the new system begins with what is there");
    machine.migrate();
    let new = machine.state();
    assert_ne!(new, old);
    // It panics.
    machine.starts('A', false).succeeds().says(&[]);
    assert_eq!(machine.state(), old);
    let lists = machine.snapshots();
    assert_eq!(lists["A"], "no: it was put back already");
    assert_eq!(lists["B"], "when this slot starts", "what the new system wrote is kept");
    // Once: what is changed afterwards stays.
    machine.write("app/main.conf", "changed by the old system\n");
    machine.starts('A', false).succeeds().says(&[]);
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "changed by the old system\n");
    // Kept aside, and to be had.
    let out = world.path("out");
    let show = on_disk(&machine.node.disk, &["snapshot", "show", "--slot", "B"]).succeeds().stdout;
    assert!(show.contains("file      /etc/app/comes"), "{show}");
    on_disk(&machine.node.disk, &["snapshot", "restore", "--slot=B", "--to", out.to_str().unwrap()]).succeeds();
    assert_eq!(fs::read_to_string(out.join("etc/app/main.conf")).unwrap(), "new and larger\n");
    // The next upgrade writes the slot again, and the snapshot in it goes.
    machine.upgrade_with(&["--retry-bad"]).succeeds();
    assert_eq!(machine.snapshots().keys().collect::<Vec<_>>(), ["A"]);
}

#[test]
fn a_rollback_and_another_one_bring_back_what_each_system_had() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    let first = machine.state();
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    machine.starts('B', true).succeeds();
    machine.migrate();
    machine.run('B', true, &["confirm"]).succeeds();
    let second = machine.state();
    assert_eq!(machine.snapshots()["A"], "when this slot starts", "a confirmation does not drop it");
    let status = on_disk(&machine.node.disk, &["status"]).stdout;
    assert!(status.contains("snapshot: 5 files, "), "{status}");
    let disk = machine.node.disk.to_str().unwrap();
    let inspect = Outcome::of(&mut installer(["inspect", "--output", "json", disk])).succeeds().json();
    assert_eq!(inspect["system"]["slots"]["A"]["snapshot"]["files"], 5);
    machine.run('B', true, &["rollback"]).succeeds().says(&["its snapshot, 5 files, is put back when slot A starts"]);
    machine.starts('A', false).succeeds();
    assert_eq!(machine.state(), first);
    machine.write("app/main.conf", "the first, changed\n");
    machine.tag("first");
    let changed = machine.state();
    machine.run('A', false, &["rollback"]).succeeds();
    machine.starts('B', false).succeeds();
    assert_eq!(machine.state(), second);
    machine.run('B', false, &["rollback"]).succeeds();
    machine.starts('A', false).succeeds();
    assert_eq!(machine.state(), changed);
}

/// A new system's own program, run after the hook, as its unit orders it. It leaves alone what is migrated, and fails in the
/// middle where it cannot go on.
fn migrates(machine: &Machine<'_>) -> bool {
    let script = r#"cd "$1" && grep -q '^schema 2$' app/main.conf && exit 0
        grep -q '^schema 1$' app/main.conf || exit 1
        sed -i 's/^schema 1$/schema 2/' app/main.conf && mv app.conf app/moved.conf
        ! grep -q unknown app/moved.conf"#;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&machine.etc).status().unwrap().success()
}

#[test]
fn a_system_that_migrates_its_configuration_needs_no_program_for_the_way_back() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.write("app/main.conf", "schema 1\n");
    machine.write("app.conf", "port 80\n");
    let first = machine.state();
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    machine.starts('B', true).succeeds();
    assert!(migrates(&machine));
    let second = machine.state();
    assert!(second != first && second.contains_key("app/moved.conf") && !second.contains_key("app.conf"), "{second:?}");
    machine.run('B', true, &["confirm"]).succeeds();
    // Back, and forth: each finds its own, and the program finds nothing to do.
    machine.run('B', false, &["rollback"]).succeeds();
    machine.starts('A', false).succeeds();
    assert_eq!(machine.state(), first);
    machine.run('A', false, &["rollback"]).succeeds();
    machine.starts('B', false).succeeds();
    assert_eq!(machine.state(), second);
    assert!(migrates(&machine));
    assert_eq!(machine.state(), second);
}

#[test]
fn half_a_migration_is_gone_when_the_old_system_is_back() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.write("app/main.conf", "schema 1\n");
    machine.write("app.conf", "unknown option\n");
    let old = machine.state();
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    machine.starts('B', true).succeeds();
    assert!(!migrates(&machine), "its unit fails, and the trial is not well");
    assert_ne!(machine.state(), old);
    machine.starts('A', false).succeeds();
    assert_eq!(machine.state(), old);
}

#[test]
fn a_trial_that_was_called_off_puts_nothing_back() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    machine.upgrade().succeeds();
    machine.run('A', false, &["rollback"]).succeeds();
    machine.write("app/main.conf", "later\n");
    machine.starts('A', false).succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "later\n");
    // The next one is taken anew.
    machine.run('A', false, &["activate"]).succeeds();
    machine.node.grub_tries();
    machine.write("app/main.conf", "new\n");
    machine.starts('A', false).succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "later\n");
}

/// What was taken for an earlier trial must not come back after a later one.
#[test]
fn an_upgrade_without_a_snapshot_drops_the_one_before() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    machine.starts('A', false).succeeds();
    machine.write("app/main.conf", "later\n");
    machine.upgrade_with(&["--retry-bad", "--no-snapshot"]).succeeds();
    machine.node.grub_tries();
    machine.starts('A', false).succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "later\n");
    assert_eq!(on_disk(&machine.node.disk, &["snapshot", "list"]).succeeds().stdout.trim(), "no slot has a snapshot");
}

#[test]
fn what_cannot_be_kept_is_said_before_anything_is_written() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    let is_refused = |code, texts: &[&str]| {
        refused(&machine.node.disk, code, texts, || machine.upgrade());
    };
    machine.declare("paths = [\"/etc/app\"]\nmounted = [\"/etc/app\"]\n");
    is_refused(ENVIRONMENT, &["the configuration cannot be kept for the way back", "/etc/app is not mounted"]);
    machine.declare("path = [\"/etc/app\"]\n");
    is_refused(INPUT, &["/etc/slipway/state.toml: line 1, column 1: \"path\" is not a known key"]);
    let declaration = machine.path("slipway/state.toml");
    fs::remove_file(&declaration).unwrap();
    symlink("/not/mounted/state.toml", &declaration).unwrap();
    is_refused(INPUT, &["/etc/slipway/state.toml: it is a link to what is not there"]);
    fs::remove_file(&declaration).unwrap();
    machine.declare("paths = [\"/etc/app\"]\n");
    fs::File::create(machine.path("app/large")).unwrap().set_len(17 * MIB).unwrap();
    is_refused(ENVIRONMENT, &["with /etc/app/large it has more than 16 MiB", "declare less"]);
    fs::remove_file(machine.path("app/large")).unwrap();
    let state = partition(&machine.node.disk, "STATE").offset;
    write_at(&machine.node.disk, state, b"LUKS\xba\xbe");
    is_refused(INPUT, &["STATE is encrypted, and a snapshot of the configuration is not", "plain = true"]);
    machine.declare("paths = [\"/etc/app\"]\nplain = true\n");
    machine.upgrade().succeeds();
}

#[test]
fn sockets_and_pipes_are_left_out_and_left_alone() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    tool!("mkfifo", &machine.path("app/pipe"));
    machine.upgrade().succeeds().says(&["/etc/app/pipe is left out: it is a pipe"]);
    machine.node.grub_tries();
    machine.migrate();
    machine.starts('A', false).succeeds();
    assert!(fs::symlink_metadata(machine.path("app/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "old\n");
}

/// The way back never depends on it: it says what it did not put back, and tries again at the next start.
#[test]
fn a_lost_snapshot_keeps_no_system_from_coming_back() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.configure();
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    machine.run('B', true, &["confirm"]).succeeds();
    machine.migrate();
    let new = machine.state();
    let slot = partition(&machine.node.disk, "BOOT-A");
    let end = slot.offset + slot.len;
    let before = read_at(&machine.node.disk, end - 2 * HEAD, HEAD as usize);
    write_at(&machine.node.disk, end - 2 * HEAD, &vec![0xaa; HEAD as usize]);
    on_disk(&machine.node.disk, &["snapshot", "list"]).exits(INSTALL).says(&[]);
    machine.run('B', false, &["rollback"]).succeeds();
    machine
        .starts('A', false)
        .exits(INSTALL)
        .says(&["the snapshot in slot A: it is not what was written", "nothing of it is put back"]);
    assert_eq!(machine.state(), new, "nothing was changed");
    write_at(&machine.node.disk, end - 2 * HEAD, &before);
    let head = read_at(&machine.node.disk, end - HEAD, 512);
    write_at(&machine.node.disk, end - HEAD + 40, b"?");
    machine.starts('A', false).exits(INSTALL).says(&["its head is damaged"]);
    machine.run('A', false, &["rollback"]).succeeds();
    machine
        .run('B', false, &["rollback"])
        .succeeds()
        .says(&["the snapshot in slot A is damaged: no configuration is put back"]);
    write_at(&machine.node.disk, end - HEAD, &head);
    machine.starts('A', false).succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/main.conf")).unwrap(), "old\n");
}

/// Nothing is lost, and the next start goes on.
#[test]
fn a_full_file_system_is_said_and_the_next_start_goes_on() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.declare("paths = [\"/etc/app\"]\n");
    machine.write("app/a", "old");
    machine.write("app/large", &"x".repeat(300_000));
    machine.upgrade().succeeds();
    machine.node.grub_tries();
    // In a small memory instead of /etc/app, which the new system has emptied.
    let small = "&& mount -t tmpfs -o size=64k none /etc/app && echo new >/etc/app/a";
    let hook = ["snapshot", "restore", "--boot"];
    machine.run_after(small, 'A', false, &hook).exits(ENVIRONMENT).says(&["/etc/app/large: No space left on device"]);
    assert_eq!(machine.snapshots()["A"], "when this slot starts");
    assert_eq!(machine.snapshots()["B"], "when this slot starts");
    machine.write("app/large", "new");
    machine.starts('A', false).succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/large")).unwrap().len(), 300_000);
    let kept = on_disk(&machine.node.disk, &["snapshot", "show", "--slot=B"]).succeeds().stdout;
    assert!(!kept.contains("/etc/app/large"), "what was there at the first start is kept: {kept}");
    // By hand it goes on, too, unless something would go that is kept nowhere.
    let by_hand = || machine.run('A', false, &["snapshot", "restore"]);
    machine.write("app/a", "changed");
    by_hand().exits(INPUT).says(&["cannot be kept", "`installer snapshot restore --slot A --to DIR --disk "]);
    machine.write("app/a", "new\n");
    by_hand().succeeds();
    assert_eq!(fs::read_to_string(machine.path("app/a")).unwrap(), "old");
}

/// The other slot is not given up for a snapshot that there is no room for.
#[test]
fn an_image_file_that_has_no_room_for_a_snapshot_is_left_as_it_is() {
    let world = World::new();
    let small = SmallFs::new(&world);
    let disk = small.path("os.img");
    fs::File::create(&disk).unwrap().set_len(IMAGE_BYTES).unwrap();
    let machine = Machine::of(&world, Node::onto(&world, disk));
    machine.declare("paths = [\"/etc/app\"]\n");
    machine.write("app/large", &"x".repeat(3_000_000));
    small.leave_free(2 << 20);
    let why = ["nothing was written: no room for ", "No space left on device"];
    refused(&machine.node.disk, INSTALL, &why, || machine.upgrade());
    fs::remove_file(small.path("filler")).unwrap();
    machine.upgrade().succeeds();
}

/// Encrypted, and not opened: its directory is no mount point. Nothing is written below it, and the system starts.
#[test]
fn a_volume_that_is_never_opened_is_said_until_what_is_on_it_is_put_back() {
    let world = World::new();
    let machine = Machine::new(&world);
    let (state, mount) = (world.path("state"), machine.path("state"));
    fs::create_dir_all(&state).unwrap();
    fs::create_dir_all(&mount).unwrap();
    fs::write(state.join("machine"), "old").unwrap();
    machine.declare("paths = [\"/etc/state/machine\"]\nmounted = [\"/etc/state\"]\nplain = true\n");
    let open = format!("&& mount --bind {} /etc/state", state.display());
    let source = format!("--source={}", machine.node.next.source());
    machine.run_after(&open, 'A', false, &["upgrade", "--progress=none", &source]).succeeds();
    machine.node.grub_tries();
    fs::write(state.join("machine"), "new").unwrap();
    // The trial has ended, and the old system starts without its volume.
    let closed = machine.starts('A', false).exits(ENVIRONMENT);
    closed.says(&["/etc/state is not mounted"]);
    assert!(fs::read_dir(&mount).unwrap().next().is_none(), "it was written to the directory below");
    let status = machine.run('A', false, &["status"]).stdout;
    for says in ["runs, and its 1 files were not put back", "installer snapshot restore --boot --disk"] {
        assert!(status.contains(says), "{says}: {status}");
    }
    // An upgrade says what it would replace, and without a snapshot it replaces nothing.
    let upgrade = |args: &[&str]| machine.run_after(&open, 'A', false, &[args, &["--retry-bad", &source]].concat());
    for verb in ["upgrade", "stage"] {
        upgrade(&[verb, "--dry-run"]).succeeds().says(&["the snapshot of slot A was never put back"]);
    }
    upgrade(&["upgrade", "--no-snapshot"]).succeeds();
    machine.node.grub_tries();
    // What is not put back takes nothing from the way back, nor is it lost.
    machine.starts('A', false).exits(ENVIRONMENT);
    machine.run_after(&open, 'A', false, &["snapshot", "restore", "--boot"]).succeeds();
    assert_eq!(fs::read_to_string(state.join("machine")).unwrap(), "old");
    let status = machine.run('A', false, &["status"]).stdout;
    assert!(!status.contains("were not put back"), "{status}");
    let entries = json_of(&machine.node.disk, &["history"])["entries"].clone();
    let restores = entries.as_array().unwrap().iter().filter(|entry| entry["verb"] == "restore");
    let slots: Vec<_> = restores.map(|entry| entry["slot"].clone()).collect();
    assert_eq!(slots, ["A"], "{entries}");
}
