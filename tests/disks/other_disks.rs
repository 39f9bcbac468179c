//! Unattended installations on a machine whose other disks cannot be looked at, or leave doubt; and disks that become
//! others between the look and the first write. Loop devices: what is cut off a file behind one cannot be read.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use slipway::device::{Access, Disk};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    not_run,
    world::{self, Loop, Node, Outcome, World, tool, write_at},
};

use super::unattended::{ANY, Live, MEDIUM, OTHER_MEDIUM, came_to, medium_of, untouched};

const OVERWRITE: &str = "slipway.install.preserve=false";
const KEEP: &str = "slipway.install.preserve=true";
const HALT: &str = "talos.halt_if_installed=1";

/// Two disks: one is installed by [`MEDIUM`], the other is the one that the words name.
struct Machine<'w> {
    world: &'w World,
    files: [PathBuf; 2],
    loops: [Loop; 2],
}

impl<'w> Machine<'w> {
    fn new(world: &'w World) -> Self {
        let files = ["installed.img", "named.img"].map(|name| world.sparse(name, world::DISK_BYTES));
        let loops = files.each_ref().map(|file| Loop::attach(file, &[]));
        Live::new(world).onto(&loops[0].node, MEDIUM).succeeds();
        Machine { world, files, loops }
    }

    fn live(&self) -> Live<'w> {
        Live { disks: self.loops.iter().map(|disk| disk.node.clone()).collect(), ..Live::new(self.world) }
    }

    fn installed(&self) -> &Path {
        &self.loops[0].node
    }

    fn named(&self) -> &Path {
        &self.loops[1].node
    }

    /// Foreign data on the disk that the words name.
    fn with_data(self) -> Self {
        tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:data", self.named());
        tool!("blockdev", "--flushbufs", self.named());
        self
    }

    /// From this byte on the installed disk cannot be read.
    fn unreadable_from(&self, byte: u64) {
        tool!("blockdev", "--flushbufs", self.installed());
        OpenOptions::new().write(true).open(&self.files[0]).unwrap().set_len(byte).unwrap();
    }

    /// Neither disk is written to.
    #[track_caller]
    fn refuses(&self, words: &str, texts: &[&str]) -> Outcome {
        let [one, two] = self.files.each_ref().map(PathBuf::as_path);
        let outcome = untouched(&[one, two], || self.live().run(&self.words(words), "", &["--lock-timeout=0"]));
        outcome.exits(INSTALL).says(texts)
    }

    fn words(&self, words: &str) -> String {
        format!("slipway.install={} {words}", self.named().display())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

// ---------------------------------------------------------------------------------------------------
// Disks that cannot be looked at.

/// The disk that this medium has installed can be the one that cannot be read, and the names of disks move.
#[test]
fn nothing_is_overwritten_while_another_disk_cannot_be_read() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    machine.unreadable_from(0);
    let texts = [text(machine.installed()), "cannot be looked at", "nothing is overwritten", "detach"];
    machine.refuses(&format!("{MEDIUM} {OVERWRITE}"), &texts);
    // Whatever it holds: no instruction says that it may be overwritten.
    machine.refuses(MEDIUM, &["not empty"]);
    machine.refuses(&format!("{MEDIUM} {KEEP}"), &["not empty"]);
}

/// The content of a disk is known without its last sectors, and still they must not decide.
#[test]
fn one_unreadable_sector_in_a_backup_gpt_overwrites_nothing() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    machine.unreadable_from(world::DISK_BYTES - 4096);
    let [one, two] = machine.files.each_ref().map(PathBuf::as_path);
    let words = machine.words(&format!("{MEDIUM} {OVERWRITE}"));
    let outcome = untouched(&[one, two], || machine.live().run(&words, "", &[]));
    assert!(matches!(outcome.code, 0 | INSTALL), "{}", outcome.stderr);
    assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains(text(machine.installed())), "{}", outcome.stderr);
}

#[test]
fn an_installation_is_not_upgraded_while_another_disk_cannot_be_read() {
    let world = World::new();
    let machine = Machine::new(&world);
    Live::new(&world).onto(machine.named(), OTHER_MEDIUM).succeeds();
    machine.unreadable_from(0);
    for words in [KEEP, OVERWRITE] {
        machine.refuses(&format!("{MEDIUM} {words}"), &[text(machine.installed()), "cannot be looked at"]);
    }
    // What this medium has made is known without a look at the others.
    let done = machine.live().run(&machine.words(&format!("{OTHER_MEDIUM} {OVERWRITE}")), "", &[]).succeeds();
    came_to(&done, "nothing", "stay");
}

/// One dead disk must not keep a machine from being installed: on an empty disk nothing is lost.
#[test]
fn an_empty_disk_is_installed_beside_one_that_cannot_be_read() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.unreadable_from(0);
    let texts = [HALT, text(machine.installed()), "cannot be looked at", "preserve=true or =false", "detach"];
    machine.refuses(&format!("{MEDIUM} {HALT}"), &texts);
    let outcome = machine.live().run(&machine.words(&format!("{MEDIUM} {HALT} {OVERWRITE}")), "", &[]).succeeds();
    came_to(&outcome, "installed", "reboot");
    outcome.says(&[text(machine.installed()), "cannot be looked at", "all the same", "is empty"]);
    assert_eq!(medium_of(machine.named()), "00000000000000a1");
}

#[test]
fn a_disk_that_somebody_has_locked() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    let lock = Flock::lock(File::open(machine.installed()).unwrap(), FlockArg::LockExclusiveNonblock);
    let lock = lock.map_err(|(_, e)| e).unwrap();
    let holder = format!("locked by process {}", process::id());
    machine.refuses(&format!("{MEDIUM} {OVERWRITE}"), &[text(machine.installed()), &holder]);
    drop(lock);
    let outcome = machine.live().run(&machine.words(&format!("{MEDIUM} {OVERWRITE}")), "", &[]).succeeds();
    came_to(&outcome, "nothing", "stay");
}

/// The disks that the kernel lists, and the disks that are there.
#[test]
fn disks_that_only_the_kernel_knows() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    let words = machine.words(&format!("{OTHER_MEDIUM} {OVERWRITE}"));
    let [one, two] = machine.files.each_ref().map(PathBuf::as_path);
    for (sys, why) in [
        // It vanishes between list and look.
        ("mkdir gone && echo 8 >gone/size", "/dev/gone: there is no such file or device"),
        ("mkdir gone", "/dev/gone: its size cannot be read"),
        ("mkdir gone && echo much >gone/size", "/dev/gone: its size cannot be read"),
        // A SCSI disk that does not answer has no size.
        ("mkdir -p gone/device && echo 0 >gone/size", "/dev/gone: its size is 0: the drive does not answer"),
        // A volume on other disks is not one of those that firmware starts; an array is.
        ("mkdir -p md7/slaves/sda && echo 8 >md7/size", "/dev/md7: there is no such file or device"),
    ] {
        let live = Live { sys, ..machine.live() };
        let outcome = untouched(&[one, two], || live.run(&words, "", &[]));
        outcome.exits(INSTALL).says(&["cannot be looked at", why]);
    }
    // Nor is one selected while a disk is listed without a size.
    let live = Live { sys: "mkdir gone", ..machine.live() };
    let selected = || live.run(&format!("{OTHER_MEDIUM} {OVERWRITE}"), ANY, &[]);
    untouched(&[one, two], selected).exits(INPUT).says(&["/dev/gone: its size cannot be read"]);

    let harmless = "mkdir -p ram99 zram99 fd99 sr99 loop999 reader/device dm-97/dm dm-98/dm dm-99/dm nvme9c9n9 \
        && for d in ram99 zram99 fd99 sr99 dm-97 dm-98 dm-99 nvme9c9n9; do echo 8 >$d/size; done \
        && echo 0 >loop999/size && echo 0 >reader/size && echo 1 >reader/removable && echo 1 >nvme9c9n9/hidden \
        && echo LVM-x >dm-97/dm/uuid && echo CRYPT-x >dm-98/dm/uuid && echo mpath-x >dm-99/dm/uuid";
    let live = Live { sys: harmless, ..machine.live() };
    came_to(&live.run(&words, "", &[]).succeeds(), "installed", "reboot");
}

/// A selector means one disk, and that is known only if all that match can be looked at.
#[test]
fn a_disk_that_matches_and_cannot_be_looked_at() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.unreadable_from(0);
    let [one, two] = machine.files.each_ref().map(PathBuf::as_path);
    let outcome = untouched(&[one, two], || machine.live().run(OTHER_MEDIUM, ANY, &[])).exits(INSTALL);
    outcome.says(&[text(machine.installed()), "matches what the machine config selects", "cannot be looked at"]);
}

/// The list says one thing, and the node that has its name by now another.
#[test]
fn a_name_that_comes_to_mean_another_disk_before_it_is_opened() {
    let world = World::new();
    let file = world.sparse("disk.img", world::DISK_BYTES);
    let disk = Loop::attach(&file, &[]);
    let name = disk.node.file_name().unwrap().display();
    let script = format!("echo X1 >{name}/serial");
    let live = Live { disks: vec![disk.node.clone()], sys: &script, ..Live::new(&world) };
    let outcome = untouched(&[&file], || live.run(MEDIUM, ANY, &[])).exits(INSTALL);
    outcome.says(&[text(&disk.node), "another disk has taken its name in the meantime"]);
}

// ---------------------------------------------------------------------------------------------------
// Disks that can be read and leave doubt.

/// It may be what this medium has made.
#[test]
fn another_installation_without_a_boot_state() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    let mut node = Node::installed(&world);
    node.disk = machine.installed().to_owned();
    node.boot_envs().into_iter().for_each(|at| write_at(&node.disk, at, &[0; 512]));
    tool!("blockdev", "--flushbufs", &node.disk);
    let words = format!("{MEDIUM} {OVERWRITE}");
    machine.refuses(&words, &[text(machine.installed()), "boot state", "nothing is overwritten"]);
    node.run('A', false, &["confirm"]).succeeds();
    machine.refuses(&words, &[text(machine.installed()), "boot state", "nothing is overwritten"]);
}

/// Without a name for the medium no installation can say that it has made it.
#[test]
fn another_installation_and_a_medium_without_a_name() {
    let world = World::new();
    let machine = Machine::new(&world).with_data();
    machine.refuses(OVERWRITE, &[text(machine.installed()), "slipway.medium="]);
}

/// After an upgrade of one of two equal disks it would be unknown which of them boots.
#[test]
fn a_clone_is_not_upgraded() {
    let world = World::new();
    let machine = Machine::new(&world);
    tool!("cp", "--sparse=always", &machine.files[0], &machine.files[1]);
    tool!("blockdev", "--flushbufs", machine.named());
    let texts = [text(machine.installed()), "the same disk GUID", "detach"];
    machine.refuses(&format!("{OTHER_MEDIUM} {KEEP}"), &texts);
    // Installed anew it is a disk of its own.
    let outcome = machine.live().run(&machine.words(&format!("{OTHER_MEDIUM} {OVERWRITE}")), "", &[]).succeeds();
    came_to(&outcome, "installed", "reboot");
    assert_eq!(medium_of(machine.installed()), "00000000000000a1");
}

// ---------------------------------------------------------------------------------------------------
// Between the look and the first write.

/// When a program does something while `unattended` is under way.
#[derive(Clone, Copy)]
enum Moment {
    /// It has the disk open that the words name, and looks at another one.
    LooksAtOthers,
    /// It has decided, and waits for its claim.
    Claims,
}

/// Do this at that moment. What the program waits for is a lock, and it says so.
fn meanwhile(world: &World, moment: Moment, target: &Path, words: &str, act: impl FnOnce()) -> Outcome {
    let other = Loop::attach(&world.sparse("other.img", world::DISK_BYTES), &[]);
    let (held, how) = match moment {
        Moment::LooksAtOthers => (&*other.node, FlockArg::LockExclusiveNonblock),
        Moment::Claims => (target, FlockArg::LockSharedNonblock),
    };
    let lock = Flock::lock(File::open(held).unwrap(), how).map_err(|(_, e)| e).unwrap();
    let live = Live { disks: vec![other.node.clone()], ..Live::new(world) };
    let command = live.command(&format!("slipway.install={} {words}", target.display()), &["--lock-timeout=600"]);
    let mut watched = Command::new(command.get_program());
    watched.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = watched.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let waits = format!("waiting for the lock on {}", held.display());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    while !stderr.contains(&waits) {
        assert!(said.read_line(&mut stderr).unwrap() > 0, "it did not wait: {stderr}");
    }
    act();
    drop(lock);
    said.read_to_string(&mut stderr).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    Outcome { code: child.wait().unwrap().code().unwrap(), stdout, stderr }
}

fn foreign(world: &World, name: &str) -> PathBuf {
    let disk = world.sparse(name, world::IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:data", &disk);
    disk
}

/// The name that was looked at means another disk when it is to be written.
#[test]
fn a_path_that_comes_to_mean_another_disk() {
    for moment in [Moment::LooksAtOthers, Moment::Claims] {
        let world = World::new();
        let node = Node::installed(&world);
        let (target, aside) = (foreign(&world, "target.img"), world.path("aside.img"));
        let before = world::Content::of(&target);
        let outcome = untouched(&[&node.disk], || {
            let outcome = meanwhile(&world, moment, &target, &format!("{MEDIUM} {OVERWRITE}"), || {
                fs::rename(&target, &aside).unwrap();
                fs::rename(&node.disk, &target).unwrap();
            });
            fs::rename(&target, &node.disk).unwrap();
            outcome
        });
        outcome.exits(INSTALL).says(&[text(&target), "means another disk now", "nothing was written"]);
        assert!(world::Content::of(&aside) == before);
    }
}

/// A link is followed once: what is written is what was looked at.
#[test]
fn a_link_that_comes_to_mean_another_disk() {
    let world = World::new();
    let node = Node::installed(&world);
    let (target, link) = (foreign(&world, "target.img"), world.path("link"));
    symlink(&target, &link).unwrap();
    let outcome = untouched(&[&node.disk], || {
        meanwhile(&world, Moment::LooksAtOthers, &link, &format!("{MEDIUM} {OVERWRITE}"), || {
            fs::remove_file(&link).unwrap();
            symlink(&node.disk, &link).unwrap();
        })
    });
    came_to(&outcome.succeeds(), "installed", "reboot");
    assert_eq!(medium_of(&target), "00000000000000a1");
}

/// As when a card is changed in its reader: the node is the same, the disk behind it is not. A loop device that is
/// read-only can do that, too (loop(4), `LOOP_CHANGE_FD`).
#[test]
fn another_disk_behind_the_same_node() {
    let world = World::new();
    let [one, two] = ["one.img", "two.img"].map(|name| world.sparse(name, 8 << 20));
    let device = Loop::attach(&one, &["--read-only"]);
    if !Path::new("/sys/block").join(device.node.file_name().unwrap()).join("diskseq").exists() {
        not_run("another_disk_behind_the_same_node: this kernel is older than 5.15");
        return;
    }
    let open = || Disk::open(&device.node, Access::Read, None, Duration::ZERO).unwrap();
    open().reopen(Access::Read, None, Duration::ZERO, &mut |_| ()).unwrap();
    let disk = open();
    let change = r#"open(L, "<", $ARGV[0]) && open(F, "<", $ARGV[1]) && ioctl(L, 0x4C06, fileno(F)) or die $!"#;
    tool!("perl", "-e", change, &device.node, &two);
    let error = disk.reopen(Access::Read, None, Duration::ZERO, &mut |_| ()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("it means another disk now"), "{error}");
}

/// Another program has installed there in the meantime.
#[test]
fn a_disk_that_changes_after_it_was_looked_at() {
    let world = World::new();
    let made = world.image();
    Live::new(&world).onto(&made, MEDIUM).succeeds();
    let target = foreign(&world, "target.img");
    let words = format!("{MEDIUM} {OVERWRITE}");
    let copy = || drop(tool!("cp", "--sparse=always", &made, &target));
    let outcome = meanwhile(&world, Moment::Claims, &target, &words, copy);
    outcome.exits(INSTALL).says(&[text(&target), "it changed after it was looked at", "nothing was written"]);
    assert!(world::Content::of(&target) == world::Content::of(&made));

    let grown = world.image();
    let longer = || OpenOptions::new().write(true).open(&grown).unwrap().set_len(world::IMAGE_BYTES + 4096).unwrap();
    let outcome = meanwhile(&world, Moment::Claims, &grown, MEDIUM, longer);
    outcome.exits(INSTALL).says(&[text(&grown), "it means another disk now", "nothing was written"]);
    assert_eq!(fs::metadata(&grown).unwrap().blocks(), 0, "it was written to");
}
